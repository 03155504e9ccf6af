//! Saved sequences: to files, writers and readers.
use crate::support::*;
use kvcache::*;
use std::io::{Cursor, Error as IoError, Read, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A sequence of 10 tokens, and what it holds.
fn chat(cache: &Cache) -> (Seq, History) {
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(cache, &mut [(sequence, &mut history, 10)], None, &mut Random(3));
    (sequence, history)
}

fn exported(cache: &Cache, sequence: Seq) -> Vec<f32> {
    cache.export(sequence, 0, .., Stream::NONE).unwrap().k.unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn files_and_streams_hold_the_same() {
    let (cache, other) = (cache(), cache());
    let (sequence, history) = chat(&cache);
    let tokens: Vec<i32> = (-3..7).collect();
    let options = SaveOptions { tokens: &tokens, section_bytes: 4096 };
    let path = std::env::temp_dir().join(format!("kvcache-{}.kvc", std::process::id()));
    cache.save(sequence, &path, &options, Stream::NONE).unwrap();
    let mut bytes = Vec::new();
    cache.save_to(sequence, &mut bytes, &options, Stream::NONE).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let (loaded, found) = other.load(&path, Stream::NONE).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((found, exported(&other, loaded)), (tokens.clone(), history.k.clone()));
    let (again, found) = other.load_from(&mut Cursor::new(&bytes), Stream::NONE).unwrap();
    assert_eq!((found, exported(&other, again)), (tokens, history.k));
    let mut without = Vec::new();
    cache.save_to(sequence, &mut without, &SaveOptions::default(), Stream::NONE).unwrap();
    assert!(other.load_from(&mut &without[..], Stream::NONE).unwrap().1.is_empty());
    other.check_invariants().unwrap();
}

/// Fails or panics at its second call.
struct Broken {
    calls: usize,
    panics: bool,
}

impl Broken {
    fn call(&mut self) -> std::io::Result<usize> {
        self.calls += 1;
        assert!(!self.panics, "a panic of a stream");
        Err(IoError::other("the stream is broken"))
    }
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        self.call()
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.call()
    }
}

#[test]
fn failures_and_panics_of_streams() {
    let cache = cache();
    let (sequence, _) = chat(&cache);
    let save = |stream: &mut Broken| cache.save_to(sequence, stream, &SaveOptions::default(), Stream::NONE);
    let load = |stream: &mut Broken| cache.load_from(stream, Stream::NONE).map(|_| ());
    for call in [&save as &dyn Fn(&mut Broken) -> Result<()>, &load] {
        let error = call(&mut Broken { calls: 0, panics: false }).unwrap_err();
        assert_eq!(error.status(), Status::IO);
        assert!(error.message().contains("the stream is broken"), "{error}");
        let caught = catch_unwind(AssertUnwindSafe(|| call(&mut Broken { calls: 0, panics: true })));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"a panic of a stream"));
    }
    assert_eq!(cache.stats(None).unwrap().num_sequences, 1);
}

#[test]
fn refused_files() {
    let cache = cache();
    let (sequence, _) = chat(&cache);
    let mut bytes = Vec::new();
    cache.save_to(sequence, &mut bytes, &SaveOptions::default(), Stream::NONE).unwrap();
    let status = |bytes: &[u8], cache: &Cache| cache.load_from(&mut &bytes[..], Stream::NONE).unwrap_err().status();
    assert_eq!(status(&bytes[..bytes.len() - 1], &cache), Status::CORRUPT);
    let wider = CacheConfig { layers: vec![Layer { head_dim: 32, ..layer() }], ..config() };
    assert_eq!(status(&bytes, &Cache::new(&context(), &wider).unwrap()), Status::LAYOUT);
    let error = cache.load("/none/chat.kvc", Stream::NONE).unwrap_err();
    assert_eq!(error.status(), Status::IO);
    assert!(error.message().starts_with("Cache::load: "), "{error}");
    let options = SaveOptions { tokens: &[1, 2], ..SaveOptions::default() };
    let error = cache.save(sequence, "chat.kvc", &options, Stream::NONE).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    let error = cache.save(sequence, "chat\0.kvc", &SaveOptions::default(), Stream::NONE).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
}
