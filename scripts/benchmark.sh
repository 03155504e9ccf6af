#!/usr/bin/env bash
# Builds the release preset, runs benchmarks, and prints each figure beside its target. Use a quiet machine.
#   benchmark.sh                      size of the library, cold start, hand-off to the thread pool, the manager
#   benchmark.sh plans [ARGS]         plans without a cache
#   benchmark.sh steps [ARGS]         begin and end of a graph's decode step, on the CPU and on the emulated GPU
#   benchmark.sh lists [ARGS]         lists of keys beside attention over all keys
#   benchmark.sh select [ARGS]        selection of keys beside a read of them
#   benchmark.sh keys [ROUNDS]        page keys beside SHA-256 of one large buffer
#   benchmark.sh store [ROUNDS]       the prefix index: match, a request's calls, eviction and memory, beside their lower bounds
#   benchmark.sh tier_events [ROUNDS] what events of tiers add to stores and lookups of a host tier
#   benchmark.sh disk [FOLDER]        the disk tier beside plain direct I/O, in a folder of the disk to measure
#   benchmark.sh pending [FOLDER]     how soon layers of a prefix are ready while tiers load it, in a folder of the disk to measure
#   benchmark.sh redis                the Redis tier beside redis-benchmark, on a server on loopback
#   benchmark.sh loads [ARGS]         loading a prefix from each tier beside computing it, with Gemma 3 270M
#   benchmark.sh attention [ARGS]     attention beside the limits of this machine; without ARGS also the installed peers
#   benchmark.sh versions COMMIT [ARGS]  attention beside that of another commit, which it builds in build/versions
#   benchmark.sh calls                what a call costs in C, Rust, Python, Go and Java
#   benchmark.sh peers [ARGS]         the same work by other projects, sample by sample in turn; installs them on demand
#   benchmark.sh peers --table --threads 1       the table of peers. With --budget 50 it runs in pieces: exit code 3 means
#                                     that the same call continues the run
#   benchmark.sh results [NAME...]    runs attention, keys, store, disk, redis, lists and select, or some of them, and writes what was
#                                     measured today as benchmarks/results/<cpu>-<date>.md, with plots
# ARGS: see benchmarks/attention/main.cc, benchmarks/versions.py, benchmarks/store/loads.py and benchmarks/peers/run.py.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [ "${1:-}" = calls ] || [ "${1:-}" = redis ] || [ "${1:-}" = results ]; then
  set_up full cmake ninja cargo go java mvn
else
  set_up test cmake ninja
fi
build=$root/build/release
today=$root/build/results/$(date +%F) # begin of the names of files with what was measured today
mkdir -p "${today%/*}"
export KVC_FIGURES=$today.jsonl

build() {
  PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" > /dev/null
  cmake --build --preset release --parallel "$jobs" --target "$@" > /dev/null
}

attention() {
  "$build/benchmarks/attention" --json "$today-attention.json" "$@"
  if [ $# = 0 ]; then # peers are compared over all cases only
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --installed --json "$today-peers.json"
  fi
}

results() {
  local name
  [ $# -gt 0 ] || set -- attention keys store disk redis lists select
  for name in "$@"; do
    echo "-- $name"
    bash scripts/benchmark.sh "$name"
  done
  "$python" benchmarks/write_results.py --attention "$today-attention.json" --peers "$today-peers.json" --figures "$KVC_FIGURES"
}

versions() {
  local old
  old=$root/build/versions/$(git rev-parse --short "$1")
  git worktree prune # of those whose folder was deleted
  [ -d "$old" ] || git worktree add --detach "$old" "$1" > /dev/null
  (cd "$old" && build attention)
  "$python" benchmarks/versions.py "$old/build/release/benchmarks/attention" "$build/benchmarks/attention" "${@:2}"
}

# Both with 8 connections. Best of five runs each.
redis() {
  local folder port=16379 bytes items theirs row name
  folder=$(mktemp -d)
  redis-server --port $port --bind 127.0.0.1 --save "" --dir "$folder" > /dev/null &
  trap "kill $!; rm -rf $folder" EXIT
  until redis-cli -p $port ping > /dev/null 2>&1; do sleep 0.05; done
  for bytes in 65536 262144 1048576; do
    items=$((2000000000 / bytes / 4))
    declare -A best=([SET]=0 [GET]=0)
    for _ in 1 2 3 4 5; do
      while IFS=, read -r name row _; do
        name=${name//\"/} row=${row//\"/}
        [[ -v best[$name] ]] && best[$name]=$(awk "BEGIN { x = $row * $bytes / 1e6; y = ${best[$name]}; printf \"%d\", (x > y ? x : y) }")
      done < <(redis-benchmark -p $port -t set,get -d "$bytes" -c 8 -n "$items" -r "$items" --csv)
    done
    redis-cli -p $port flushall > /dev/null
    "$build/benchmarks/redis" 127.0.0.1:$port "$bytes" "$items" "${best[SET]}" "${best[GET]}"
    redis-cli -p $port flushall > /dev/null
  done
}

manager() {
  local library=$build/src/libkvcache.so.0
  stripped=$(mktemp)
  trap 'rm -f "$stripped"' EXIT
  strip -o "$stripped" "$library"
  echo "stripped library: $(stat -c %s "$stripped") bytes (target below 3000000)"
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
  results)
    results "${@:2}"
    ;;
  versions)
    build attention
    versions "${@:2}"
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
  steps)
    build graph_step_benchmark kvcache_cuda_emulated_plugin
    export KVCACHE_CUDA_BACKEND=$build/tests/cuda/libkvcache_cuda_emulated_plugin.so
    "$build/benchmarks/graph_step_benchmark" "${@:2}"
    ;;
  lists)
    build lists
    "$build/benchmarks/lists" "${@:2}"
    ;;
  select)
    build select
    "$build/benchmarks/select" "${@:2}"
    ;;
  keys)
    build page_keys
    "$build/benchmarks/page_keys" "${@:2}"
    ;;
  store)
    build kvcache prefixes
    "$build/benchmarks/prefixes" "${@:2}"
    ;;
  tier_events)
    build kvcache tier_events
    "$build/benchmarks/tier_events" "${@:2}"
    ;;
  disk)
    build disk
    folder=${2:-$build/disk-benchmark}
    mkdir -p "$folder"
    "$build/benchmarks/disk" "$folder" "${@:3}"
    ;;
  pending)
    build kvcache pending
    folder=${2:-$build/pending-benchmark}
    mkdir -p "$folder"
    "$build/benchmarks/pending" "$folder" "${@:3}"
    ;;
  redis)
    PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" -DKVCACHE_REDIS=ON > /dev/null
    build redis
    redis
    ;;
  loads)
    PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" -DKVCACHE_REDIS=ON > /dev/null
    build kvcache_redis
    install_python_package > /dev/null
    export KVCACHE_REDIS_LIBRARY=$build/tiers/redis/libkvcache_redis.so
    "$python" benchmarks/store/loads.py "${@:2}"
    ;;
  peers)
    build kvcache attention
    "$python" benchmarks/peers/run.py "$build/benchmarks/attention" --json "$today-peers.json" "${@:2}"
    ;;
  *)
    build kvcache manager_benchmark handoff cold_start stateless
    manager "$@"
    ;;
esac
