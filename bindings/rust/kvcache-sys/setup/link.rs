//! Finds libkvcache for the linker: by environment, by pkg-config, or by building it.
use crate::places;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const LINKED: &str = "libkvcache.so"; // the linker's name of it

pub fn library() {
    if let Some(directory) = places::variable("KVCACHE_LIB_DIR") {
        let directory = PathBuf::from(directory);
        if !directory.join(LINKED).exists() {
            panic!("KVCACHE_LIB_DIR is {}, but there is no {LINKED} in it", directory.display());
        }
        use_directory(&directory);
    } else if !by_pkg_config() {
        use_directory(&build());
    }
}

/// Any 0.x release but the crate's own minor may have another ABI.
fn by_pkg_config() -> bool {
    let (major, minor) = (number("CARGO_PKG_VERSION_MAJOR"), number("CARGO_PKG_VERSION_MINOR"));
    let (this, next) = (format!("{major}.{minor}"), format!("{major}.{}", minor + 1));
    places::variable("KVCACHE_NO_PKG_CONFIG").is_none()
        && pkg_config::Config::new().range_version(this.as_str()..next.as_str()).probe("kvcache").is_ok()
}

fn number(name: &str) -> u32 {
    env::var(name).unwrap().parse().unwrap()
}

/// Builds the library for the CPU; needs CMake and a C++20 compiler.
fn build() -> PathBuf {
    let sources = places::sources().expect(
        "libkvcache was not found: set KVCACHE_LIB_DIR to the directory that has libkvcache.so, or PKG_CONFIG_PATH \
         (neither did this crate come with the library's sources)",
    );
    for part in ["CMakeLists.txt", "cmake", "include", "src", "kernels"] {
        println!("cargo:rerun-if-changed={}", sources.join(part).display());
    }
    let mut config = cmake::Config::new(&sources);
    config.profile("Release").define("CMAKE_INSTALL_LIBDIR", "lib");
    if let Some(directory) = places::dlpack(&sources) {
        config.define("DLPACK_INCLUDE_DIR", directory);
    }
    config.build().join("lib")
}

/// Links from a folder of links within the target directory: cargo adds such folders to the loader's path in `cargo run`
/// and `cargo test`.
fn use_directory(directory: &Path) {
    let directory = fs::canonicalize(directory).unwrap();
    let links = PathBuf::from(env::var("OUT_DIR").unwrap()).join("link");
    let _ = fs::remove_dir_all(&links);
    fs::create_dir_all(&links).unwrap();
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name();
        if name.to_string_lossy().starts_with(LINKED) {
            symlink(directory.join(&name), links.join(&name)).unwrap();
        }
    }
    println!("cargo:rerun-if-changed={}", directory.join(LINKED).display());
    println!("cargo:rustc-link-search=native={}", links.display());
    println!("cargo:rustc-link-lib=dylib=kvcache");
    println!("cargo:lib_dir={}", directory.display()); // DEP_KVCACHE_LIB_DIR of crates that depend on this one
}
