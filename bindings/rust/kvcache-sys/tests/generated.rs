//! src/generated is what the header gives now. `scripts/generate_rust.sh` writes it.
#![cfg(feature = "buildtime-bindgen")]
use std::path::Path;
use std::{env, fs};

#[test]
fn generated_files_follow_the_header() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    let fresh = Path::new(env!("KVCACHE_GENERATED"));
    for name in ["types.rs", "linked.rs", "dynamic.rs"] {
        let text = fs::read_to_string(fresh.join(name)).unwrap();
        let path = committed.join(name);
        if env::var_os("KVCACHE_UPDATE_BINDINGS").is_some() {
            fs::create_dir_all(&committed).unwrap();
            fs::write(&path, text).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            panic!("{name} is out of date: run scripts/generate_rust.sh");
        }
    }
}
