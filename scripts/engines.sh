#!/usr/bin/env bash
# The demo by the decoders in Python, Rust, Go and Java (those that are in examples/gemma), side by side. Fails if their
# tokens differ. The others need their language: cargo 1.88, Go, a JDK.
#   bash scripts/demo.sh --all [new tokens of a user]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
tokens=${1:-24}
logs=$root/build/logs/engines
weights=$root/build/gemma.safetensors
mkdir -p "$logs"

# The library for them all: KVCACHE_LIB_DIR, else what the tests built, else built here, without tests.
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

# Weights, prompts and vocabulary in one file, unless it is there and nothing that it is made of changed.
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

step() { # step NAME COMMAND: its output in a file that is shown if it fails
  if ! ( set -e; "$2" ) > "$logs/$1.txt" 2> "$logs/$1.log"; then
    cat "$logs/$1.log" >&2
    echo "engines.sh: $1 failed" >&2
    exit 1
  fi
}

echo "building the library, and the decoders as they come (minutes the first time)"
step library library
library > /dev/null 2>&1 # for the variables: it is built
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
