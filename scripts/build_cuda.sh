#!/usr/bin/env bash
# Builds the CUDA backend, build/cuda/kernels/cuda/libkvcache_cuda.so. It needs no GPU.
#   KVC_CUDA_BUILD=cuda-80 ...   builds in build/cuda-80 instead
#   build_cuda.sh [ARCH ...]     compute capabilities as CMake names them (90a-real, 90-virtual); without ARCH: all
# The compiler is that of $CUDA_HOME, else nvcc in the path, else /usr/local/cuda, else wheels that are installed into
# build/cuda-toolkit. DLPack comes from $DLPACK_INCLUDE_DIR, else from what scripts/setup.sh installs.
#   KVC_CMAKE_OPTIONS  more CMake options, separated by spaces
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [ -z "${DLPACK_INCLUDE_DIR:-}" ]; then # a machine without a network may have it elsewhere
  set_up demo cmake ninja
fi
build=$root/build/${KVC_CUDA_BUILD:-cuda}

# Prints the folder of a toolkit made of wheels: bin/nvcc, include, lib64.
toolkit_of_wheels() {
  local place=$root/build/cuda-toolkit stamp now folder
  stamp=$place/wheels.stamp
  now=$(sha256sum < scripts/requirements-cuda.txt)
  if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
    rm -rf "$place"
    python3 -m venv "$place" >&2
    "$place/bin/python" -m pip install --quiet --no-deps --requirement scripts/requirements-cuda.txt >&2
    folder=$(echo "$place"/lib/python3*/site-packages/nvidia/cu13)
    ln -sfn lib "$folder/lib64" # nvcc looks here for the runtime
    echo "$now" > "$stamp"
  fi
  echo "$place"/lib/python3*/site-packages/nvidia/cu13
}

nvcc=$(PATH=${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin command -v nvcc) || nvcc=$(toolkit_of_wheels)/bin/nvcc
options=(-DKVCACHE_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" -DCMAKE_BUILD_TYPE=Release)
if [ $# -gt 0 ]; then
  options+=("-DKVCACHE_CUDA_ARCHS=$(IFS=';'; echo "$*")")
else
  options+=(-UKVCACHE_CUDA_ARCHS)
fi
if [ -n "${DLPACK_INCLUDE_DIR:-}" ]; then
  options+=("-DDLPACK_INCLUDE_DIR=$DLPACK_INCLUDE_DIR")
fi
export CUDAHOSTCXX=$CXX
PATH=$venv/bin:$PATH cmake -S . -B "$build" -G Ninja "${options[@]}" ${KVC_CMAKE_OPTIONS:-}
cmake --build "$build" --parallel "$jobs" --target kvcache_cuda
echo "toolkit: $(dirname "$(dirname "$nvcc")")"
echo "plug-in: $build/kernels/cuda/libkvcache_cuda.so"
