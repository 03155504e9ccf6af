#!/usr/bin/env bash
# Builds and runs the README's program from the packaged crates alone, in an empty folder and without a library:
# kvcache-sys builds the sources that it carries. Run scripts/package_rust.sh first.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up languages cmake cargo
target=${CARGO_TARGET_DIR:-$root/bindings/rust/target} # other crates are compiled there already
packages=$target/package
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

for crate in kvcache-sys kvcache; do
  mkdir "$place/$crate"
  tar -xzf "$packages/$crate"-[0-9]*.crate --directory "$place/$crate" --strip-components 1
done
cmp include/kvcache.h "$place/kvcache-sys/libkvcache/include/kvcache.h"
mkdir -p "$place/program/src"
program_of "$place/kvcache/README.md" rust > "$place/program/src/main.rs"
cp bindings/rust/Cargo.lock "$place/program"
cat > "$place/program/Cargo.toml" <<'TOML'
[package]
name = "program"
version = "0.0.0"
edition = "2021"
[dependencies]
kvcache = { path = "../kvcache" }
[patch.crates-io]
kvcache-sys = { path = "../kvcache-sys" }
TOML
# Optimisation takes most of the time, and does not matter for whether the crate's sources are complete.
echo 'add_compile_options(-O0)' > "$place/quick.cmake"
export CMAKE_TOOLCHAIN_FILE=$place/quick.cmake
cd "$place/program"
unset KVCACHE_LIB_DIR DLPACK_INCLUDE_DIR
export KVCACHE_NO_PKG_CONFIG=1 CARGO_TARGET_DIR=$target CCACHE_BASEDIR=$place CCACHE_NOHASHDIR=1 NUM_JOBS=$jobs
# What cargo does not let a dependency add: where the program looks for the library when it runs without cargo.
echo 'fn main() { println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN"); }' > build.rs
cargo run | tee output
grep -q '^preempt Some(' output

# Without cargo: beside the library, then with the library in the program.
mkdir alone
cp "$target/debug/program" "$target/debug/libkvcache.so.0" alone
env -u LD_LIBRARY_PATH alone/program | cmp - output
cargo build --features kvcache/static
rm alone/*
cp "$target/debug/program" alone
env -u LD_LIBRARY_PATH alone/program | cmp - output

# cargo alone, in a checkout, would pack no sources. Such a package must not build.
cd "$root/bindings/rust"
if CARGO_TARGET_DIR=$place/refused cargo package --locked --allow-dirty --package kvcache-sys 2> "$place/refused.txt"; then
  echo "cargo package made a package of kvcache-sys without the C++ sources" >&2
  exit 1
fi
grep 'this package of kvcache-sys has no C++ sources' "$place/refused.txt"
