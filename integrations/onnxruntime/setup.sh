#!/usr/bin/env bash
# Builds libkvcache_ort.so into build/onnxruntime/lib, beside libkvcache.so of this checkout, and installs ONNX Runtime into
# build/venv-onnxruntime.
#   bash integrations/onnxruntime/setup.sh       then build/venv-onnxruntime/bin/python
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"
set_up languages cmake ninja java mvn
here=$root/integrations/onnxruntime
prefix=$root/build/onnxruntime
layer=$root/build/venv-onnxruntime

export PATH=$venv/bin:$PATH
[ -f build/release/CMakeCache.txt ] || cmake --preset release -DPython3_EXECUTABLE="$python" -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_BENCHMARKS=OFF
cmake --build --preset release --parallel "$jobs" --target kvcache
cmake --install build/release --prefix "$prefix" > /dev/null
cmake -S "$here" -B "$prefix/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_COMPILE_WARNING_AS_ERROR="${KVC_STRICT:-OFF}" > /dev/null
cmake --build "$prefix/build" --parallel "$jobs" --target install > "$prefix/build.log" || { cat "$prefix/build.log" && exit 1; }

stamp=$layer/requirements.stamp
now="$("$python" --version) $(cat "$here/requirements.txt" "${BASH_SOURCE[0]}" | sha256sum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  "$python" -m venv "$layer"
  layer_over_venv "$layer"
  "$layer/bin/python" -m pip install --quiet --no-deps --requirement "$here/requirements.txt"
  echo "$now" > "$stamp"
fi
