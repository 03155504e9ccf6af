#!/usr/bin/env bash
# Checks the CUDA backend on a machine with an NVIDIA GPU, in one call of under 9 minutes. It builds the backend for that
# GPU, the Python package and the C++ numeric tests; measures speed; runs both sets of tests; and searches for bad memory
# accesses and races. A step that fails does not stop the later steps.
#   gpu_check.sh [FOLDER]     writes the report to FOLDER (default build/gpu-report): a few files, and all logs in one
#   gpu_check.sh --carry [ARCH PYTHON]
#                             writes build/gpu-carry on a machine that scripts/setup.sh has set up: what a machine without
#                             network may lack (DLPack's header and xxHash's, GoogleTest's sources, nanobind). With ARCH (such
#                             as 90a-real) and PYTHON (such as 3.12), it also builds all programs for that GPU and that Python,
#                             so that no time on the GPU is spent on it. For Linux with the same or a later glibc.
# Needs nvcc, CMake, ninja, and a python3 with PyTorch, numpy, pytest and nanobind. Files in build/gpu-carry are used first.
#   KVC_GPU_STEPS    which of "speed tests checkers" to run (default: all, in this order)
#   KVC_GPU_SPEED    more arguments of benchmarks/cuda/speed.py, such as "--only decode"
#   KVC_GPU_SECONDS  limit of the whole run (default 525): no step starts after it, and a running step is stopped
#   KVC_GPU_DEVICE   `emulated` for a dry run without a GPU: tests on the emulated backend, tiny shapes measured
#   PYTHON           the interpreter (default python3)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
carry=$root/build/gpu-carry

if [ "${1:-}" = --carry ]; then
  set_up full
  packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -rf "$carry" && mkdir -p "$carry/include/dlpack" "$carry/site"
  cp "$(dlpack_include_dir)/dlpack/dlpack.h" "$carry/include/dlpack/"
  cp "$(xxhash_include_dir)/xxhash.h" "$carry/include/"
  cp -r /usr/src/googletest "$carry/googletest"
  cp -r "$packages"/nanobind "$packages"/nanobind-*.dist-info "$carry/site/"
  if [ $# -ge 3 ]; then
    bash scripts/build_cuda.sh "$2"
    install_python_package
    PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python"
    PATH=$venv/bin:$PATH cmake --build --preset release --parallel "$jobs" --target kernels_test kvcache_cuda_emulated_plugin
    mkdir -p "$carry/built/site"
    echo "$2" > "$carry/built/arch"
    cp build/cuda/kernels/cuda/libkvcache_cuda.so build/release/tests/kernels/kernels_test "$carry/built/"
    cp build/release/tests/cuda/lib{cuda_emulation,kvcache_cuda_emulated_plugin}.so "$carry/built/"
    strip "$carry/built/kernels_test" "$carry"/built/lib*emulat*.so
    cp -r "$packages/kvcache" "$carry/built/site/"
    "$python" -m pip install --quiet --no-deps --only-binary=:all: --python-version "$3" --target "$carry/built/site" \
      "nanobind-backend==$("$python" -c 'import importlib.metadata as m; print(m.version("nanobind-backend"))')"
  fi
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
for place in "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda/bin; do # nvcc and compute-sanitizer
  case :$PATH: in *":$place:"*) ;; *) [ ! -d "$place" ] || PATH=$PATH:$place ;; esac
done
export PATH=$(dirname "$python"):$PATH                 # CMake and ninja may be packages of Python's
export PIP_RETRIES=0 PIP_DEFAULT_TIMEOUT=5             # there may be no network
export XLA_PYTHON_CLIENT_PREALLOCATE=false             # otherwise JAX takes most of the GPU's memory
export PYTHONUNBUFFERED=1

say() { echo "$*" | tee -a "$summary"; }
pack() { # packs the results so far, so that an interrupted run leaves them
  tar -C "$(dirname "$logs")" -czf "$report/logs.tar.gz" --exclude='*.so' "$(basename "$logs")" 2> /dev/null || true
}
step() { # NAME SECONDS COMMAND...: runs it until its limit or the deadline; its output goes to a log, its end is shown
  local name=$1 seconds=$2 begin=$SECONDS left=$((deadline - SECONDS)) state=0 lines
  shift 2
  if [ $left -lt 5 ]; then
    say "$name FAILED (left out: no time)"
    return
  fi
  timeout --kill-after 5 $((seconds < left ? seconds : left)) "$@" > "$logs/$name.txt" 2>&1 || state=$?
  if [ $state = 0 ]; then
    lines=$(grep -E '^[0-9]+ (passed|failed)|^[0-9]+ rows' "$logs/$name.txt" | tail -n 1 || true)
    say "$name ok, $((SECONDS - begin)) s${lines:+: $lines}"
    { grep -A 1 '^---- SKIPPED' "$logs/$name.txt" || true; } | sed 's/^/    /' | tee -a "$summary"
  else
    say "$name FAILED ($state$([ $state != 124 ] || echo ': ran into its limit')), $((SECONDS - begin)) s
$(tail -n 25 "$logs/$name.txt" | cut -c 1-300 | sed 's/^/    /')"
  fi
  pack
}
write_script() { cat > "$logs/$1.sh"; } # for steps of several commands: `timeout` takes a program
# Runs tests so that one that crashes does not stop the others; writes results as they come: NAME SECONDS EACH COMMAND...
tests_of() {
  local name=$1 seconds=$2 each=$3
  shift 3
  step "$name" "$seconds" "$python" scripts/run_isolated.py --results "$report/$name.jsonl" --log "$logs/$name-output.txt" \
    --each "$each" --seconds $((seconds - 8)) "$@"
}

# ---- What there is ----------------------------------------------------------------------------
if [ "$device" = cuda ]; then
  nvidia-smi > "$logs/nvidia-smi.txt" 2>&1 || say "nvidia-smi does not run"
  capability=$("$python" -c 'import torch; print("%d%d" % torch.cuda.get_device_capability())' 2> "$logs/torch.txt") ||
    capability=$({ nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null || true; } | head -n 1 | tr -d '. ')
  [[ $capability =~ ^[0-9]+$ ]] || { # build what is possible, to show whether it builds
    say "card FAILED (neither PyTorch nor nvidia-smi names one)"
    capability=90
  }
else
  capability=90
fi
case $capability in 90 | 100 | 103) arch=${capability}a-real ;; *) arch=$capability-real ;; esac
say "card: $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | head -n 1), $arch"
say "python: $("$python" -c 'import sys, torch; print(sys.version.split()[0], "torch", torch.__version__)' 2>&1 | tail -n 1)"
say "$jobs cores; $({ nvcc --version || true; } 2>&1 | grep release); $({ cmake --version || true; } 2>&1 | head -n 1); $("$CXX" --version | head -n 1)"

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
  if grep -qs DLPackExchangeAPI "$torch_header"; then # PyTorch has it under another name
    mkdir -p "$logs/include/dlpack" && cp "$torch_header" "$logs/include/dlpack/dlpack.h" && echo "$logs/include"
  fi
}
DLPACK_INCLUDE_DIR=$(dlpack)
export DLPACK_INCLUDE_DIR
[ ! -f "$carry/include/xxhash.h" ] || export XXHASH_INCLUDE_DIR=$carry/include # else the system's
say "dlpack.h: ${DLPACK_INCLUDE_DIR:-nowhere}"

# ---- Building: the plug-in beside the rest, unless all was brought ready ------------------------
built=$carry/built
if [ "$device" = cuda ] && [ "$(cat "$built/arch" 2> /dev/null)" = "$arch" ]; then
  say "programs: brought ready in $built"
  plugin=$built/libkvcache_cuda.so emulated=$built/libkvcache_cuda_emulated_plugin.so
  kernels_test=$built/kernels_test site=$built/site
  export LD_LIBRARY_PATH=$built${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  tree=$root/build/gpu
  plugin=$root/build/cuda/kernels/cuda/libkvcache_cuda.so
  emulated=$tree/libkvcache/tests/cuda/libkvcache_cuda_emulated_plugin.so
  kernels_test=$tree/libkvcache/tests/kernels/kernels_test site=$tree/site
  gtest=${GTEST_SOURCE:-$carry/googletest}
  programs=kernels_test
  [ "$device" = cuda ] || programs=kvcache_cuda_emulated_plugin # used by a dry run instead
  write_script build-rest << END
set -e
[ ! -d "$carry/site" ] || export PYTHONPATH="$carry/site"
configure() {
  cmake -S bindings/python -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVCACHE_PYTHON_LINKED=ON \\
    -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python" -DDLPACK_INCLUDE_DIR="$DLPACK_INCLUDE_DIR" "\$@"
}
configure -DKVCACHE_BUILD_TESTS=ON "-DKVCACHE_TEST_FOLDERS=cuda;kernels" $([ ! -d "$gtest" ] || echo "-DGTEST_SOURCE=$gtest") || {
  configure -DKVCACHE_BUILD_TESTS=OFF # for example without GoogleTest: build the package alone
  cmake --build "$tree" --parallel $jobs --target _kvcache kvcache_disk
  exit 1
}
cmake --build "$tree" --parallel $jobs --target _kvcache kvcache_disk $programs -- -k 0
END
  write_script build-package << END
set -e
cmake --build "$tree" --parallel $jobs --target _kvcache kvcache_disk # in case only the tests failed to build
cmake --install "$tree" --component python --prefix "$site"
cmake --install "$tree" --component python-sources --prefix "$site"
PYTHONPATH="$site" "$python" -c 'import kvcache; print(kvcache.__file__, kvcache.build_info())'
END
  if [ "$device" = cuda ]; then
    # A warning of a compiler that was never tried must not fail the run.
    step build-plugin 240 env KVC_CMAKE_OPTIONS=--compile-no-warning-as-error bash scripts/build_cuda.sh "$arch" &
  else
    plugin=$emulated
  fi
  step build-rest 500 bash "$logs/build-rest.sh"
  wait
  step build-package 240 bash "$logs/build-package.sh"
fi
export KVCACHE_CUDA_BACKEND=$plugin KVC_EMULATED_CUDA=$emulated PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
step opens 60 "$python" -c "import kvcache; found = kvcache.Context('cuda:0').describe(); print(found); \
assert found['simd'].startswith('sm_$capability')"
wanted() { [[ " ${KVC_GPU_STEPS:-speed tests checkers} " == *" $1 "* ]]; }

# ---- Speed: first, because nothing else may use the GPU meanwhile --------------------------------
if wanted speed; then
  read -ra more <<< "${KVC_GPU_SPEED:-}"
  if [ "$device" = cuda ]; then
    step speed 150 "$python" benchmarks/cuda/speed.py --out "$report" --seconds 125 "${more[@]}"
  else
    step speed 150 "$python" benchmarks/cuda/speed.py --out "$report" --dry "${more[@]}"
  fi
fi

# ---- Tests: at the same time, because a GPU serves several processes -----------------------------
if wanted tests; then
  tests_of pytest 170 60 pytest tests/gpu --device "$device" &
  # On memory that host and device share. Left out are tests that read CPU registers, that map memory themselves, and of
  # long sums (the GPU's are float32 within an item).
  if [ "$device" = cuda ]; then
    KVC_KERNEL_BACKEND=$plugin KVC_KERNEL_SAMPLING=2 tests_of numeric 120 40 "$kernels_test" \
      --gtest_filter=-Backend.*:Merge.*:Convert.*:Parts.*:DeviceMemory*:LongSums.* &
  fi
  if [ "$device" = cuda ] && [ "$capability" = 90 ]; then # the kernels that are selected by name only
    KVC_GPU_SIMD=sm_90_mma tests_of pytest-mma 110 60 pytest tests/gpu/test_numeric.py tests/gpu/test_spikes.py \
      tests/gpu/test_capture.py --device "$device" &
  fi
  step gemma 120 "$python" -m pytest -ra -q -p no:cacheprovider tests/gemma/test_model_torch.py -k random_weights &
fi

# ---- What a checker says, meanwhile --------------------------------------------------------------
if wanted checkers && [ "$device" = cuda ]; then
  if command -v compute-sanitizer > /dev/null; then
    # memcheck finds bad accesses where each array is its own allocation; racecheck finds races in shared memory.
    step memcheck 150 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 "$python" -m \
      pytest -q -x -p no:cacheprovider tests/gpu/test_memory.py tests/gpu/test_calls.py tests/gpu/test_numeric.py --device cuda \
      --share 0.02 --host-reference -k 'not beyond and not long_contexts' &
    # racecheck does not know barriers in shared memory, so it is for the kernels without warpgroups.
    for tool in racecheck synccheck; do
      kernels=()
      if [ $tool = racecheck ] && [ "$capability" = 90 ]; then kernels=(KVC_KERNEL_SIMD=sm_90_mma); fi
      step $tool 150 env KVC_KERNEL_BACKEND="$plugin" KVC_KERNEL_SAMPLING=67 "${kernels[@]}" \
        compute-sanitizer --tool $tool --error-exitcode 1 \
        "$kernels_test" --gtest_filter='Attend.HeadsAndDims:Append.*:Slots.*:Shared.*:Warpgroup.KeysOfOthersMayBeNaN' &
    done
  else
    say "memcheck FAILED (left out: no compute-sanitizer)"
  fi
fi
wait

[ ! -f "$report/speed.md" ] || cat "$report/speed.md"
failed=$(sed -n 's/^\([a-z-]*\) FAILED.*/\1/p' "$summary" | tr '\n' ' ')
say "report: $report; failed: ${failed:-nothing}; $SECONDS s"
pack
[ -z "$failed" ]
