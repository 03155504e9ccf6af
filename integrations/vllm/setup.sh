#!/usr/bin/env bash
# Installs vLLM for CPUs, kvcache and kvcache-vllm into build/venv-vllm, from PyPI and from this checkout: 2 GB, without
# PyTorch's CUDA libraries. A second run installs what changed in this checkout.
#   bash integrations/vllm/setup.sh       then build/venv-vllm/bin/python
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
set_up demo
install_python_package
layer=$root/build/venv-vllm
here=$root/integrations/vllm
stamp=$layer/requirements.stamp
now="$("$python" --version) $(cat "$here/requirements.txt" "${BASH_SOURCE[0]}" | sha256sum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  mkdir -p "$root/build"
  "$python" -m venv "$layer"
  layer_over_venv "$layer"
  "$layer/bin/python" -m pip install --quiet --no-deps --requirement "$here/requirements.txt"
  make_empty_cuda_libraries "$layer"
  "$layer/bin/python" -c 'import torch, transformers; print(torch.__version__, transformers.__version__)'
  echo "$now" > "$stamp"
fi

plugin_stamp=$layer/kvcache-vllm.stamp
now=$(fingerprint "$here/pyproject.toml" "$here/kvcache_vllm")
if [ ! -f "$plugin_stamp" ] || [ "$(cat "$plugin_stamp")" != "$now" ]; then
  copy=$(mktemp -d) # setuptools writes beside the sources
  trap 'rm -rf "$copy"' EXIT
  cp -r "$here/pyproject.toml" "$here/README.md" "$here/kvcache_vllm" "$copy"
  "$layer/bin/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall "$copy"
  echo "$now" > "$plugin_stamp"
fi
