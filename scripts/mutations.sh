#!/usr/bin/env bash
# Proves that the tests of each user of kernels/common/visible.h notice an off-by-one in each rule that it uses. The places and
# the users are in mutations.py. All off-by-ones are compiled in at once, into a copy of the sources in build/mutations, and an
# environment variable selects one. So there is one build, with the scalar kernels alone.
#   bash scripts/mutations.sh            all places; most of the time is compiling
#   bash scripts/mutations.sh window     places whose names contain a word
#   bash scripts/mutations.sh --all      runs every user at every place, also those that do not use it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up test cmake ninja
PATH=$venv/bin:$PATH exec "$python" scripts/mutations.py "$root/build/mutations" "$(dlpack_include_dir)" "$@"
