#!/usr/bin/env bash
# Runs the demo with the decoders in Python, Rust, Go and Java (those in examples/gemma), side by side. Fails if their
# tokens differ. The decoders need cargo 1.88, Go and a JDK.
#   bash scripts/demo.sh --all [new tokens of a user] [--tier DIRECTORY]
# With --tier, each decoder then runs twice more with a tier, a folder of its own in DIRECTORY. It is killed by SIGKILL when its system
# prompt is stored. The second run must load the prompt, and give the tokens of the run without a tier.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up languages cmake ninja cargo go java mvn swig
tokens=24 tier=
while [ $# -gt 0 ]; do
  case $1 in
    --tier) tier=${2:?engines.sh: --tier needs a directory} && shift 2 ;;
    *) tokens=$1 && shift ;;
  esac
done
logs=$root/build/logs/engines
weights=$root/build/gemma.safetensors
mkdir -p "$logs"

# The library for all of them: KVCACHE_LIB_DIR, else the one that the tests built, else one built here without tests.
library() {
  local release=$root/build/release/src
  if [ -z "${KVCACHE_LIB_DIR:-}" ] && [ ! -e "$release/libkvcache.so" ]; then
    release=$root/build/library/src
    PATH=$venv/bin:$PATH cmake -S . -B build/library -G Ninja -DCMAKE_BUILD_TYPE=Release
    cmake --build build/library --parallel "$jobs" --target kvcache
  fi
  export KVCACHE_LIB_DIR=${KVCACHE_LIB_DIR:-$release}
  export KVCACHE_LIBRARY=$KVCACHE_LIB_DIR/libkvcache.so
}

# Writes weights, prompts and vocabulary into one file, unless the file exists and its sources are unchanged.
export_weights() {
  local now
  now=$(cd examples/gemma && fingerprint export.py texts.py tokenizer.py weights.py model.py demo_prompts.json)
  if [ ! -f "$weights" ] || [ "$(cat "$weights.stamp" 2> /dev/null)" != "$now" ]; then
    "$python" examples/gemma/generate.py --export "$weights"
    echo "$now" > "$weights.stamp"
  fi
}

# Each prints its lines to standard output. Arguments are further options.
python() { "$python" examples/gemma/generate.py --plain --max-new-tokens "$tokens" "$@"; }
rust() {
  CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/build/rust} \
    cargo run --release --locked --manifest-path examples/gemma/rust/Cargo.toml -- "$weights" "$tokens" "$@"
}
go() { ( cd examples/gemma/go && command go run . "$weights" "$tokens" "$@" ); }
java() { bash examples/gemma/java/run.sh "$weights" "$tokens" "$@"; }

# Runs a decoder with a new tier. Kills it, and all that it started, when its prompt is stored.
killed() { # NAME
  local lines=$logs/$1-killed.txt pid status=0
  rm -rf "${tier:?}/$1"
  set -m # a process group of its own
  "$1" --tier "$tier/$1" > "$lines" &
  pid=$!
  until grep -q '^tier: 0 of ' "$lines"; do
    kill -0 $pid || return 1
    sleep 0.02
  done
  kill -KILL -- -$pid
  wait $pid || status=$?
  if [ $status != 137 ] || grep -q '^ids ' "$lines"; then
    echo "$1 had ended before it was killed" >&2
    return 1
  fi
}

step() { # step NAME COMMAND [argument ...]: runs it; its output goes to a file that is shown if it fails
  if ! ( set -e; "${@:2}" ) > "$logs/$1.txt" 2> "$logs/$1.log"; then
    cat "$logs/$1.log" >&2
    echo "engines.sh: $1 failed" >&2
    exit 1
  fi
}

echo "building the library, and the decoders as they come (minutes the first time)"
step library library
library > /dev/null 2>&1 # sets the variables; the library is built already
step weights export_weights
declare -A tools=([python]=python3 [rust]=cargo [go]=go [java]=java)
ran=()
for name in python rust go java; do
  if [ $name = python ] || [ -d examples/gemma/$name ]; then
    type -P "${tools[$name]}" > /dev/null || {
      echo "engines.sh: $name needs ${tools[$name]}, which is not there" >&2
      exit 1
    }
    echo "running $name"
    step $name $name
    ran+=("$logs/$name.txt")
  fi
done
"$python" scripts/engines.py "${ran[@]}"
if [ -n "$tier" ]; then
  mkdir -p "$tier"
  tier=$(cd "$tier" && pwd)
  for lines in "${ran[@]}"; do
    name=$(basename "$lines" .txt)
    step "$name-kill" killed "$name"
    step "$name-tier" "$name" --tier "$tier/$name"
    "$python" scripts/engines.py --tier "$lines" "$logs/$name-tier.txt"
  done
fi
