#!/usr/bin/env bash
# Installs SGLang, kvcache and kvcache-sglang into build/venv-sglang, from PyPI and from this checkout. A second run installs what
# changed in this checkout.
#   bash integrations/sglang/setup.sh       then build/venv-sglang/bin/python
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
set_up_integration sglang
