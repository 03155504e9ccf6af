//! Saved sequences: to files, writers and readers.
use crate::cache::{Cache, Seq, Stream};
use crate::config::wide;
use crate::error::{check, Error, Failure, Result, Status};
use crate::sys;
use std::any::Any;
use std::ffi::{c_void, CString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;

/// What [`Cache::save`] writes besides the sequence. The default is nothing, in sections of 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaveOptions<'a> {
    /// The ids of the sequence's tokens, which a load then returns; empty = they are not saved.
    pub tokens: &'a [i32],
    /// Bytes that one checksum covers, and that a load holds at once: a power of two; 0 = 1 MiB.
    pub section_bytes: usize,
}

/// A writer or a reader that C's callbacks use, and how it failed.
struct Place<T> {
    stream: T,
    failure: Option<std::io::Error>,
    panic: Option<Box<dyn Any + Send>>,
    /// What was read so far, to be read again, and how much of it was.
    seen: Vec<u8>,
    at: usize,
}

impl<T> Place<T> {
    fn new(stream: T) -> Self {
        Self { stream, failure: None, panic: None, seen: Vec::new(), at: 0 }
    }

    /// Runs a callback's work. A failure and a panic are kept until the call has returned.
    fn run(&mut self, work: impl FnOnce(&mut Self) -> std::io::Result<i64>) -> i64 {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(count)) => count,
            Ok(Err(failure)) => {
                self.failure = Some(failure);
                -1
            }
            Err(panic) => {
                self.panic = Some(panic);
                -1
            }
        }
    }

    fn finish<R>(&mut self, result: Result<R>) -> Result<R> {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        let Some(failure) = self.failure.take() else { return result };
        result.map_err(|error| {
            let message = format!("{}: {failure}", error.message());
            Error::from(Failure { status: Status::IO, index: None, group: None, required: 0, available: 0, message })
        })
    }
}

unsafe extern "C" fn write(user: *mut c_void, data: *const c_void, bytes: i64) -> i32 {
    // SAFETY: `user` is the place of the call that runs, and C lends it `bytes` bytes.
    let (place, data) = unsafe {
        (&mut *user.cast::<Place<&mut dyn Write>>(), std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize))
    };
    place.run(|place| place.stream.write_all(data).map(|()| 0)) as i32
}

unsafe extern "C" fn read(user: *mut c_void, data: *mut c_void, bytes: i64) -> i64 {
    let bytes = bytes as usize;
    // SAFETY: `user` is the place of the call that runs, and C lends it `bytes` bytes, which are made to hold zeros first.
    let (place, data) = unsafe {
        data.cast::<u8>().write_bytes(0, bytes);
        (&mut *user.cast::<Place<&mut dyn Read>>(), std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes))
    };
    place.run(|place| {
        if place.at < place.seen.len() {
            let count = bytes.min(place.seen.len() - place.at);
            data[..count].copy_from_slice(&place.seen[place.at..place.at + count]);
            place.at += count;
            return Ok(wide(count));
        }
        loop {
            match place.stream.read(data) {
                Ok(count) => {
                    let count = count.min(bytes); // a reader may say anything
                    if place.seen.len() <= MOST_SEEN {
                        place.seen.extend_from_slice(&data[..count]);
                        place.at = place.seen.len();
                    }
                    return Ok(wide(count));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    })
}

/// A header is shorter: what follows it is never read twice.
const MOST_SEEN: usize = 16 << 20;

pub(crate) fn path_of(name: &str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::misuse(Status::INVALID_ARGUMENT, format!("{name} {} has a NUL", path.display())))
}

/// Sequences in files:
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// # let context = Context::new(ContextConfig::new())?;
/// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
/// # let config = CacheConfig { layers, capacity: Capacity::Tokens(256), ..CacheConfig::default() };
/// # let cache = Cache::new(&context, &config)?;
/// # let chat = cache.add()?;
/// # let path = std::env::temp_dir().join(format!("chat-{}.kvc", std::process::id()));
/// cache.save(chat, &path, &SaveOptions::default(), Stream::NONE)?;
/// let (again, tokens) = cache.load(&path, Stream::NONE)?; // in this process or another
/// # assert!(tokens.is_empty() && cache.lengths(&[again])? == [0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
impl Cache {
    /// Saves a sequence: K and V of every group, states with their checkpoints, its settings and its token ids. The file appears
    /// whole, or not at all. The sequence is busy meanwhile, so save a fork to go on with it at once.
    pub fn save(&self, sequence: Seq, path: impl AsRef<Path>, options: &SaveOptions<'_>, stream: Stream) -> Result<()> {
        let path = path_of("path", path.as_ref())?;
        self.save_with(sequence, options, stream, sys::kvc_save_args { path: path.as_ptr(), ..Default::default() })
    }

    /// The same, to a writer. Its errors have the status `IO`.
    pub fn save_to(
        &self,
        sequence: Seq,
        writer: &mut dyn Write,
        options: &SaveOptions<'_>,
        stream: Stream,
    ) -> Result<()> {
        let mut place = Place::new(writer);
        let user: *mut Place<&mut dyn Write> = &mut place;
        let args = sys::kvc_save_args { write: Some(write), write_user: user.cast(), ..Default::default() };
        let result = self.save_with(sequence, options, stream, args);
        place.finish(result)
    }

    fn save_with(
        &self,
        sequence: Seq,
        options: &SaveOptions<'_>,
        stream: Stream,
        place: sys::kvc_save_args,
    ) -> Result<()> {
        let args = sys::kvc_save_args {
            tokens: options.tokens.as_ptr(),
            num_tokens: wide(options.tokens.len()),
            section_bytes: wide(options.section_bytes),
            ..place
        };
        // SAFETY: `args` borrows a path or a place, and `num_tokens` tokens, for the time of the call.
        check(|error| unsafe { sys::kvc_seq_save(self.raw(), sequence.0, &args, stream.raw(), error) })
    }

    /// Adds a sequence with the contents of a saved one, and returns its token ids, if they were saved. It continues with the
    /// same bits.
    pub fn load(&self, path: impl AsRef<Path>, stream: Stream) -> Result<(Seq, Vec<i32>)> {
        let path = path_of("path", path.as_ref())?;
        self.load_with(stream, || sys::kvc_load_args { path: path.as_ptr(), ..Default::default() })
    }

    /// The same, from a reader. Its errors have the status `IO`.
    pub fn load_from(&self, reader: &mut dyn Read, stream: Stream) -> Result<(Seq, Vec<i32>)> {
        let mut place = Place::new(reader);
        let user: *mut Place<&mut dyn Read> = &mut place;
        let result = self.load_with(stream, || {
            // SAFETY: no call uses the place now; a second call reads its header again.
            unsafe { (*user).at = 0 };
            sys::kvc_load_args { read: Some(read), read_user: user.cast(), ..Default::default() }
        });
        place.finish(result)
    }

    /// How many token ids there are is in the header, so the first call has room for one.
    fn load_with(&self, stream: Stream, place: impl Fn() -> sys::kvc_load_args) -> Result<(Seq, Vec<i32>)> {
        let mut tokens = vec![0i32; 1];
        loop {
            let (mut sequence, mut count) = (0, 0i64);
            let args = sys::kvc_load_args { tokens: tokens.as_mut_ptr(), capacity: wide(tokens.len()), ..place() };
            // SAFETY: `args` borrows a path or a place, and room for `capacity` tokens, for the time of the call.
            let loaded = check(|error| unsafe {
                sys::kvc_seq_load(self.raw(), &args, stream.raw(), &mut sequence, &mut count, error)
            });
            match loaded {
                Err(error) if error.status() == Status::BUFFER_TOO_SMALL && count > wide(tokens.len()) => {
                    tokens.resize(count as usize, 0);
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    tokens.truncate(count as usize);
                    return Ok((Seq(sequence), tokens));
                }
            }
        }
    }
}
