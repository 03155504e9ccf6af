//! What building the library needs of the machine. Each lack is one sentence.
use crate::places;
use std::env;
use std::process::{exit, Command};

/// Ends the build with a sentence, which cargo shows as an error of this crate.
pub fn fail(sentence: &str) -> ! {
    println!("cargo::error={sentence}");
    exit(0) // the error fails the build; another status would add all that this script has printed
}

/// Checks that CMake and a C++ compiler are there. Whether the compiler is new enough, CMake says.
pub fn check() {
    let cmake = places::variable("CMAKE").unwrap_or_else(|| "cmake".into());
    let Some(version) = first_line(&cmake) else {
        fail("building libkvcache needs CMake 3.24 or newer, and there is none: install cmake, or set KVCACHE_LIB_DIR");
    };
    let number = version.rsplit(' ').next().unwrap_or("");
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (3, 24) {
        fail(&format!("building libkvcache needs CMake 3.24 or newer, and {cmake} is {number}"));
    }
    // The variables by which the cmake crate chooses a compiler; else CMake looks for these names.
    let target = env::var("TARGET").unwrap_or_default();
    let names =
        [format!("CXX_{target}"), format!("CXX_{}", target.replace('-', "_")), "TARGET_CXX".into(), "CXX".into()];
    let chosen = names.iter().find_map(|name| places::variable(name)).or_else(|| places::variable("HOST_CXX"));
    let candidates =
        chosen.map_or_else(|| ["c++", "g++", "clang++"].map(String::from).to_vec(), |given| [given].to_vec());
    if !candidates.iter().any(|compiler| first_line(compiler).is_some()) {
        let names = candidates.join(", ");
        fail(&format!("building libkvcache needs a C++20 compiler, and there is none ({names}): install one, or set KVCACHE_LIB_DIR"));
    }
}

/// What `program --version` prints first; a program may come with arguments.
fn first_line(program: &str) -> Option<String> {
    let mut words = program.split_whitespace();
    let output = Command::new(words.next()?).args(words).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or("").to_string())
}
