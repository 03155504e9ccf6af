#!/usr/bin/env bash
# Installs NIXL's wheel into .venv-nixl (241 MB), and prints the file of its C API. A second run only prints it.
#   export KVCACHE_NIXL_CAPI=$(bash scripts/setup_nixl.sh)
# The wheel names PyTorch as a requirement, which only its Python package needs. So it is installed without requirements.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up demo >&2
layer=$root/.venv-nixl
stamp=$layer/requirements.stamp
now="$("$python" --version) $(cat scripts/requirements-nixl.txt "${BASH_SOURCE[0]}" | sha256sum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  "$python" -m pip install --quiet --no-deps --only-binary :all: --target "$layer" --requirement scripts/requirements-nixl.txt >&2
  echo "$now" > "$stamp"
fi
find "$layer" -name libnixl_capi.so
