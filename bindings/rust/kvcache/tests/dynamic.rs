//! The library loaded at run time. One process: what is loaded first stays.
#![cfg(feature = "dynamic")]
use kvcache::{sys, Cache, CacheConfig, Capacity, Context, ContextConfig, Error, Layer, Status};
use std::path::Path;
use std::process::Command;

/// Runs one test of this file in a process of its own, with a variable set.
fn alone(test: &str, name: &str, value: &str) {
    let executable = std::env::current_exe().unwrap();
    let mut command = Command::new(executable);
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env_remove("KVCACHE_LIB_DIR").env_remove("LD_LIBRARY_PATH").env(name, value);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn directory() -> String {
    std::env::var("KVCACHE_LIB_DIR").expect("KVCACHE_LIB_DIR: the directory that has libkvcache.so")
}

#[test]
fn by_directory_by_file_and_by_the_system() {
    alone("present", "KVCACHE_LIB_DIR", &directory());
    alone("present", "KVCACHE_LIBRARY", &format!("{}/libkvcache.so.0", directory()));
    alone("present", "KVCACHE_LIBRARY", &directory());
    alone("present", "LD_LIBRARY_PATH", &directory());
}

#[test]
fn a_library_that_is_absent() {
    alone("absent", "KVCACHE_LIBRARY", "no/such/libkvcache.so");
}

#[test]
fn something_else() {
    alone("not_ours", "KVCACHE_LIBRARY", "libm.so.6");
}

/// Builds a library that has `source` alone.
fn made_of(name: &str, source: &str) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (text, library) = (directory.join(format!("{name}.c")), directory.join(format!("{name}.so")));
    std::fs::write(&text, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &text]).status().unwrap();
    assert!(status.success());
    library.to_str().unwrap().into()
}

#[test]
fn a_library_of_another_version() {
    let source = "#include <stddef.h>\nvoid *kvc_get_api(unsigned abi) { return abi == 0 ? &abi : NULL; }\n\
                  const char *kvc_version(void) { return \"7.8.9\"; }\n";
    alone("another_version", "KVCACHE_LIBRARY", &made_of("another", source));
}

#[test]
fn an_older_library_lacks_functions() {
    let source = "const char *kvc_version(void) { return \"0.1.0\"; }\n\
                  static struct { unsigned size, abi; void *version; void *beyond; } table = {16, 1, kvc_version, (void *)8};\n\
                  void *kvc_get_api(unsigned abi) { return abi == 1 ? &table : 0; }\n";
    alone("older", "KVCACHE_LIBRARY", &made_of("older", source));
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn another_version() {
    let message = sys::dynamic::load(None).unwrap_err();
    assert!(message.contains("its version is 7.8.9, and this program was made for 0.1"), "{message}");
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn older() {
    assert_eq!(kvcache::version(), "0.1.0");
    // SAFETY: takes nothing. The table ends before it.
    assert_eq!(unsafe { sys::kvc_abi_version() }, 0);
    let error = Context::new(ContextConfig::new()).unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert!(error.message().contains("Context::new: the loaded library is older"), "{error}");
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn present() {
    let context = Context::new(ContextConfig::new()).unwrap();
    let layer = Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() };
    let config = CacheConfig { layers: vec![layer], capacity: Capacity::Tokens(64), ..CacheConfig::default() };
    let cache = Cache::new(&context, &config).unwrap();
    assert_eq!(cache.length(cache.add().unwrap()).unwrap(), 0);
    assert_eq!(kvcache::version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(sys::dynamic::load(Some(Path::new("no/such/file"))), Ok(())); // it is loaded already
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn absent() {
    let message = sys::dynamic::load(None).unwrap_err();
    assert!(message.contains("no/such/libkvcache.so"), "{message}");
    match Context::new(ContextConfig::new()) {
        Err(Error::Device(failure)) => {
            assert_eq!(failure.status, Status::DEVICE_UNAVAILABLE);
            assert!(failure.message.contains("Context::new: libkvcache was not found"), "{}", failure.message);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(kvcache::version(), "");
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn not_ours() {
    let message = sys::dynamic::load(None).unwrap_err();
    assert!(message.contains("libm.so.6") && message.contains("kvc_get_api"), "{message}");
}
