#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over src, folder by folder as build/fuzz compiles it, because most of the time of a file is that
# of its headers. The CPU kernels are not clean yet: products of their tile indexes are 32 bits wide, and bounded by the tile.
# What passed is skipped until its text, a header that it includes, its flags, the checks or the version of clang-tidy change.
#   bash scripts/clang_tidy.sh            all of src that is not known to pass
#   bash scripts/clang_tidy.sh kernels    only files whose path begins so, one by one as build/release compiles them
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up full cmake ninja clang-tidy-19 clang++-19
tool=clang-tidy-19
compiler=clang++-19
passed=$root/build/clang-tidy
preset=$([ $# = 0 ] && echo fuzz || echo release)
commands=$root/build/$preset/compile_commands.json
mkdir -p "$passed"
PATH=$venv/bin:$PATH cmake --preset "$preset" -DPython3_EXECUTABLE="$python" > /dev/null # writes the joined files too

list_files() { # FILE<tab>OPTIONS of every file of the library
  "$python" - "$commands" "$root" "${1:-}" <<'END'
import json, shlex, sys
commands, root, only = sys.argv[1:]
for entry in sorted(json.load(open(commands)), key=lambda entry: entry["file"]):
    file = entry["file"].removeprefix(root + "/")
    ours = "/kvcache_core.dir/" in entry["command"] or only and "/kvcache_cpu_kernels.dir/" in entry["command"]
    if ours and file.startswith(only):
        words = shlex.split(entry["command"])[1:]
        options = [word for word in words if word.startswith(("-I", "-D", "-m", "-std", "-f"))]
        print(file + "\t" + shlex.join(options))
END
}
check() { # FILE<tab>OPTIONS
  local file=${1%%$'\t'*} options=${1#*$'\t'} words key
  eval "words=($options)"
  key=$({ $tool --version; cat .clang-tidy "$file"; echo "$options"; $compiler -w -E "${words[@]}" "$file"; } 2>&1 |
    sha256sum | cut -d ' ' -f 1)
  if [ -e "$passed/$key" ]; then
    echo "unchanged: $file"
    return
  fi
  echo "checking:  $file"
  $tool --quiet "$file" -- -w "${words[@]}" 2> /dev/null && touch "$passed/$key"
}
export -f check
export passed tool compiler
status=0
list_files "$@" | xargs -d '\n' -P "$jobs" -I {} bash -c 'check "$1"' check {} | tee "$passed/last.txt" || status=1
echo "$(grep -c ^checking: "$passed/last.txt" || true) files checked, $(grep -c ^unchanged: "$passed/last.txt" || true) unchanged"
exit $status
