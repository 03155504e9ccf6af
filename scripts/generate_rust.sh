#!/usr/bin/env bash
# Writes bindings/rust/kvcache-sys/src/generated from include/kvcache.h. Needs cargo and libclang.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up full cargo
cd bindings/rust
# With the feature `dynamic` nothing is linked, so no library is needed.
KVCACHE_UPDATE_BINDINGS=1 cargo test --quiet --locked --package kvcache-sys --features buildtime-bindgen,dynamic --test generated
