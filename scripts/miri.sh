#!/usr/bin/env bash
# Checks pointers, borrows and releases of the Rust layer with Miri. Miri cannot call C, so the tests use a library in Rust.
# Needs the nightly toolchain with Miri: rustup toolchain install nightly --component miri,rust-src
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if ! cargo +nightly miri --version; then
  echo "miri.sh: Miri is missing: rustup toolchain install nightly --component miri,rust-src" >&2
  exit 1
fi
cd bindings/rust
# Built without the library, as the documentation is.
export DOCS_RS=1 CARGO_TARGET_DIR=$root/build/miri MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
cargo +nightly miri test --locked --package kvcache --features dynamic --lib --test borrows "$@"
