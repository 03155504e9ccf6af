#!/usr/bin/env bash
# Makes the crates in bindings/rust (target/package/*.crate), and builds each from its package alone. kvcache-sys carries
# the sources of libkvcache, and builds them where it finds no library.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up languages cargo
crate=$root/bindings/rust/kvcache-sys
dlpack=$(dlpack_include_dir)

rm -rf "$crate/libkvcache"
mkdir -p "$crate/libkvcache/include/dlpack" "$crate/libkvcache/include/xxhash"
trap 'rm -rf "$crate/libkvcache"' EXIT # a checkout builds from its own sources
cp -r CMakeLists.txt LICENSE cmake src kernels "$crate/libkvcache"
cp include/*.h "$crate/libkvcache/include"
cp "$dlpack/dlpack/dlpack.h" "$crate/libkvcache/include/dlpack"
cp LICENSE "$crate/libkvcache/LICENSE.dlpack" # DLPack's licence is the same text
cp "$(xxhash_include_dir)/xxhash.h" "$crate/libkvcache/include/xxhash"
xxhash_license > "$crate/libkvcache/LICENSE.xxhash"
find "$crate/libkvcache" -name __pycache__ -prune -exec rm -rf {} +

# cargo would verify with files that it extracted earlier for this name and version, even if the package is new.
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/kvcache-*
rm -rf "${CARGO_TARGET_DIR:-bindings/rust/target}"/debug/.fingerprint/kvcache-*

cd bindings/rust
cargo package --locked --allow-dirty --workspace "$@" # dirty, because the copied sources are not committed
