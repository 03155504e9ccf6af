#!/usr/bin/env bash
# The Rust layer's pointers, borrows and releases under Miri, over a library of Rust in its tests, since Miri calls no C.
# Needs the nightly toolchain with Miri: rustup toolchain install nightly --component miri,rust-src
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if ! cargo +nightly miri --version; then
  echo "miri.sh: Miri is missing: rustup toolchain install nightly --component miri,rust-src" >&2
  exit 1
fi
cd bindings/rust
# As documentation is built: without the library.
export DOCS_RS=1 CARGO_TARGET_DIR=$root/build/miri MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
cargo +nightly miri test --locked --package kvcache --features dynamic --lib --test borrows "$@"
