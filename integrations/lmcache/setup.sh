#!/usr/bin/env bash
# Installs LMCache, kvcache and kvcache-lmcache into build/venv-lmcache, from PyPI and from this checkout. A second run installs what
# changed in this checkout.
#   bash integrations/lmcache/setup.sh       then build/venv-lmcache/bin/python
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
set_up_integration lmcache
