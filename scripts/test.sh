#!/usr/bin/env bash
# Sets up and runs the tests. Prints one line for each part, with its time.
#   bash scripts/test.sh            quick: under 15 minutes after set-up on 2 cores
#   bash scripts/test.sh --full     also clang, fuzzing, sanitizers, coverage, aarch64, packages and Windows
#   bash scripts/test.sh [--full] PART ...    only these parts (and the set-up)
#   bash scripts/test.sh rust-candle          a part that runs only by its name: it compiles candle
#   bash scripts/test.sh vllm                 runs only by its name too: it installs vLLM (2 GB)
#   bash scripts/test.sh torch-operators      likewise: PyTorch compiles and exports graphs with the operators of integrations/torch
#   bash scripts/test.sh torch-oldest         likewise: as torch-operators, and once more with PyTorch 2.10, which it installs
#   bash scripts/test.sh lmcache sglang       likewise: they install LMCache (200 MB) and SGLang (900 MB)
#   bash scripts/test.sh rust-miri            runs only by its name too: it needs the nightly toolchain
#   bash scripts/test.sh transformers-census  likewise: small models of every architecture; it writes a page of the documents
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
level=test
if [ "${1:-}" = --full ]; then
  level=full
  shift
fi
only=("$@")
logs=$root/build/logs

# part NAME COMMAND...: runs it. Its output goes to a file that is shown if it fails. Tests write $junit, and NAME=ok or
# NAME=FAILED is added to $logs/ran.
part() {
  local name=$1 begin end cpu status state=ok shell=$BASHPID # in $(...), BASHPID is another process
  shift
  if [ ${#only[@]} -gt 0 ] && [[ " setup ${only[*]} " != *" $name "* ]]; then
    return
  fi
  junit=$logs/$name.xml
  rm -f "$junit"
  begin=$(date +%s.%N)
  cpu=$(cpu_seconds "$shell")
  set +e # not as a condition, because bash would then continue after errors inside
  until_deadline "$@" > "$logs/$name.log" 2>&1
  status=$?
  set -e
  [ $status = 0 ] || state=FAILED
  if [ $status = 124 ]; then
    echo "stopped, because the whole run took $KVC_TEST_DEADLINE minutes" >> "$logs/$name.log"
    if [ -n "$may_stop" ]; then
      echo "stopped after $KVC_TEST_DEADLINE minutes: $name" | tee -a "$logs/left-out"
      return
    fi
  fi
  end=$(date +%s.%N)
  cpu=$(($(cpu_seconds "$shell") - cpu))
  {
    flock 9 # so that lines of the two chains do not mix
    echo "$name=$state" >> "$logs/ran"
    if command -v python3 > /dev/null; then
      python3 scripts/report.py part "$name" "$state" "$begin" "$end" "$cpu" "$junit"
    else
      echo "$name $state" # the set-up could not install Python
    fi
    if [ $state = FAILED ]; then
      echo "---- output of $name ----"
      grep -vE '^ *Start +[0-9]+: |Passed +[0-9.]+ sec$' "$logs/$name.log" | tail -n 300 # without ctest's lines of passed tests
      echo "---- end of $name ----"
    fi
  } 9> "$logs/lock"
}

# cpu_seconds PROCESS: the CPU time of its children that have ended.
cpu_seconds() { awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d", ($16 + $17) / ticks }' "/proc/$1/stat"; }

# until_deadline COMMAND...: runs it with `set -e`. With KVC_TEST_DEADLINE, it is stopped after that many minutes of the whole
# run, and the result is 124.
until_deadline() {
  local left=$((${KVC_TEST_DEADLINE:-0} * 60 - SECONDS)) command watch status
  if [ -z "${KVC_TEST_DEADLINE:-}" ]; then
    ( set -e; "$@" )
    return
  fi
  set -m # process groups of their own, which can be stopped whole
  ( set -e; "$@" ) < /dev/null &
  command=$!
  ( sleep $((left > 1 ? left : 1)); kill -KILL -- -$command ) &
  watch=$!
  disown $watch # bash writes nothing when it is stopped
  set +m
  wait $command
  status=$?
  kill -KILL -- -$watch 2> /dev/null
  [ $status != 137 ] || [ $SECONDS -lt $((KVC_TEST_DEADLINE * 60)) ] || status=124
  return $status
}

# in_time PART ...: whether these parts of --full may still start. After KVC_TEST_MINUTES a run of all parts starts no more
# of them, and at KVC_TEST_DEADLINE it stops the one that runs. The parts that are left out or stopped are listed, and count
# neither as passed nor as failed.
may_stop=
in_time() {
  may_stop=yes
  local minutes=$((SECONDS / 60))
  if [ ${#only[@]} -gt 0 ] || [ "$minutes" -lt "${KVC_TEST_MINUTES:-$((minutes + 1))}" ]; then
    return 0
  fi
  echo "left out after $minutes of $KVC_TEST_MINUTES minutes: $*" | tee -a "$logs/left-out"
  return 1
}
late_part() { ! in_time "$1" || part "$@"; }

# beside CHAIN CHAIN: runs two functions at once, because their parts leave a core idle for much of the time.
beside() {
  "$1" &
  "$2"
  wait $!
}

# The thread sanitizer of gcc 12 fails where the kernel randomises addresses widely, so randomisation is disabled.
without_aslr() {
  if setarch "$(uname -m)" --addr-no-randomize true 2> /dev/null; then
    setarch "$(uname -m)" --addr-no-randomize "$@"
  else
    "$@"
  fi
}
configure_and_build() { # PRESET [cmake option ...]
  local preset=$1
  shift
  PATH=$venv/bin:$PATH cmake --preset "$preset" -DPython3_EXECUTABLE="$python" "$@"
  without_aslr cmake --build --preset "$preset" --parallel "$jobs" # the build runs the test programs to list their tests
}
run_ctest() { without_aslr ctest --preset "$1" --parallel "$jobs" --output-junit "$junit" "${@:2}"; }
run_pytest() { "$python" -m pytest -ra -q -p no:cacheprovider --junitxml="$junit" "$@"; }
# What others send, or what lies on a disk.
fuzz_bytes() {
  local target
  for target in tier saved description; do
    bash scripts/fuzz.sh $target --seconds 30
  done
}
# Checks the types of the package's code, and the stubs against the module that was built.
typing() {
  export MYPY_CACHE_DIR=$root/build/mypy
  "$python" -m mypy --config-file bindings/python/mypy.ini bindings/python/kvcache
  cd tests/python # no folder there has the package's name
  "$python" -m mypy.stubtest kvcache --mypy-config-file "$root/bindings/python/mypy.ini" --concise \
    --ignore-disjoint-bases --allowlist stubtest_allowed.txt
}
coverage_report() {
  local all=build/coverage/all.info own=build/coverage/own.info
  lcov --capture --directory build/coverage --output-file $all --quiet
  lcov --extract $all "$root/src/*" "$root/kernels/*" --output-file $own --quiet
  lcov --list $own
}
# In the environment on top of .venv that has PyTorch.
transformers_tests() {
  install_python_package
  bash scripts/setup_transformers.sh
  OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 python=$root/.venv-transformers/bin/python run_pytest tests/transformers \
    tests/compat tests/python/test_torch.py tests/gemma/test_model_torch.py
  OMP_NUM_THREADS=1 "$root/.venv-transformers/bin/python" benchmarks/cuda/speed.py --dry --out build/logs
}
transformers_census() {
  install_python_package
  bash scripts/setup_transformers.sh
  OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$root/.venv-transformers/bin/python" tests/transformers/census.py
}
# Compiles the CUDA backend for one architecture. No kernel may use local memory, and the plug-in must report what a machine
# lacks. (The part `unit` runs its kernels on an emulation.)
cuda() { # ARCH FOLDER
  local toolkit built=$logs/$2-build.txt
  DLPACK_INCLUDE_DIR=$("$venv/bin/tvm-ffi-config" --dlpack-includedir) KVC_CUDA_BUILD=$2 bash scripts/build_cuda.sh "$1" \
    | tee "$built"
  toolkit=$(sed -n 's/^toolkit: //p' "$built")
  export KVCACHE_CUDA_BACKEND=$root/build/$2/kernels/cuda/libkvcache_cuda.so
  test -z "$(grep -i warning "$built" | tee /dev/stderr)"
  test "$(nm --dynamic --defined-only "$KVCACHE_CUDA_BACKEND" | cut -d ' ' -f 3)" = kvc_backend_get
  python3 scripts/ptxas_report.py "$KVCACHE_CUDA_BACKEND" --cuobjdump "$toolkit/bin/cuobjdump"
  if [ -e /dev/nvidiactl ]; then
    build/release/tests/cuda/load_plugin 0 '"device": "cuda"'
  else
    build/release/tests/cuda/load_plugin 300 'no CUDA driver'
  fi
}
# Tests the Go package without and with cgo, with the race detector (which needs cgo), and with cgo's own checks.
go_package() {
  export KVCACHE_LIBRARY=$root/build/release/src/libkvcache.so
  local results=$root/build/logs/go checked
  rm -rf "$results" && mkdir -p "$results"
  cd bindings/go
  test -z "$(gofmt -l . ../../examples/gemma/go ../../examples/guide/go | tee /dev/stderr)"
  CGO_ENABLED=0 go vet ./... && CGO_ENABLED=1 go vet -tags kvcache_cgo .
  go_checked & # at the same time as the others
  checked=$!
  go_test runner CGO_ENABLED=0 ./conformance
  go_test purego CGO_ENABLED=0 .
  go_test cgo CGO_ENABLED=1 -tags kvcache_cgo .
  wait $checked
  "$python" "$root/scripts/go_junit.py" "$junit" "$results"/*.json
}
go_checked() { # both checks together, because each needs its own build of the standard library
  export GOEXPERIMENT=cgocheck2
  go_test purego-race CGO_ENABLED=1 -race -short .
  go_test cgo-race CGO_ENABLED=1 -race -short -tags kvcache_cgo .
}
go_test() { # NAME CGO_ENABLED=0|1 [option ...] PACKAGE
  echo "== $1"
  env "$2" go test -count=1 -timeout 300s -json "${@:3}" > "$results/$1.json" || true # go_junit.py reports failures
}

# Builds the Java package with the release build's library in its jar, runs its tests under -Xcheck:jni, and measures a call.
# Maven's output lacks the warnings of the JVM, because surefire writes them to dump files.
java_package() {
  export KVCACHE_LIBRARY=$root/build/release/src/libkvcache.so
  local reports=$root/build/java/surefire-reports
  cd bindings/java
  rm -rf "$reports" "$root"/build/java/*.jar
  mvn -q -B -ntp package || true # report.py reports failures
  "$python" "$root/scripts/report.py" junit "$junit" "$reports"/TEST-*.xml
  if ls "$reports"/*.dump* 2> /dev/null; then
    cat "$reports"/*.dump*
    return 1
  fi
  ls -l "$root"/build/java/kvcache-*.jar
  mvn -q -B exec:exec@overhead
}

# Tests the crates in bindings/rust with the release build's library.
rust_environment() {
  export KVCACHE_LIB_DIR=$root/build/release/src CARGO_TARGET_DIR=$root/build/rust
}
in_rust() { # collects the tests of a part into its JUnit file
  rust_environment
  cd bindings/rust
  : > "$logs/cargo.txt"
  trap '"$python" ../../scripts/report.py cargo "$logs/cargo.txt" "$junit"' EXIT
}
run_cargo_test() { cargo test --locked --no-fail-fast "$@" 2>&1 | tee -a "$logs/cargo.txt"; }
rust() {
  in_rust
  cargo fmt --check
  cargo fmt --check --manifest-path ../../examples/gemma/rust/Cargo.toml
  cargo fmt --check --manifest-path ../../examples/guide/rust/Cargo.toml
  cargo clippy --locked --all-targets --no-deps -- -D warnings
  cargo clippy --locked --no-deps --features dynamic -- -D warnings
  run_cargo_test
  run_cargo_test --package kvcache --features dynamic --test dynamic --test system --test borrows
  run_cargo_test --package kvcache-sys --features buildtime-bindgen # after scripts/generate_rust.sh
  env -u KVCACHE_LIB_DIR DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
  cargo bench --locked --bench overhead
}
rust_candle() {
  in_rust
  cargo clippy --locked --no-deps --package kvcache --features candle --tests -- -D warnings
  run_cargo_test --package kvcache --features candle --test candle
  cd ../../integrations/candle
  cargo fmt --check
  cargo clippy --locked --no-deps --all-targets -- -D warnings
  run_cargo_test
}
rust_asan() { # with the library of the sanitizer build, which checks invariants after every call
  local host
  in_rust
  host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
  export "CARGO_TARGET_${host}_RUNNER=env KVCACHE_LIBRARY=$root/build/asan/src/libkvcache.so \
    LD_PRELOAD=$($CXX -print-file-name=libasan.so):$($CXX -print-file-name=libstdc++.so)"
  run_cargo_test --package kvcache --features dynamic --test system
}
# Runs the demo with the decoders of every language, for few tokens. All must print the same.
engines() {
  rust_environment
  install_python_package
  bash scripts/engines.sh 12 --tier "$root/build/logs/engines/tiers"
}

# The programs of the guide, in every language. All must print the same lines.
guide() {
  rust_environment
  install_python_package
  run_pytest tests/guide
}

# Compiles the core with clang, which checks the annotations of base/mutex.h. A file with an unlocked access must be refused.
thread_safety() {
  PATH=$venv/bin:$PATH cmake --preset fuzz -DPython3_EXECUTABLE="$python"
  cmake --build --preset fuzz --parallel "$jobs" --target kvcache_core
  ! clang++-19 -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -Isrc tests/base/unlocked.cc
}

# Builds all packages from the release build, then a program from each package alone. The crate builds the library again,
# as it does for a user without a library.
packages() {
  install_python_package # this comes first, because it builds in the folder of the wheel
  bash scripts/package.sh
  bash scripts/consume_packages.sh
}

# The Go module and the jar once more, now with the library of the build for aarch64. Their programs run under qemu too.
aarch64_packages() {
  bash scripts/package.sh tarball go jar
  bash scripts/consume_packages.sh go jar
}

# Checks in a folder with only the sources that every script sets up what it needs. This runs the real scripts/setup.sh; in the
# quick tests, tests/python replaces it.
fresh_clone() { KVC_FRESH_SET_UP=real run_pytest tests/python/test_scripts.py; }

# The Redis tier against real servers on loopback, and the UCX transport between two processes, in C and in Python.
redis_tests() {
  install_python_package
  run_ctest release --label-regex '^(redis|ucx)$'
}

# The NIXL transport between two processes, in C++, C and Python. The tests that need NIXL are skipped if its wheel cannot be installed.
nixl_tests() {
  install_python_package
  KVCACHE_NIXL_CAPI=$(bash scripts/setup_nixl.sh) || unset KVCACHE_NIXL_CAPI
  [ -z "${KVCACHE_NIXL_CAPI:-}" ] || export KVCACHE_NIXL_CAPI
  run_ctest release --label-regex '^nixl$'
}

# Builds the site of the documentation if a source changed, and follows its links.
docs() {
  install_python_package
  run_pytest tests/docs
}

# Replays the scripts of bindings/conformance in every language.
conformance() {
  rust_environment
  "$python" bindings/conformance/run.py --runner c --runner python --runner rust --runner go --runner java \
    --library build/release/src/libkvcache.so --transport build/release/transports/ucx/libkvcache_ucx.so --random 60 --junit "$junit"
}

# Two chains for `beside`: tests that use one core for most of the time.
emulated_gpu() { # on the CPU, and part of it on the emulated CUDA device. scripts/gpu_check.sh runs all of it on a GPU
  KVC_EMULATED_CUDA=$root/build/release/tests/cuda/libkvcache_cuda_emulated_plugin.so part python-gpu run_pytest tests/gpu
}
python_tests() {
  part python run_pytest tests/python --ignore=tests/python/test_torch.py --ignore=tests/python/test_jax.py
  part gemma run_pytest tests/gemma --ignore=tests/gemma/test_model_torch.py
  [ $level = full ] || part guide run_pytest tests/guide -k "in_python or in_c" # the others need their compilers
}
# Two more. They write to different folders.
other_languages() { # build/java and build/rust
  late_part go go_package
  late_part rust rust
  late_part java java_package
  late_part conformance conformance
  late_part engines engines
  late_part guide guide
  late_part packages packages
  late_part fresh-clone fresh_clone
}
torch_and_cuda() { # build/cuda and .venv-transformers
  late_part cuda cuda 90a-real cuda
  late_part typing typing
  late_part python-jax run_pytest tests/python/test_jax.py
  late_part transformers transformers_tests
}

# The last groups of --full. Where time is short, only the first ones run. So the hash of the commit chooses which group is the
# first, and each group is the first at some commits. Windows takes half an hour, so it comes after all of them.
last_groups=(with_clang fuzzing asan tsan aarch64 cuda_80 coverage published)
with_clang() {
  late_part thread-safety thread_safety
  late_part clang-tidy bash scripts/clang_tidy.sh
}
fuzzing() {
  late_part fuzz bash scripts/fuzz.sh api --minutes 1
  late_part fuzz-bytes fuzz_bytes
}
asan() {
  in_time build-asan asan rust-asan || return 0
  part build-asan configure_and_build asan -DKVCACHE_REDIS=ON
  part asan run_ctest asan
  part rust-asan rust_asan
}
tsan() {
  in_time build-tsan tsan || return 0
  part build-tsan configure_and_build tsan -DKVCACHE_REDIS=ON
  part tsan run_ctest tsan
}
aarch64() { # emulation runs about 0.1 G multiply-adds a second, so the preset takes every fifth case of the numeric grids
  in_time build-aarch64 aarch64 aarch64-kernels aarch64-packages || return 0
  part build-aarch64 configure_and_build aarch64
  part aarch64 run_ctest aarch64 --label-exclude '^kernels$'
  part aarch64-kernels run_ctest aarch64 --label-regex '^kernels$'
  part aarch64-packages aarch64_packages
}
cuda_80() { late_part cuda-80 cuda 80-real cuda-80; }
coverage() {
  in_time build-coverage coverage coverage-report || return 0
  part build-coverage configure_and_build coverage -DCMAKE_COMPILE_WARNING_AS_ERROR="$strict"
  # The preset leaves out two folders that take long and reach few lines that the others miss.
  part coverage run_ctest coverage
  part coverage-report coverage_report
  ! grep -q '^coverage-report=ok' "$logs/ran" ||
    sed -n 's/ *Total:|/    lines and functions that these ran: /p' "$logs/coverage-report.log"
}
published() { # what others read and install: the site of the documentation, and the recipes for package managers
  late_part docs docs
  late_part recipes bash scripts/try_recipes.sh --junitxml="$logs/recipes.xml"
}
run_last_groups() {
  local count=${#last_groups[@]} hash first i
  hash=$(git rev-parse HEAD 2> /dev/null || echo 0)
  first=$((0x${hash:0:4} % count))
  for ((i = 0; i < count; i++)); do
    "${last_groups[(first + i) % count]}"
  done
  late_part windows bash scripts/windows.sh --junitxml="$logs/windows.xml"
}

mkdir -p "$logs"
rm -f "$logs/ran" "$logs/left-out"
part setup bash scripts/setup.sh "$level"
export KVC_SET_UP=$level # the scripts that parts run need not do it again
if grep -q setup=FAILED "$logs/ran"; then # its output lists what is missing
  echo "0 passed, 1 failed"
  exit 1
fi

strict=$([ $level = full ] && echo ON || echo OFF) # warnings are errors here, but not for users, whose compilers may have more of them
part build-release configure_and_build release -DCMAKE_COMPILE_WARNING_AS_ERROR="$strict" -DKVCACHE_REDIS="$strict" -DKVCACHE_UCX="$strict" -DKVCACHE_NIXL="$strict"
part tidy run_ctest release --label-regex tidy
part abi run_ctest release --label-regex abi
head -n 40 build/release/abi-report.txt 2> /dev/null | sed -n '/^$/q; s/^/    /p' || true
part unit run_ctest release --label-exclude 'tidy|abi|consumer|redis|ucx|nixl'
part consumer run_ctest release --label-regex consumer
part build-python install_python_package
beside emulated_gpu python_tests
if [ $level = full ]; then
  late_part redis redis_tests
  late_part nixl nixl_tests
  late_part onnxruntime env KVC_STRICT=$strict bash integrations/onnxruntime/test.sh --junitxml="$logs/onnxruntime.xml"
  late_part browser run_pytest tests/browser
  late_part subdirectory run_ctest release --build-config Packages --tests-regex '^consumer.subdirectory$'
  beside torch_and_cuda other_languages
  run_last_groups
fi
if [[ " ${only[*]} " == *" rust-candle "* ]]; then
  part rust-candle rust_candle
fi
if [[ " ${only[*]} " == *" vllm "* ]]; then
  part vllm bash integrations/vllm/test.sh --junitxml="$logs/vllm.xml"
fi
if [[ " ${only[*]} " == *" torch-operators "* ]]; then
  part torch-operators bash integrations/torch/test.sh --junitxml="$logs/torch-operators.xml"
fi
if [[ " ${only[*]} " == *" torch-oldest "* ]]; then
  part torch-oldest bash integrations/torch/test.sh --oldest --junitxml="$logs/torch-oldest.xml"
fi
for name in lmcache sglang; do
  if [[ " ${only[*]} " == *" $name "* ]]; then
    part $name bash integrations/$name/test.sh --junitxml="$logs/$name.xml"
  fi
done
if [[ " ${only[*]} " == *" transformers-census "* ]]; then
  part transformers-census transformers_census
fi
if [[ " ${only[*]} " == *" rust-miri "* ]]; then
  part rust-miri bash scripts/miri.sh
fi
for name in "${only[@]}"; do
  if ! grep -q "^$name=" "$logs/ran"; then
    echo "no part has the name $name$([ $level = full ] || echo ' (some belong to --full)')"
    echo "$name=FAILED" >> "$logs/ran"
  fi
done
mapfile -t ran < "$logs/ran"
cat "$logs/left-out" 2> /dev/null || true
python3 scripts/report.py summary "$logs" "${ran[@]}"
