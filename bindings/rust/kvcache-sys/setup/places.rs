//! Where the sources of libkvcache, its header and DLPack's are.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An environment variable that the build depends on; an empty one counts as none.
pub fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The root of the C++ sources: in the packaged crate a folder of its own, in a checkout the repository.
pub fn sources() -> Option<PathBuf> {
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let candidates = [crate_dir.join("libkvcache"), crate_dir.join("../../..")];
    candidates.into_iter().find(|root| root.join("include/kvcache.h").exists())
}

/// The directory that has dlpack/dlpack.h, if it is not the compiler's to find.
pub fn dlpack(sources: &Path) -> Option<PathBuf> {
    if let Some(given) = variable("DLPACK_INCLUDE_DIR") {
        return Some(given.into());
    }
    if sources.join("include/dlpack/dlpack.h").exists() {
        return Some(sources.join("include"));
    }
    let output = Command::new(sources.join(".venv/bin/tvm-ffi-config")).arg("--dlpack-includedir").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().into())
}
