//! Sizes, offsets and constants against tests/abi/layout.golden, which a C compiler measured. What src/generated says of
//! the layout, rustc has proved: its lines fail to compile if they are not so.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// "struct kvc_x", "kvc_x.field" and "KVC_CONSTANT", each with its size, offset or value.
type Numbers = BTreeMap<String, i64>;

fn golden(header: &str) -> Numbers {
    let words_of_header: BTreeSet<_> =
        header.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let mut numbers = Numbers::new();
    let mut structure = "";
    for line in read("../../../tests/abi/layout.golden").lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if words[0] == "struct" {
            structure = words[1];
        }
        let (key, name, value) = match words[0] {
            "struct" => (format!("struct {structure}"), structure, words[2]),
            "constant" => (words[1].to_string(), words[1], words[2]),
            field => (format!("{structure}.{field}"), structure, words[1]),
        };
        if words_of_header.contains(name) {
            numbers.insert(key, value.parse().unwrap()); // the rest is kvcache_backend.h's
        }
    }
    numbers
}

fn generated() -> Numbers {
    let types = read("src/generated/types.rs");
    let compact: String = types.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut numbers = Numbers::new();
    for part in compact.split("[\"").skip(1) {
        let Some((title, rest)) = part.split_once("\"]") else { continue };
        let number = |end: &str| rest.split_once(" - ").unwrap().1.split_once(end).unwrap().0.parse().unwrap();
        if let Some(name) = title.strip_prefix("Size of ") {
            numbers.insert(format!("struct {name}"), number("usize"));
        } else if let Some(name) = title.strip_prefix("Offset of field: ") {
            numbers.insert(name.replace("::", "."), number("usize"));
        }
    }
    for part in compact.split("pub const ").skip(1) {
        let (name, rest) = part.split_once(": ").unwrap();
        if let Some(value) = rest.split_once("= ").and_then(|(_, rest)| rest.split_once(';')) {
            if let Ok(value) = value.0.parse() {
                numbers.insert(name.to_string(), value);
            }
        }
    }
    numbers
}

#[test]
fn layout_is_the_committed_one() {
    let golden = golden(&read("../../../include/kvcache.h"));
    let generated = generated();
    assert!(golden.len() > 200, "only {} numbers: was layout.golden understood?", golden.len());
    let different: Vec<_> = golden
        .iter()
        .filter(|(name, number)| generated.get(*name) != Some(number))
        .map(|(name, number)| format!("{name}: C has {number}, Rust {:?}", generated.get(name)))
        .collect();
    assert!(different.is_empty(), "run scripts/generate_rust.sh:\n{}", different.join("\n"));
}

#[test]
fn every_type_of_ours_is_in_the_baseline() {
    let golden = golden(&read("../../../include/kvcache.h"));
    for name in generated().keys().filter(|name| name.contains("kvc_") || name.starts_with("KVC_")) {
        let name = name.as_str();
        let opaque = ["struct kvc_context", "struct kvc_cache", "kvc_context._unused", "kvc_cache._unused"];
        assert!(opaque.contains(&name) || golden.contains_key(name), "{name} is not in layout.golden");
    }
}

#[test]
fn version_is_the_header_s() {
    use kvcache_sys::{KVC_VERSION_MAJOR, KVC_VERSION_MINOR, KVC_VERSION_PATCH};
    let version = format!("{KVC_VERSION_MAJOR}.{KVC_VERSION_MINOR}.{KVC_VERSION_PATCH}");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

/// Structs of the header that start with struct_size have a Default that sets it; of an error as KVC_ERROR_INIT.
#[test]
fn defaults_are_the_header_s() {
    let error = kvcache_sys::kvc_error::default();
    assert_eq!((error.struct_size, error.code, error.index, error.group), (512, 0, -1, -1));
    let header = read("../../../include/kvcache.h");
    let types = read("src/generated/types.rs");
    let inits: Vec<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("static inline void kvc_")?.split_once("_init("))
        .map(|(name, _)| format!("kvc_{name}"))
        .collect();
    assert!(inits.len() > 10, "{inits:?}");
    for name in inits {
        assert!(types.contains(&format!("impl Default for {name} ")), "{name} has no Default");
    }
}
