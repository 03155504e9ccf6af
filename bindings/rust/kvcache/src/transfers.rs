//! Transfers: sequences to caches of this process, and of other processes and machines.
use crate::cache::{Cache, Seq};
use crate::config::wide;
use crate::error::{check, Error, Failure, Result, Status};
use crate::save::path_of;
use crate::sys;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_char, c_void, CString, OsString};
use std::mem::{forget, size_of, zeroed};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a transfer that is received may have. The default is nothing, and 30 seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveOptions {
    /// A sequence with the first tokens, as [`Cache::attach_prefix`] gives it: only the others travel.
    pub prefix: Option<Seq>,
    /// How long the peer may be silent; zero = 30 seconds. Both sides use it.
    pub timeout: Duration,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferProgress {
    /// The receiver has everything.
    pub done: bool,
    /// That all layers have received, or sent; with those of the prefix.
    pub tokens: usize,
    /// Of rows and states that were received, or sent.
    pub bytes: usize,
    /// Of a receiver that is done: the new sequence.
    pub sequence: Option<Seq>,
}

/// One cache computes a prompt, and another one decodes. Both are in one process, unless a transport reaches further.
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// # let context = Context::new(ContextConfig::new())?;
/// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 4, ..Layer::default() }];
/// # let config = CacheConfig { layers, capacity: Capacity::Tokens(256), ..CacheConfig::default() };
/// # let (prefill, decode) = (Cache::new(&context, &config)?, Cache::new(&context, &config)?);
/// # let computed = prefill.add()?;
/// # let row = [1f32; 4];
/// # let row = Tensor::new(&row, &[1, 1, 4])?;
/// # let step = prefill.begin(&Batch::new(&[computed], &[1]), Stream::NONE)?;
/// # step.append(0, &Append::new(row, row))?;
/// # step.end()?;
/// let incoming = decode.receive(1, &ReceiveOptions::default())?; // of a prompt with one token
/// let description = incoming.describe()?; // goes to the sender, in any way
/// let outgoing = prefill.send(computed, &description)?;
/// while !(outgoing.poll()?.done & incoming.poll()?.done) {} // between layers, or between steps of other sequences
/// let sequence = incoming.poll()?.sequence.unwrap();
/// # assert_eq!(decode.length(sequence)?, 1);
/// # Ok(())
/// # }
/// ```
impl Cache {
    /// Makes transfers of this cache use UCX, which reaches other processes and machines. It comes before the first transfer.
    /// `transports` is as `UCX_TLS`, "tcp" or "sm,tcp", and `devices` as `UCX_NET_DEVICES`, "lo" or "mlx5_0:1". Empty: what the
    /// environment says, or all. `KVCACHE_UCX_LIBRARY` names the file of the transport; else the system's loader finds
    /// `libkvcache_ucx.so.0`.
    pub fn use_ucx(&self, transports: &str, devices: &str) -> Result<()> {
        let library = transport_library("KVCACHE_UCX_LIBRARY", "libkvcache_ucx.so.0");
        let options = if devices.is_empty() { transports.into() } else { format!("{transports}/{devices}") };
        // SAFETY: libkvcache's own transport, as `use_ucx` of every language finds it.
        unsafe { self.open_transport("Cache::use_ucx", library.as_ref(), &options) }
    }

    /// Makes transfers of this cache use NIXL, which reaches other processes and machines. It comes before the first transfer.
    /// The options are "library" (the file of `libnixl_capi.so`; else `KVCACHE_NIXL_CAPI` names it), "agent", "backend", and
    /// parameters of the backend, such as `("engine_config", "TLS=tcp,NET_DEVICES=eth0")`. No value has a semicolon.
    /// `KVCACHE_NIXL_LIBRARY` names the file of the transport; else the system's loader finds `libkvcache_nixl.so.0`.
    pub fn use_nixl(&self, options: &[(&str, &str)]) -> Result<()> {
        let mut parts = Vec::new();
        for (name, value) in options {
            if name.is_empty() || name.contains(['=', ';']) || value.contains(';') {
                let message = format!("Cache::use_nixl: {name:?} = {value:?} is no option");
                return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
            }
            parts.push(format!("{name}={value}"));
        }
        let library = transport_library("KVCACHE_NIXL_LIBRARY", "libkvcache_nixl.so.0");
        // SAFETY: libkvcache's own transport, as `use_nixl` of every language finds it.
        unsafe { self.open_transport("Cache::use_nixl", library.as_ref(), &parts.join(";")) }
    }

    /// Makes transfers of this cache use another transport: a shared library that fills the table of `kvcache_transport.h`. It comes
    /// before the first transfer. `options` is text that the library defines. The library stays loaded.
    ///
    /// # Safety
    /// The library's initialisers and its `kvc_transport_open` do what `kvcache_transport.h` says.
    pub unsafe fn set_transport(&self, library: impl AsRef<Path>, options: &str) -> Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.open_transport("Cache::set_transport", library.as_ref(), options) }
    }

    unsafe fn open_transport(&self, function: &str, library: &Path, options: &str) -> Result<()> {
        let misuse = |what: String| Error::misuse(Status::INVALID_ARGUMENT, format!("{function}: {what}"));
        path_of("library", library).map_err(|error| misuse(error.message().into()))?;
        let options = CString::new(options).map_err(|_| misuse(format!("options {options:?} has a NUL")))?;
        // SAFETY: the caller's word.
        let plugin = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|problem| not_loaded(Status::IO, function, &problem))?;
        // SAFETY: the prototype of kvcache_transport.h.
        let open = unsafe { plugin.get::<Open>(c"kvc_transport_open") }.map(|open| *open);
        let open = open.map_err(|problem| not_loaded(Status::UNSUPPORTED, function, &problem))?;
        forget(plugin); // its functions are in use as long as the cache
                        // SAFETY: numbers, and pointers that may be null.
        let mut transport =
            RawTransport { struct_size: size_of::<RawTransport>() as u32, version: 2, ..unsafe { zeroed() } };
        // SAFETY: the caller's word: it fills a table of this version, or refuses.
        check(|error| unsafe { open(transport.version, options.as_ptr(), &mut transport, error) })
            .and_then(|()| {
                // SAFETY: a filled table, which the cache adopts if the call succeeds.
                check(|error| unsafe { sys::kvc_cache_set_transport(self.raw(), (&raw const transport).cast(), error) })
                    .inspect_err(|_| {
                        if let Some(close) = transport.close {
                            // SAFETY: no cache has adopted it.
                            unsafe { close(transport.this) }
                        }
                    })
            })
            .map_err(|error| error.of_function(function))
    }

    /// Reserves pages for a sequence of `num_tokens` tokens that another cache sends.
    pub fn receive(&self, num_tokens: usize, options: &ReceiveOptions) -> Result<Transfer> {
        let timeout_ms = match options.timeout {
            Duration::ZERO => 0,
            timeout => i32::try_from(timeout.as_millis().max(1)).unwrap_or(i32::MAX),
        };
        let args = sys::kvc_receive_args {
            num_tokens: wide(num_tokens),
            prefix: options.prefix.map_or(0, |prefix| prefix.0),
            timeout_ms,
            ..Default::default()
        };
        let mut id = 0;
        // SAFETY: the args have no pointers.
        check(|error| unsafe { sys::kvc_transfer_receive(self.raw(), &args, &mut id, error) })?;
        Ok(Transfer { cache: self.clone(), id, end: Mutex::new(None) })
    }

    /// Starts to send a sequence to the cache that `description` is from. It reaches the receiver's `num_tokens`, and is not
    /// extended before the transfer is done.
    ///
    /// With tensor parallelism, each rank of the sender opens each receiver's description. If the receiver needs no heads of this
    /// rank, the transfer is done at its first poll.
    pub fn send(&self, sequence: Seq, description: &[u8]) -> Result<Transfer> {
        let (mut id, bytes) = (0, description.as_ptr().cast());
        let count = wide(description.len());
        // SAFETY: `count` bytes; a sequence that may be gone: an error.
        check(|error| unsafe { sys::kvc_transfer_send(self.raw(), sequence.0, bytes, count, &mut id, error) })?;
        Ok(Transfer { cache: self.clone(), id, end: Mutex::new(None) })
    }
}

/// A sequence on its way; it keeps its cache alive. Both sides poll it until it is done. A transfer that is dropped before is
/// cancelled: a receiver frees its pages, and a sender's sequence is as it was.
#[derive(Debug)]
#[must_use = "a dropped transfer is cancelled"]
pub struct Transfer {
    cache: Cache,
    id: sys::kvc_transfer,
    end: Mutex<Option<TransferProgress>>, // None = it was not done when it was last polled
}

impl Transfer {
    /// What the receiver expects and where to send it: bytes for [`Cache::send`] of the other side. They are for one sender.
    pub fn describe(&self) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: no bytes are written.
        check(|error| unsafe {
            sys::kvc_transfer_describe(self.cache.raw(), self.id, null_mut(), 0, &mut count, error)
        })?;
        let mut bytes = vec![0u8; usize::try_from(count).unwrap_or(0)];
        let buffer = bytes.as_mut_ptr().cast();
        // SAFETY: `count` bytes.
        check(|error| unsafe {
            sys::kvc_transfer_describe(self.cache.raw(), self.id, buffer, count, &mut count, error)
        })?;
        Ok(bytes)
    }

    /// Moves the transfer on, and says how far it is. It waits for nothing. An error ends the transfer.
    pub fn poll(&self) -> Result<TransferProgress> {
        let mut end = self.end();
        if let Some(progress) = *end {
            return Ok(progress);
        }
        let mut info = sys::kvc_transfer_info::default();
        // SAFETY: an id of this cache, which may be gone: an error.
        check(|error| unsafe { sys::kvc_transfer_poll(self.cache.raw(), self.id, &mut info, error) })?;
        let progress = TransferProgress {
            done: info.done != 0,
            tokens: info.tokens as usize,
            bytes: info.bytes as usize,
            sequence: (info.sequence != 0).then_some(Seq(info.sequence)),
        };
        *end = progress.done.then_some(progress);
        Ok(progress)
    }

    /// Polls until the transfer is done. The progress of a receiver has the new sequence.
    pub fn wait(&self) -> Result<TransferProgress> {
        loop {
            if let Some(progress) = self.wait_timeout(Duration::from_secs(3600))? {
                return Ok(progress);
            }
        }
    }

    /// The same for so long. `None`: the transfer runs on, and can be waited for again.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<TransferProgress>> {
        let begin = Instant::now();
        for round in 0.. {
            let (progress, left) = (self.poll()?, timeout.saturating_sub(begin.elapsed()));
            if progress.done {
                return Ok(Some(progress));
            }
            if left.is_zero() {
                break;
            }
            if round > 100 {
                sleep(Duration::from_micros(200).min(left));
            }
        }
        Ok(None)
    }

    /// Ends the transfer. The peer learns of it. It does nothing after the end.
    pub fn cancel(&self) -> Result<()> {
        if self.end().is_some() {
            return Ok(());
        }
        // SAFETY: an id of this cache, which may be gone: an error.
        check(|error| unsafe { sys::kvc_transfer_cancel(self.cache.raw(), self.id, error) })
    }

    /// The C id, for calls of `kvcache::sys`. `self` owns it.
    pub fn as_raw(&self) -> sys::kvc_transfer {
        self.id
    }

    fn end(&self) -> MutexGuard<'_, Option<TransferProgress>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let _ = self.cancel(); // an error says that it is gone
    }
}

/// `kvc_transport` of `kvcache_transport.h`. The cache refuses a table of another size.
#[repr(C)]
struct RawTransport {
    struct_size: u32,
    version: u32,
    name: *const c_char,
    this: *mut c_void,
    max_message_bytes: i64,
    functions: [*const c_void; 6],
    close: Option<unsafe extern "C" fn(*mut c_void)>,
}

type Open = unsafe extern "C" fn(u32, *const c_char, *mut RawTransport, *mut sys::kvc_error) -> sys::kvc_status;

// The file of a transport: the one that the environment names, or that the system's loader finds.
fn transport_library(variable: &str, name: &str) -> OsString {
    std::env::var_os(variable).filter(|named| !named.is_empty()).unwrap_or_else(|| OsString::from(name))
}

fn not_loaded(status: Status, function: &str, problem: &libloading::Error) -> Error {
    let words = std::error::Error::source(problem).map_or_else(|| problem.to_string(), ToString::to_string);
    let message = format!("{function}: {words}");
    Failure { status, index: None, group: None, required: 0, available: 0, message }.into()
}
