#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, in one call of under 9 minutes: builds the CUDA backend for its card (and no other), the
# Python package and the C++ numeric tests; runs both sets of tests on the card, measures its speed, and looks for bad memory
# accesses and races. A step that fails does not stop those behind it.
#   gpu_check.sh [FOLDER]     the report goes there (build/gpu-report without one): a few files, logs packed into one
#   gpu_check.sh --carry      on a machine that scripts/setup.sh has set up: writes build/gpu-carry, what a machine without
#                             network may lack (DLPack's header, GoogleTest's source, nanobind)
# Needs nvcc, CMake, ninja, and a python3 with PyTorch, numpy, pytest and nanobind; what build/gpu-carry holds is taken from there.
#   KVC_GPU_SECONDS  the whole round (default 525): no step begins after that, and none runs on
#   KVC_GPU_DEVICE   `emulated` for a dry run where there is no card: tests on the emulated backend, tiny shapes measured
#   PYTHON           the interpreter (default python3)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
carry=$root/build/gpu-carry

if [ "${1:-}" = --carry ]; then
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -rf "$carry" && mkdir -p "$carry/include/dlpack" "$carry/site"
  cp "$("$venv/bin/tvm-ffi-config" --dlpack-includedir)/dlpack/dlpack.h" "$carry/include/dlpack/"
  cp -r /usr/src/googletest "$carry/googletest"
  cp -r "$packages"/nanobind "$packages"/nanobind-*.dist-info "$carry/site/"
  find "$carry" -name __pycache__ -prune -exec rm -rf {} +
  du -sh "$carry"
  exit 0
fi

report=${1:-$root/build/gpu-report}
device=${KVC_GPU_DEVICE:-cuda}
python=${PYTHON:-$(command -v python3)}
deadline=$((SECONDS + ${KVC_GPU_SECONDS:-525}))
logs=$root/build/gpu-logs
rm -rf "$logs" "$report" && mkdir -p "$logs" "$report"
summary=$report/summary.txt
failed=()

say() { echo "$*" | tee -a "$summary"; }
step() { # NAME SECONDS COMMAND...: at most so long, and not beyond the deadline; its output to a log, its end here
  local name=$1 seconds=$2 begin=$SECONDS left=$((deadline - SECONDS)) state=0
  shift 2
  if [ $left -lt 5 ]; then
    say "$name LEFT OUT: no time"
    failed+=("$name")
    return
  fi
  timeout --kill-after 5 $((seconds < left ? seconds : left)) "$@" > "$logs/$name.txt" 2>&1 || state=$?
  if [ $state = 0 ]; then
    say "$name ok, $((SECONDS - begin)) s"
  else
    [ $state != 124 ] || say "$name ran into its limit"
    say "$name FAILED ($state), $((SECONDS - begin)) s"
    tail -n 25 "$logs/$name.txt" | sed 's/^/    /' | tee -a "$summary"
    failed+=("$name")
  fi
  grep -E '^[0-9]+ (passed|failed)|^\[  (PASSED|FAILED)  \]|^[0-9]+ rows' "$logs/$name.txt" | tail -n 3 | sed 's/^/    /' |
    tee -a "$summary" || true
}
write_script() { cat > "$logs/$1.sh"; } # for steps of several commands: `timeout` takes a program

# ---- What there is ----------------------------------------------------------------------------
nvidia-smi > "$logs/nvidia-smi.txt"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
case $capability in 90 | 100 | 103) arch=${capability}a-real ;; *) arch=$capability-real ;; esac
say "card: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), $arch"
say "python: $("$python" -c 'import sys, torch; print(sys.version.split()[0], "torch", torch.__version__)' 2>&1 | tail -n 1)"

dlpack() { # the folder of a header that has the exchange table
  local torch_header folder
  torch_header=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' \
    2> /dev/null)/include/ATen/dlpack.h
  for folder in "${DLPACK_INCLUDE_DIR:-}" "$carry/include" "$("$venv/bin/tvm-ffi-config" --dlpack-includedir 2> /dev/null)"; do
    if [ -n "$folder" ] && [ -f "$folder/dlpack/dlpack.h" ]; then
      echo "$folder"
      return
    fi
  done
  if grep -qs DLPackExchangeAPI "$torch_header"; then # PyTorch carries it under another name
    mkdir -p "$logs/include/dlpack" && cp "$torch_header" "$logs/include/dlpack/dlpack.h" && echo "$logs/include"
  fi
}
DLPACK_INCLUDE_DIR=$(dlpack)
export DLPACK_INCLUDE_DIR
say "dlpack.h: ${DLPACK_INCLUDE_DIR:-nowhere}"

# ---- Building: the plug-in beside the rest ------------------------------------------------------
plugin=$root/build/cuda/kernels/cuda/libkvcache_cuda.so
tree=$root/build/gpu
site=$tree/site
gtest=${GTEST_SOURCE:-$carry/googletest}
programs=kernels_test
[ "$device" = cuda ] || programs=kvcache_cuda_emulated_plugin # what a dry run has in its place
write_script build-rest <<END
set -e
export PATH="$(dirname "$python"):\$PATH"
[ ! -d "$carry/site" ] || export PYTHONPATH="$carry/site"
cmake -S bindings/python -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVCACHE_PYTHON_LINKED=ON \\
  -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python" -DDLPACK_INCLUDE_DIR="$DLPACK_INCLUDE_DIR" \\
  -DKVCACHE_BUILD_TESTS=ON "-DKVCACHE_TEST_FOLDERS=cuda;kernels" $([ ! -d "$gtest" ] || echo "-DGTEST_SOURCE=$gtest")
cmake --build "$tree" --parallel $jobs --target _kvcache load_plugin $programs
END
write_script build-package <<END
set -e
cmake --build "$tree" --parallel $jobs --target _kvcache # built, if only the tests were not
cmake --install "$tree" --component python --prefix "$site"
cmake --install "$tree" --component python-sources --prefix "$site"
PYTHONPATH="$site" "$python" -c 'import kvcache; print(kvcache.__file__, kvcache.build_info())'
END
if [ "$device" = cuda ]; then
  step build-plugin 240 bash scripts/build_cuda.sh "$arch" &
  built=$!
  step build-rest 240 bash "$logs/build-rest.sh"
  wait $built
  grep -q '^build-plugin ok' "$summary" || failed+=(build-plugin)
else
  step build-rest 500 bash "$logs/build-rest.sh"
  plugin=$tree/libkvcache/tests/cuda/libkvcache_cuda_emulated_plugin.so
fi
step build-package 60 bash "$logs/build-package.sh"
export KVCACHE_CUDA_BACKEND=$plugin KVC_EMULATED_CUDA=$tree/libkvcache/tests/cuda/libkvcache_cuda_emulated_plugin.so
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}

# ---- Tests ------------------------------------------------------------------------------------
tests=$tree/libkvcache/tests
step opens 30 "$tests/cuda/load_plugin" 0 "\"simd\": \"sm_$capability\""
# On memory that host and device share; what looks at the CPU's own registers, or maps memory itself, is left out.
if [ "$device" = cuda ]; then
  step numeric 90 env KVC_KERNEL_BACKEND="$plugin" "$tests/kernels/kernels_test" \
    --gtest_filter=-Backend.*:Merge.*:Convert.* --gtest_output=xml:"$report/numeric.xml"
fi
step pytest 150 "$python" -m pytest -ra -q -p no:cacheprovider tests/gpu --device "$device" --junitxml="$report/pytest.xml"
if [ "$device" = cuda ] && [ "$capability" = 90 ]; then # the kernels that are chosen by name only
  step pytest-wgmma 60 env KVC_GPU_SIMD=sm_90_wgmma "$python" -m pytest -ra -q -p no:cacheprovider tests/gpu/test_numeric.py \
    tests/gpu/test_spikes.py tests/gpu/test_capture.py --device "$device" --junitxml="$report/pytest-wgmma.xml"
fi
step gemma 30 "$python" -m pytest -ra -q -p no:cacheprovider tests/gemma/test_model_torch.py -k random_weights

# ---- Speed, and what a checker says -------------------------------------------------------------
speed=("$python" benchmarks/cuda/speed.py --out "$report")
if [ "$device" = cuda ]; then
  step speed 130 "${speed[@]}" --seconds 110
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
      step $tool 45 env KVC_KERNEL_BACKEND="$plugin" KVC_KERNEL_SAMPLING=67 compute-sanitizer --tool $tool --error-exitcode 1 \
        "$tests/kernels/kernels_test" --gtest_filter='Attend.HeadsAndDims:Append.*:Slots.*:Shared.*:Warpgroup.KeysOfOthersMayBeNaN'
    done
  else
    say "memcheck and racecheck left out: no compute-sanitizer"
  fi
else
  step speed 130 "${speed[@]}" --dry
fi

tar -C "$(dirname "$logs")" -czf "$report/logs.tar.gz" --exclude='*.so' "$(basename "$logs")"
[ ! -f "$report/speed.md" ] || cat "$report/speed.md"
say "report: $report; ${#failed[@]} steps failed${failed[*]:+: ${failed[*]}}; $SECONDS s"
[ ${#failed[@]} = 0 ]
