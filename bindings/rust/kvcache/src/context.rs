//! A device and its threads.
use crate::error::{check, Result};
use crate::sys;
use crate::tensor::Device;
use std::ffi::{c_char, c_void, CStr, CString};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The level of a message of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Warning,
    Info,
    Debug,
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;
type ParallelFor = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Send + Sync;

/// What a context is opened with; the default is the CPU with every core that the process may use.
#[derive(Default)]
pub struct ContextConfig {
    device: Option<Device>,
    threads: usize,
    simd: Option<String>,
    parallel_for: Option<Box<ParallelFor>>,
    log: Option<Box<Log>>,
    validate: bool,
}

impl ContextConfig {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Threads that compute, the caller included.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// A SIMD target's name from [`Context::describe`], or "reference" (float64, for tests).
    pub fn simd(mut self, target: &str) -> Self {
        self.simd = Some(target.into());
        self
    }

    /// Computes on threads of the host: `parallel_for(n, item)` calls `item(i)` once for each `i < n`, in any order and
    /// on any threads, and returns when all are done. The calling thread computes items that it left out; a second call
    /// for an item is ignored.
    pub fn parallel_for(
        mut self,
        parallel_for: impl Fn(usize, &(dyn Fn(usize) + Sync)) + Send + Sync + 'static,
    ) -> Self {
        self.parallel_for = Some(Box::new(parallel_for));
        self
    }

    /// On a GPU, checks the index tensors that only the GPU reads. [`Context::check`] and later calls report bad
    /// values.
    pub fn validate(mut self, validate: bool) -> Self {
        self.validate = validate;
        self
    }

    /// Receives the library's messages, on the threads that call the library.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }
}

impl fmt::Debug for ContextConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("ContextConfig");
        fields.field("device", &self.device).field("threads", &self.threads).field("simd", &self.simd);
        fields.finish_non_exhaustive()
    }
}

/// An open device. A clone is a handle of the same context. The last handle, or the last cache in it, closes the
/// device.
#[derive(Debug, Clone)]
pub struct Context(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    raw: NonNull<sys::kvc_context>,
    _callbacks: Arc<ContextConfig>, // the library has its address: it lives until every cache is gone
}

// SAFETY: the header: any thread may call any function of a context. The callbacks are Send and Sync.
unsafe impl Send for Owned {}
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created by us, once. Caches hold an Arc of this, so they are gone.
        unsafe { sys::kvc_context_destroy(self.raw.as_ptr()) }
    }
}

impl Context {
    /// Opens a device. It starts no thread: workers start with the first compute call that is large enough.
    pub fn new(config: ContextConfig) -> Result<Self> {
        let simd = match config.simd.as_deref().map(CString::new) {
            None => None,
            Some(Ok(name)) => Some(name),
            Some(Err(_)) => Some(c"a name with NUL".into()), // the library says that there is none such
        };
        let callbacks = Arc::new(config);
        let user = Arc::as_ptr(&callbacks).cast_mut().cast::<c_void>();
        let device = callbacks.device.unwrap_or(Device::CPU);
        let raw_config = sys::kvc_context_config {
            device_type: device.device_type,
            device_id: device.device_id,
            num_threads: i32::try_from(callbacks.threads).unwrap_or(i32::MAX),
            simd: simd.as_ref().map_or(null(), |name| name.as_ptr()),
            parallel_for: callbacks.parallel_for.as_ref().map(|_| run_parallel as _),
            parallel_for_user: user,
            log: callbacks.log.as_ref().map(|_| write_log as _),
            log_user: user,
            flags: if callbacks.validate { sys::KVC_CONTEXT_VALIDATE } else { 0 },
            ..Default::default()
        };
        let mut raw = null_mut();
        // SAFETY: the config and what it points to live during the call, the callbacks as long as the context.
        check(|error| unsafe { sys::kvc_context_create(&raw_config, &mut raw, error) })?;
        let raw = NonNull::new(raw).expect("a created context");
        Ok(Self(Arc::new(Owned { raw, _callbacks: callbacks })))
    }

    /// The context as one JSON object: device, threads, simd (in use), simd_available.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the buffer has its capacity.
        text(|buffer, capacity, length, error| unsafe {
            sys::kvc_context_describe(self.raw(), buffer, capacity, length, error)
        })
    }

    /// Reports a bad value that the device has found by now in index tensors of earlier calls, if the context
    /// validates. On the CPU each call reports its own.
    pub fn check(&self) -> Result<()> {
        // SAFETY: a live context.
        check(|error| unsafe { sys::kvc_context_check(self.raw(), error) })
    }

    /// The C handle, for calls of `kvcache::sys` that this crate lacks. `self` owns it.
    pub fn as_raw(&self) -> *mut sys::kvc_context {
        self.raw()
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::kvc_context {
        self.0.raw.as_ptr()
    }
}

/// A text of unknown length: reads the length, makes room, and tries again if the text grew.
pub(crate) fn text(
    describe: impl Fn(*mut c_char, i64, *mut i64, *mut sys::kvc_error) -> sys::kvc_status,
) -> Result<String> {
    let mut length = 0;
    check(|error| describe(null_mut(), 0, &mut length, error))?;
    loop {
        let mut buffer = vec![0u8; length as usize + 1];
        let result = check(|error| describe(buffer.as_mut_ptr().cast(), buffer.len() as i64, &mut length, error));
        if matches!(&result, Err(error) if error.status() == crate::Status::BUFFER_TOO_SMALL) {
            continue;
        }
        result?;
        buffer.truncate(length as usize);
        return Ok(String::from_utf8_lossy(&buffer).into_owned());
    }
}

/// Runs the library's items on the host's `parallel_for`, each exactly once whatever that does: the library's memory
/// safety hangs on it.
unsafe extern "C" fn run_parallel(user: *mut c_void, n: i64, item: sys::kvc_parallel_item_fn, arg: *mut c_void) {
    struct Job(sys::kvc_parallel_item_fn, *mut c_void, Vec<AtomicBool>);
    // SAFETY: the library allows its items on any threads.
    unsafe impl Sync for Job {}
    impl Job {
        fn run(&self, index: usize) {
            let (Some(item), Some(started)) = (self.0, self.2.get(index)) else { return };
            if !started.swap(true, Ordering::Relaxed) {
                // SAFETY: an index in [0, n), once.
                unsafe { item(self.1, index as i64) }
            }
        }
    }
    // SAFETY: `user` is the config that the context owns.
    let config = unsafe { &*user.cast::<ContextConfig>() };
    let job = Job(item, arg, (0..n).map(|_| AtomicBool::new(false)).collect());
    if let Some(parallel_for) = &config.parallel_for {
        // A panic must not pass through the library. It has been printed; the rest is done here.
        let _ = catch_unwind(AssertUnwindSafe(|| parallel_for(n as usize, &|index| job.run(index))));
    }
    (0..n as usize).for_each(|index| job.run(index));
}

unsafe extern "C" fn write_log(user: *mut c_void, level: i32, message: *const c_char) {
    // SAFETY: `user` is the config that the context owns, the message a string for the time of the call.
    let (config, message) = unsafe { (&*user.cast::<ContextConfig>(), CStr::from_ptr(message)) };
    let level = match level as sys::kvc_log_level {
        sys::KVC_LOG_WARNING => LogLevel::Warning,
        sys::KVC_LOG_INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    if let Some(log) = &config.log {
        let _ = catch_unwind(AssertUnwindSafe(|| log(level, &message.to_string_lossy())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    unsafe extern "C" fn count(counts: *mut c_void, index: i64) {
        // SAFETY: eight of them.
        let counts = unsafe { &*counts.cast::<[AtomicUsize; 8]>() };
        counts[index as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whatever the host does, each item runs once.
    #[test]
    fn items_run_once_each() {
        let twice_and_beyond = ContextConfig::new().parallel_for(|n, item| {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..n / 2).for_each(item));
                (0..n / 2 + 1).for_each(item);
                item(n);
            });
        });
        let stops = ContextConfig::new().parallel_for(|_, item| {
            item(3);
            panic!("a panic of the test");
        });
        for config in [twice_and_beyond, stops, ContextConfig::new().parallel_for(|_, _| ())] {
            let counts: [AtomicUsize; 8] = Default::default();
            let (user, arg) = ((&raw const config).cast_mut().cast(), (&raw const counts).cast_mut().cast());
            // SAFETY: both live on.
            unsafe { run_parallel(user, 8, Some(count), arg) };
            assert_eq!(counts.map(AtomicUsize::into_inner), [1; 8]);
        }
    }
}
