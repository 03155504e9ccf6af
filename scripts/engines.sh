#!/usr/bin/env bash
# Runs the demo with the decoders in Python, Rust, Go and Java (those in examples/gemma), side by side. Fails if their
# tokens differ. The decoders need cargo 1.88, Go and a JDK.
#   bash scripts/demo.sh --all [new tokens of a user]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up languages cmake ninja cargo go java mvn swig
tokens=${1:-24}
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

# Each prints its lines to standard output.
python() { "$python" examples/gemma/generate.py --plain --max-new-tokens "$tokens"; }
rust() {
  CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/build/rust} \
    cargo run --release --locked --manifest-path examples/gemma/rust/Cargo.toml -- "$weights" "$tokens"
}
go() { ( cd examples/gemma/go && command go run . "$weights" "$tokens" ); }
java() { bash examples/gemma/java/run.sh "$weights" "$tokens"; }

step() { # step NAME COMMAND: runs it; its output goes to a file that is shown if it fails
  if ! ( set -e; "$2" ) > "$logs/$1.txt" 2> "$logs/$1.log"; then
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
