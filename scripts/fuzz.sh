#!/usr/bin/env bash
# Fuzzes on all cores, beginning with the committed corpus and with what earlier runs on this machine found.
#   bash scripts/fuzz.sh saved             any target of fuzz/corpus
#   bash scripts/fuzz.sh api --hours 4     or --minutes N, or --seconds N; default: one minute
#   bash scripts/fuzz.sh api --minimise    makes fuzz/corpus/api the smallest set of inputs with the same coverage
#   build/fuzz/fuzz/fuzz_api FILE          runs one input; KVC_FUZZ_TRACE=1 prints its calls
# Inputs that fail go to build/fuzz-TARGET/crashes, and make the exit status 1. New inputs go to build/fuzz-TARGET/corpus.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up full cmake ninja clang++-19
target=${1:-}
committed=$root/fuzz/corpus/$target
work=$root/build/fuzz-$target
[ -n "$target" ] && [ -d "$committed" ] || { echo "fuzz.sh: targets are $(ls "$root/fuzz/corpus")" >&2 && exit 2; }
case ${2:-} in
  --hours) seconds=$(($3 * 3600)) ;;
  --minutes) seconds=$(($3 * 60)) ;;
  --seconds) seconds=$3 ;;
  --minimise | "") seconds=60 ;;
  *) echo "fuzz.sh: no option $2" >&2 && exit 2 ;;
esac

PATH=$venv/bin:$PATH cmake --preset fuzz -DPython3_EXECUTABLE="$python" > /dev/null
cmake --build --preset fuzz --parallel "$jobs" --target "fuzz_$target"
program=$root/build/fuzz/fuzz/fuzz_$target
mkdir -p "$work/corpus" "$work/crashes"
export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-19/bin/llvm-symbolizer
most=600 # bytes of an input
[ "$target" = api ] || most=4096
options=(-max_len=$most -timeout=60 -rss_limit_mb=4096 -malloc_limit_mb=1000000)

if [ "${2:-}" = --minimise ]; then
  rm -rf "$work/smallest"
  mkdir "$work/smallest"
  "$program" "${options[@]}" -artifact_prefix="$work/crashes/" -set_cover_merge=1 "$work/smallest" "$committed" "$work/corpus"
  for input in "$committed"/regression-*; do # each was a fault once: kept, whatever it covers
    [ ! -e "$input" ] || cp "$input" "$work/smallest"
  done
  rm -rf "$committed"
  mv "$work/smallest" "$committed"
  ls "$committed" | wc -l
  exit
fi
before=$(ls "$work/crashes" | wc -l)
"$program" "${options[@]}" -fork="$jobs" -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -max_total_time=$seconds \
  -artifact_prefix="$work/crashes/" -print_final_stats=1 "$work/corpus" "$committed" 2>&1 | tee "$work/log.txt" |
  grep -v '^#.*NEW' || true
grep '^#' "$work/log.txt" | tail -n 1 | sed 's/^#\([0-9]*\): cov: \([0-9]*\).*/\1 executions, \2 edges covered/'
found=$(($(ls "$work/crashes" | wc -l) - before))
echo "$found new failing inputs in $work/crashes"
[ $found = 0 ]
