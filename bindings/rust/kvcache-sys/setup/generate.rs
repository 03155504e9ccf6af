//! Writes what src/generated holds, from the header: types, the linked functions, and the same functions over a table.
use crate::places;
use bindgen::{Builder, CodegenConfig, EnumVariation, RustEdition};
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

pub fn all() {
    let sources = places::sources().expect("kvcache.h was not found: this crate came without the library's sources");
    let header = sources.join("include/kvcache.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let builder = || {
        let builder = Builder::default()
            .header(header.to_str().unwrap())
            .clang_args(places::dlpack(&sources).iter().map(|directory| format!("-I{}", directory.display())))
            .clang_arg("-fparse-all-comments") // the header's comments become the documentation
            .allowlist_item("kvc_.*|KVC_.*|DL.*|kDL.*")
            .default_enum_style(EnumVariation::Consts)
            .prepend_enum_name(false)
            .use_core()
            .merge_extern_blocks(true)
            .disable_header_comment()
            .rust_edition(RustEdition::Edition2021)
            .raw_line("// Generated from include/kvcache.h by scripts/generate_rust.sh.");
        builder
    };
    let with = |config: CodegenConfig| {
        let mut builder = builder().with_codegen_config(config);
        if config == CodegenConfig::FUNCTIONS {
            builder = builder.raw_line("use crate::*;");
        }
        builder.generate().expect("bindgen cannot read kvcache.h").to_string()
    };
    let mut types = with(CodegenConfig::all() & !CodegenConfig::FUNCTIONS);
    let linked = with(CodegenConfig::FUNCTIONS);
    let defaults = defaults(&types);
    types.push_str(&defaults);
    let directory = PathBuf::from(env::var("OUT_DIR").unwrap()).join("generated");
    println!("cargo:rustc-env=KVCACHE_GENERATED={}", directory.display()); // for tests/generated.rs
    write("types.rs", &types);
    write("linked.rs", &linked);
    write("dynamic.rs", &dynamic(&linked));
}

fn write(name: &str, text: &str) {
    let directory = PathBuf::from(env::var("OUT_DIR").unwrap()).join("generated");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), text).unwrap();
}

/// `Default` of every extensible struct is what its kvc_*_init writes.
fn defaults(types: &str) -> String {
    let mut text = String::new();
    for structure in types.split("pub struct ").skip(1) {
        let (name, body) = structure.split_once(" {").unwrap();
        let first = body.lines().map(str::trim).find(|line| line.starts_with("pub "));
        if first != Some("pub struct_size: u32,") || name == "kvc_api" {
            continue;
        }
        let rest = if name == "kvc_error" { "        value.index = -1;\n        value.group = -1;\n" } else { "" };
        write!(
            text,
            "impl Default for {name} {{\n    fn default() -> Self {{\n        \
             let mut value: Self = unsafe {{ ::core::mem::zeroed() }};\n        \
             value.struct_size = ::core::mem::size_of::<Self>() as u32;\n{rest}        value\n    }}\n}}\n"
        )
        .unwrap();
    }
    text
}

/// A function of the same name and type for each one of `linked`, which calls the loaded library's table.
fn dynamic(linked: &str) -> String {
    let mut text = String::from(
        "// Generated from include/kvcache.h by scripts/generate_rust.sh.\nuse crate::dynamic::{failure, table};\nuse crate::*;\n",
    );
    let mut comment = String::new();
    let mut declaration = String::new();
    for line in linked.lines().map(str::trim) {
        if line.starts_with("#[doc") {
            comment = format!("{line}\n");
        } else if line.starts_with("pub fn ") || !declaration.is_empty() {
            declaration.push_str(line);
            declaration.push(' ');
            if line.ends_with(';') {
                let function = wrapper(&declaration.replace("( ", "(").replace(", )", ")"));
                if !function.is_empty() {
                    text.push_str(&comment);
                    text.push_str(&function);
                }
                declaration.clear();
                comment.clear();
            }
        }
    }
    text
}

/// `pub fn kvc_x(a: A, error: *mut kvc_error) -> R;` as a function with a body.
fn wrapper(declaration: &str) -> String {
    let signature = declaration.trim().trim_start_matches("pub fn ").trim_end_matches(';');
    let (name, rest) = signature.split_once('(').unwrap();
    let (parameters, result) = rest.rsplit_once(')').unwrap();
    if name == "kvc_get_api" {
        return String::new(); // the one that is looked up
    }
    let names: Vec<_> =
        parameters.split(", ").filter_map(|parameter| parameter.split_once(": ")).map(|(name, _)| name).collect();
    let otherwise = match result.trim() {
        "-> kvc_status" => format!("unsafe {{ failure(\"{name}\", {}) }}", names.last().unwrap_or(&"")),
        "" => String::new(),
        _ => "unsafe { ::core::mem::zeroed() }".into(),
    };
    // kvc_status_name has no error to fill, but another result type; what returns a status ends with an error.
    let member = name.trim_start_matches("kvc_");
    format!(
        "#[inline]\npub unsafe fn {name}({parameters}){result} {{\n    match table().and_then(|table| table.{member}) {{\n        \
         Some(function) => unsafe {{ function({}) }},\n        None => {{ {otherwise} }}\n    }}\n}}\n",
        names.join(", ")
    )
}
