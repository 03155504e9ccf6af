#!/usr/bin/env bash
# Builds the library for Windows x86-64 with mingw-w64, into build/windows, and tests it under Wine:
#   - the programs of the tests. Files that need fork(), signals, links or /proc are not compiled ("if(NOT WIN32)" in
#     tests/*/CMakeLists.txt)
#   - sizes and offsets of all structs, which must be those on Linux
#   - the programs of the guide in C, with the DLL of the build and with that of the zip package
# It installs mingw-w64 and Wine from Debian if they are missing.
#   windows.sh [--junitxml=FILE] [PROGRAM ...]     with programs of tests, such as page_test, it builds and runs only these
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up windows cmake ninja wine
build=${KVCACHE_WINDOWS_BUILD:-$root/build/windows}
compiler=x86_64-w64-mingw32-gcc-posix
export KVCACHE_WINDOWS_BUILD=$build WINEPREFIX=$build/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree=;mshtml=" # no Mono, no browser
windows_path() { echo "Z:${1//\//\\}"; }
WINEPATH=$(windows_path "$build/src") # where Windows looks for DLLs
export WINEPATH
junit=
case ${1:-} in --junitxml=*) junit=${1#*=} && shift ;; esac
programs=("$@")
[ $# -gt 0 ] || programs=(base_test page_test keys_test plan_test rope_test sequence_test system_test context_test tables_test
  kernels_test save_test tier_test api_test)
results=()

test_program() {
  local file
  file=$(find "$build/tests" -name "$1.exe")
  results+=("$build/$1.xml")
  rm -f "$build/$1.xml"
  echo "== $1" # with every fifth case of large grids
  ( cd "$(dirname "$file")"
    KVC_KERNEL_SAMPLING=5 timeout 1800 wine "$file" --gtest_brief=1 --gtest_output="xml:$(windows_path "$build/$1.xml")" ) | tr -d '\r' | tail -n 40
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
cmake --build "$build" --parallel "$jobs" --target kvcache "${programs[@]}"
status=0
for program in "${programs[@]}"; do test_program "$program" || status=1; done
[ -z "$junit" ] || "$python" scripts/report.py junit "$junit" "${results[@]}" || status=1
if [ $# -eq 0 ]; then
  ctest --test-dir "$build" -R '^kernels.moves$' --output-on-failure
  layout
  guide include "$build/src"
  package
fi
exit $status
