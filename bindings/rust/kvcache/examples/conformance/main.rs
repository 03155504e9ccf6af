//! The runner of Rust for bindings/conformance, whose README.md has the format: replays scripts, and prints what each
//! operation gave.
//!
//!     KVCACHE_LIBRARY=... cargo run --release --features dynamic --example conformance -- SCRIPT...
mod configure;
mod operations_generated;
mod peers;
mod prefixes;
mod saves;
mod script;
mod sequences;
mod stateless;
mod steps;
mod tiers;
mod transfer;
mod value;

use script::{Done, Script, Stop};
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What an operation gave, by name.
pub type Results = Vec<(&'static str, String)>;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for path in std::env::args().skip(1) {
        writeln!(out, "script {}", path.rsplit('/').next().unwrap_or(&path))?;
        let (text, mut script) = (std::fs::read_to_string(&path)?, Script::default());
        for (number, line) in text.lines().enumerate() {
            if !line.is_empty() && !line.starts_with(['#', '=']) {
                writeln!(out, "{} {}", number + 1, answer(&mut script, line))?;
                out.flush()?; // whatever the next operation does
            }
        }
    }
    Ok(())
}

fn answer(script: &mut Script, line: &str) -> String {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or("").trim_start_matches('?').to_string();
    let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    script.words = words.filter_map(pair).collect();
    match catch_unwind(AssertUnwindSafe(|| run(script, &name))) {
        Ok(Ok(results)) => {
            let results = results.iter().map(|(key, value)| format!(" {key}={value}"));
            format!("OK{}", results.collect::<String>())
        }
        Ok(Err(Stop::Skip)) => "skip".into(),
        Ok(Err(Stop::Failed(why))) => format!("FAILED {why}"),
        Ok(Err(Stop::Error(error))) => status(&error),
        Err(_) => "FAILED a panic".into(),
    }
}

fn status(error: &kvcache::Error) -> String {
    let number = |number: Option<usize>| number.map_or(-1, |number| number as i64);
    let (group, required, available) = match error {
        kvcache::Error::OutOfPages { group, required, available, .. } => (*group, *required, *available),
        kvcache::Error::Capacity(failure)
        | kvcache::Error::Misuse(failure)
        | kvcache::Error::State(failure)
        | kvcache::Error::Device(failure)
        | kvcache::Error::Data(failure)
        | kvcache::Error::Internal(failure) => (failure.group, failure.required, failure.available),
        _ => (None, 0, 0),
    };
    let (index, group) = (number(error.index()), number(group));
    format!("{} index={index} required={required} available={available} group={group}", error.status())
}

fn run(script: &mut Script, name: &str) -> Done<Results> {
    for operations in [
        operations_generated::run,
        configure::run,
        sequences::run,
        prefixes::run,
        saves::run,
        tiers::run,
        steps::run,
        transfer::run,
        peers::run,
        stateless::run,
    ] {
        if let Some(results) = operations(script, name) {
            return results;
        }
    }
    Err(Stop::Failed(format!("unknown operation {name}")))
}

/// Numbers with commas.
pub fn list<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}
