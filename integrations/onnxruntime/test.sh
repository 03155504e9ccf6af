#!/usr/bin/env bash
# Tests the plug-in inside the ONNX Runtimes of requirements.txt and, if Maven is there, of Maven Central. It sets up what it needs.
#   bash integrations/onnxruntime/test.sh [argument of pytest ...]
bash "$(dirname "${BASH_SOURCE[0]}")/setup.sh" || exit 1
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
exec "$root/build/venv-onnxruntime/bin/python" -m pytest -q -ra -p no:cacheprovider "$@" integrations/onnxruntime/tests
