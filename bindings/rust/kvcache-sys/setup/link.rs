//! Finds libkvcache for the linker: by environment, by pkg-config, or by building it.
use crate::places;
use crate::tools;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const LINKED: &str = "libkvcache.so"; // the linker's name of it
const SONAME: &str = "libkvcache.so.0"; // the loader's

pub fn library() {
    if cfg!(feature = "static") {
        link_static();
    } else if let Some(directory) = places::variable("KVCACHE_LIB_DIR") {
        let directory = PathBuf::from(directory);
        if !directory.join(LINKED).exists() {
            tools::fail(&format!("KVCACHE_LIB_DIR is {}, but there is no {LINKED} in it", directory.display()));
        }
        use_directory(&directory);
    } else if !by_pkg_config() {
        use_directory(&configured().build().join("lib"));
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

/// A build of the library for the CPU; needs CMake and a C++20 compiler.
fn configured() -> cmake::Config {
    tools::check();
    let sources = places::sources().expect("main.rs checks it");
    for part in ["CMakeLists.txt", "cmake", "include", "src", "kernels"] {
        println!("cargo:rerun-if-changed={}", sources.join(part).display());
    }
    let mut config = cmake::Config::new(&sources);
    config.profile("Release").define("CMAKE_INSTALL_LIBDIR", "lib");
    if let Some(directory) = places::dlpack(&sources) {
        config.define("DLPACK_INCLUDE_DIR", directory);
    }
    config
}

/// Builds the library as two archives, which become part of the program. They need C++'s run-time library.
fn link_static() {
    let build = configured().build_target("kvcache_static").build().join("build");
    for (folder, archive) in [("src", "kvcache_static"), ("kernels", "kvcache_cpu_kernels")] {
        println!("cargo:rustc-link-search=native={}", build.join(folder).display());
        println!("cargo:rustc-link-lib=static={archive}");
    }
    for library in ["stdc++", "pthread", "dl", "m"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

/// Copies the library beside the programs that cargo makes. A program whose rpath is $ORIGIN finds it there.
fn copy_beside_programs(library: &Path) {
    let out = PathBuf::from(env::var("OUT_DIR").unwrap()); // PROFILE/build/kvcache-sys-HASH/out
    let Some(profile) = out.ancestors().nth(3).filter(|folder| folder.join("deps").is_dir()) else { return };
    for folder in [profile.to_path_buf(), profile.join("deps"), profile.join("examples")] {
        // Another build script of the same target directory may copy at the same time, and a program may run.
        let part = folder.join(format!("{SONAME}.{}", std::process::id()));
        if !folder.is_dir() || fs::copy(library, &part).is_err() || fs::rename(&part, folder.join(SONAME)).is_err() {
            let _ = fs::remove_file(&part);
        }
    }
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
    copy_beside_programs(&directory.join(LINKED));
    println!("cargo:rerun-if-changed={}", directory.join(LINKED).display());
    println!("cargo:rustc-link-search=native={}", links.display());
    println!("cargo:rustc-link-lib=dylib=kvcache");
    println!("cargo:lib_dir={}", directory.display()); // DEP_KVCACHE_LIB_DIR of crates that depend on this one
}
