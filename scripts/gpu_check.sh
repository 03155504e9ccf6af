#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, in one call: builds the CUDA backend for its card and runs the numeric tests on it.
#   gpu_check.sh [FOLDER]      writes its report there; build/gpu-report without one
# Needs nvcc, CMake, ninja, GoogleTest and DLPack ($DLPACK_INCLUDE_DIR, or as scripts/setup.sh installs it); no network.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
report=${1:-$root/build/gpu-report}
mkdir -p "$report"
failed=()

step() { # NAME SECONDS COMMAND...: its output to the report; the last lines here
  local name=$1 seconds=$2 begin=$SECONDS
  shift 2
  if timeout "$seconds" "$@" > "$report/$name.txt" 2>&1; then
    echo "$name ok, $((SECONDS - begin)) s"
  else
    echo "$name FAILED, $((SECONDS - begin)) s"
    tail -n 30 "$report/$name.txt"
    failed+=("$name")
  fi
}

build_tests() {
  PATH=$venv/bin:$PATH cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVCACHE_BUILD_TESTS=ON \
    "-DKVCACHE_TEST_FOLDERS=cuda;kernels" ${DLPACK_INCLUDE_DIR:+"-DDLPACK_INCLUDE_DIR=$DLPACK_INCLUDE_DIR"}
  cmake --build build/gpu --parallel "$jobs" --target kvcache kernels_test load_plugin
}

nvidia-smi > "$report/nvidia-smi.txt"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
case $capability in 90 | 100 | 103) arch=${capability}a-real ;; *) arch=$capability-real ;; esac
echo "card: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), $arch"

plugin=$root/build/cuda/kernels/cuda/libkvcache_cuda.so
step build-plugin 240 bash scripts/build_cuda.sh "$arch"
step build-tests 240 build_tests
export KVCACHE_CUDA_BACKEND=$plugin
step opens 60 build/gpu/tests/cuda/load_plugin 0 "\"simd\": \"sm_$capability\""
# On memory that host and device share; what looks at the CPU's own registers, or maps memory itself, is left out.
step numeric 240 env KVC_KERNEL_BACKEND="$plugin" build/gpu/tests/kernels/kernels_test \
  --gtest_filter=-Backend.*:Merge.*:Convert.* --gtest_output=xml:"$report/numeric.xml"
# A sampled grid under the checker of memory accesses, where the toolkit has it.
if command -v compute-sanitizer > /dev/null; then
  step memcheck 120 env KVC_KERNEL_BACKEND="$plugin" KVC_KERNEL_SAMPLING=17 compute-sanitizer --error-exitcode 1 \
    build/gpu/tests/kernels/kernels_test --gtest_filter='Attend.HeadsAndDims:Append.*:Slots.*:Shared.*'
fi
echo "report: $report"
[ ${#failed[@]} = 0 ]
