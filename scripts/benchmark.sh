#!/usr/bin/env bash
# Builds the release preset and runs every benchmark; prints each figure beside its target. A quiet machine is needed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
bash scripts/setup.sh test
build=$root/build/release
PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python" > /dev/null
cmake --build --preset release --parallel "$jobs" --target kvcache manager_benchmark handoff cold_start > /dev/null
library=$build/src/libkvcache.so.0
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
echo "stripped library: $(stat -c %s "$stripped") bytes (target below 3145728)"
"$build/benchmarks/cold_start" "$library"
"$build/benchmarks/handoff"
"$build/benchmarks/manager_benchmark" "$@"
