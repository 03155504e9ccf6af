#!/usr/bin/env bash
# Builds the release preset, runs benchmarks, and prints each figure beside its target. Use a quiet machine.
#   benchmark.sh                      size of the library, cold start, hand-off to the thread pool, the manager
#   benchmark.sh plans [ARGS]         plans without a cache
#   benchmark.sh lists [ARGS]         lists of keys beside attention over all keys
#   benchmark.sh keys [ROUNDS]        page keys beside SHA-256 of one large buffer
#   benchmark.sh store [ROUNDS]       the prefix index: match, a request's calls, eviction and memory, beside their lower bounds
#   benchmark.sh disk [FOLDER]        the disk tier beside plain direct I/O, in a folder of the disk to measure
#   benchmark.sh attention [ARGS]     attention beside the limits of this machine; without ARGS also the installed peers
#   benchmark.sh attention --results  the same, and writes benchmarks/results/<cpu>-<date>.md with its roofline plot
#   benchmark.sh calls                what a call costs in C, Rust, Python, Go and Java
#   benchmark.sh peers [ARGS]         the same work by other projects, sample by sample in turn; installs them on demand
#   benchmark.sh peers --table --threads 1       the table of peers. With --budget 50 it runs in pieces: exit code 3 means
#                                     that the same call continues the run
# ARGS: see benchmarks/attention/main.cc and benchmarks/peers/run.py.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [ "${1:-}" = calls ]; then
  set_up full cmake ninja cargo go java mvn
else
  set_up test cmake ninja
fi
build=$root/build/release

build() {
  PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" > /dev/null
  cmake --build --preset release --parallel "$jobs" --target "$@" > /dev/null
}

attention() {
  local results=$build/attention.json write=
  if [ "${1:-}" = --results ]; then
    write=yes
    shift
  fi
  "$build/benchmarks/attention" --json "$results" "$@"
  if [ $# = 0 ]; then # peers are compared over all cases only
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --installed --json "$build/peers.json"
  fi
  if [ -n "$write" ]; then
    "$python" benchmarks/write_results.py "$results" --peers "$build/peers.json"
  fi
}

manager() {
  local library=$build/src/libkvcache.so.0
  stripped=$(mktemp)
  trap 'rm -f "$stripped"' EXIT
  strip -o "$stripped" "$library"
  echo "stripped library: $(stat -c %s "$stripped") bytes (target below 3145728)"
  "$build/benchmarks/cold_start" "$library"
  "$build/benchmarks/handoff"
  "$build/benchmarks/stateless"
  "$build/benchmarks/manager_benchmark" "$@"
}

case ${1:-} in
  attention)
    build kvcache attention handoff
    "$build/benchmarks/handoff"
    attention "${@:2}"
    ;;
  calls)
    build kvcache calls
    install_python_package > /dev/null
    "$python" benchmarks/calls/run.py "$build/benchmarks/calls" "$build/src/libkvcache.so"
    ;;
  plans)
    build plans_benchmark
    "$build/benchmarks/plans_benchmark" "${@:2}"
    ;;
  lists)
    build lists
    "$build/benchmarks/lists" "${@:2}"
    ;;
  keys)
    build page_keys
    "$build/benchmarks/page_keys" "${@:2}"
    ;;
  store)
    build kvcache prefixes
    "$build/benchmarks/prefixes" "${@:2}"
    ;;
  disk)
    build disk
    folder=${2:-$build/disk-benchmark}
    mkdir -p "$folder"
    "$build/benchmarks/disk" "$folder" "${@:3}"
    ;;
  peers)
    build kvcache attention
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --json "$build/peers.json" "${@:2}"
    ;;
  *)
    build kvcache manager_benchmark handoff cold_start stateless
    manager "$@"
    ;;
esac
