#!/usr/bin/env bash
# Writes all that follows from include/kvcache.h: the function table and the generated files of each binding. Also the programs
# in the guide.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up full cargo
for files in api go java names conformance functions guide; do # the table comes first, because the bindings take their calls from it
  python3 "scripts/generate_$files.py"
done
bash scripts/generate_rust.sh
