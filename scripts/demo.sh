#!/usr/bin/env bash
# Sets up a fresh Debian machine and runs the demo: Gemma 3 270M generates text for several users who share a system
# prompt. All keys and values are in libkvcache. It ends with the address of a page that shows the cache in each step.
#   bash scripts/demo.sh [argument of examples/gemma/generate.py ...]
#   bash scripts/demo.sh --tier DIRECTORY        keeps keys and values there, so that a later run does not compute its prompts again
#   bash scripts/demo.sh --all [new tokens] [--tier DIRECTORY]      the same with the decoders in Python, Rust, Go and Java, side by
#                                                side. With a tier, each is also killed, and started again
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
log=$root/build/logs/demo.log
mkdir -p "$(dirname "$log")"
set_up demo cmake ninja
echo "building kvcache (a minute or two the first time)"
if ! install_python_package > "$log" 2>&1; then
  cat "$log" >&2
  echo "demo.sh: the Python package did not build" >&2
  exit 1
fi
if [ "${1:-}" = --all ]; then
  exec bash scripts/engines.sh "${@:2}"
fi
page=(--inspect build/demo.html)
for argument in "$@"; do
  case $argument in --prompts* | --export* | --plain) page=() ;; esac
done
exec "$python" examples/gemma/generate.py "${page[@]}" "$@"
