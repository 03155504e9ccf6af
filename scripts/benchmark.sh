#!/usr/bin/env bash
# Builds the release preset and runs benchmarks; prints each figure beside its target. A quiet machine is needed.
#   benchmark.sh                      the library's size, cold start, hand-off to the thread pool, the manager
#   benchmark.sh plans [ARGS]         plans without a cache: medians beside their targets
#   benchmark.sh attention [ARGS]     attention beside this machine's limits; without ARGS it draws benchmarks/results/emerald-rapids-2026-11-22.svg,
#                                     and measures the peers that are installed too
#   benchmark.sh calls                what a call costs in C, Rust, Python, Go and Java
#   benchmark.sh peers [ARGS]         the same work by other projects, in turn with ours; installs them on demand
#   benchmark.sh peers --table --threads 1       the table of peers in benchmarks/results; with --budget 50 in pieces (exit code 3: call again)
# ARGS: see benchmarks/attention/main.cc and benchmarks/peers/run.py.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
bash scripts/setup.sh test
build=$root/build/release

build() {
  PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" > /dev/null
  cmake --build --preset release --parallel "$jobs" --target "$@" > /dev/null
}

attention() {
  local results=$build/attention.json
  "$build/benchmarks/attention" --json "$results" "$@"
  if [ $# = 0 ]; then # a part of the cases is no picture of them
    "$python" benchmarks/roofline.py "$results" benchmarks/results/emerald-rapids-2026-11-22.svg
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --installed --json "$build/peers.json"
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
  peers)
    build kvcache attention
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --json "$build/peers.json" "${@:2}"
    ;;
  *)
    build kvcache manager_benchmark handoff cold_start stateless
    manager "$@"
    ;;
esac
