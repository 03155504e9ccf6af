#!/usr/bin/env bash
# Builds the library for Windows x86-64 with mingw-w64, into build/windows, and tests it under Wine:
#   - the programs of the tests, without the tests in `left_out`
#   - sizes and offsets of all structs, which must be those on Linux
#   - the programs of the guide in C
#   - the zip package: a program is compiled and linked with what the package has
# It installs mingw-w64 and Wine from Debian if they are missing.
#   windows.sh [PROGRAM ...]     only these programs of tests, such as page_test (and the build)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up test cmake ninja
build=${KVCACHE_WINDOWS_BUILD:-$root/build/windows}
compiler=x86_64-w64-mingw32-gcc-posix
if ! command -v $compiler > /dev/null || ! command -v wine > /dev/null || [ ! -e /usr/src/googletest ]; then
  apt-get install -y -qq --no-install-recommends g++-mingw-w64-x86-64-posix wine wine64 googletest
fi
mkdir -p "$build"
export WINEPREFIX=$build/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree=;mshtml=" # without Mono and a browser
windows_path() { echo "Z:${1//\//\\}"; }
WINEPATH=$(windows_path "$build/src") # where Windows looks for DLLs
export WINEPATH

# Tests that are left out. Files of tests that need fork(), signals, links or /proc are not compiled: see "if(WIN32)" and
# "if(NOT WIN32)" in tests/*/CMakeLists.txt.
declare -A left_out=(
  [api_test]="HostTierOfACache.ADamagedObjectIsAMiss" # reads /proc
)
programs=(base_test page_test keys_test plan_test rope_test sequence_test system_test context_test tables_test kernels_test
  save_test tier_test api_test)

test_program() {
  local program=$1 file
  file=$(find "$build/tests" -name "$program.exe")
  echo "== $program"
  ( cd "$(dirname "$file")"
    timeout 1800 wine "$file" --gtest_brief=1 --gtest_filter="-${left_out[$program]:-}" ) | tr -d '\r' | tail -n 40
}

layout() {
  echo "== layout"
  "$python" tests/abi/layout_test.py --dlpack "$(dlpack_include_dir)" --c $compiler --run wine
}

guide() { # HEADERS LIBRARIES
  local output program
  for output in examples/guide/output/*.txt; do
    program=$(basename "$output" .txt)
    echo "== examples/guide/c/$program.c"
    $compiler -std=c11 -O1 -Wall -Wextra -Werror -Wno-format -I "$1" -I "$(dlpack_include_dir)" \
      "examples/guide/c/$program.c" examples/guide/c/model.c -o "$build/$program.exe" -L "$2" -lkvcache
    wine "$build/$program.exe" | tr -d '\r' | diff - "$output"
  done
}

package() {
  bash scripts/package.sh windows
  local stage
  stage=$(mktemp -d)
  "$python" -m zipfile -e build/packages/kvcache-*-windows-x86_64.zip "$stage"
  WINEPATH=$(windows_path "$(echo "$stage"/*/bin)") guide "$(echo "$stage"/*/include)" "$(echo "$stage"/*/lib)"
  rm -rf "$stage"
}

[ -f "$build/CMakeCache.txt" ] || PATH=$venv/bin:$PATH cmake --preset windows -B "$build" -DPython3_EXECUTABLE="$python"
if [ $# -gt 0 ]; then
  cmake --build "$build" --parallel "$jobs" --target kvcache "$@"
  for program in "$@"; do test_program "$program"; done
  exit 0
fi
cmake --build "$build" --parallel "$jobs" --target kvcache "${programs[@]}"
for program in "${programs[@]}"; do test_program "$program"; done
ctest --test-dir "$build" -R '^kernels.moves$' --output-on-failure
layout
guide include "$build/src"
package
