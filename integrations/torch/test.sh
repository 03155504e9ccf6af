#!/usr/bin/env bash
# Tests kvcache_torch with the PyTorch of .venv-transformers, and with --oldest also with PyTorch 2.10, by the same binary. It sets
# up what it needs.
#   bash integrations/torch/test.sh [--oldest] [argument of pytest ...]
oldest=
if [ "${1:-}" = --oldest ]; then
  oldest=$1
  shift
fi
bash "$(dirname "${BASH_SOURCE[0]}")/setup.sh" $oldest || exit 1
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
export PYTHONPATH=$root/build/torch/package OMP_NUM_THREADS=2
for layer in "$root/.venv-transformers" ${oldest:+"$root/build/venv-torch-oldest"}; do
  "$layer/bin/python" -m pytest -q -ra -p no:cacheprovider -p no:logging "$@" integrations/torch/tests
done
