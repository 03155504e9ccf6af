//! Saved sequences, in files of the folders that the driver names.
use crate::script::{Done, Script, Stop};
use crate::{list, Results};
use kvcache::*;
use std::path::PathBuf;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "save" => save(s),
        "load" => load(s),
        _ => return None,
    };
    Some(done)
}

pub fn path_in(variable: &str, s: &Script, key: &str) -> Done<PathBuf> {
    let file = s.word(key).ok_or_else(|| Stop::Failed(format!("no {key}")))?;
    Ok(PathBuf::from(std::env::var(variable).unwrap_or_else(|_| ".".into())).join(file))
}

fn save(s: &Script) -> Done<Results> {
    let options = SaveOptions { tokens: &s.list::<i32>("tokens")?, section_bytes: s.number("section_bytes")? };
    s.cache()?.save(s.sequence()?, path_in("KVCACHE_CONFORMANCE_SAVE", s, "file")?, &options, Stream::NONE)?;
    Ok(Vec::new())
}

fn load(s: &mut Script) -> Done<Results> {
    let (sequence, tokens) = s.cache()?.load(path_in("KVCACHE_CONFORMANCE_LOAD", s, "file")?, Stream::NONE)?;
    s.bind(&[sequence])?;
    Ok(vec![("tokens", list(tokens))])
}
