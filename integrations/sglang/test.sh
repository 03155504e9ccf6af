#!/usr/bin/env bash
# Tests kvcache-sglang inside the SGLang of requirements.txt. It sets up what it needs.
#   bash integrations/sglang/test.sh [argument of pytest ...]
bash "$(dirname "${BASH_SOURCE[0]}")/setup.sh" || exit 1
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
HF_HUB_OFFLINE=1 exec "$root/build/venv-sglang/bin/python" -m pytest -q -ra -p no:cacheprovider "$@" integrations/sglang/tests
