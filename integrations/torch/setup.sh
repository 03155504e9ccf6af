#!/usr/bin/env bash
# Builds kvcache_torch into build/torch/package with the PyTorch of .venv-transformers, and installs the Python package.
#   bash integrations/torch/setup.sh             then PYTHONPATH=build/torch/package .venv-transformers/bin/python
#   bash integrations/torch/setup.sh --oldest    also installs PyTorch 2.10 into build/venv-torch-oldest
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
set_up demo cmake ninja
install_python_package
bash scripts/setup_transformers.sh
here=$root/integrations/torch
prefix=$root/build/torch/prefix
torch=$(packages_of "$root/.venv-transformers")/torch

export PATH=$venv/bin:$PATH
[ -f build/release/CMakeCache.txt ] || cmake --preset release -DPython3_EXECUTABLE="$python" -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_BENCHMARKS=OFF
cmake --build --preset release --parallel "$jobs" --target kvcache
cmake --install build/release --prefix "$prefix" > /dev/null
cmake -S "$here" -B "$prefix/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$root/build/torch/package" \
  -DTORCH_DIR="$torch" -DCMAKE_COMPILE_WARNING_AS_ERROR="${KVC_STRICT:-OFF}" > /dev/null
cmake --build "$prefix/build" --parallel "$jobs" --target install > "$prefix/build.log" || { cat "$prefix/build.log" && exit 1; }

[ "${1:-}" = --oldest ] || exit 0
layer=$root/build/venv-torch-oldest
stamp=$layer/requirements.stamp
now="$("$python" --version) $(cat "$here/requirements-oldest.txt" "${BASH_SOURCE[0]}" | sha256sum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  "$python" -m venv "$layer"
  layer_over_venv "$layer"
  "$layer/bin/python" -m pip install --quiet --no-deps --no-compile --requirement "$here/requirements-oldest.txt"
  make_empty_cuda_libraries "$layer"
  "$layer/bin/python" -c 'import torch; print(torch.__version__)'
  echo "$now" > "$stamp"
fi
