//! Tiers: memory and folders that keep published pages and suspended sequences, and the jobs that move them.
use crate::cache::{Cache, Seq};
use crate::config::wide;
use crate::error::{check, Result};
use crate::prefix::{time, PrefixHit, PrefixQuery};
use crate::save::path_of;
use crate::sys;
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// When a page that is stored is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierSync {
    /// Before it becomes visible.
    #[default]
    Data,
    /// When the system writes it. After a loss of power it can be missing, and is never wrong.
    None,
    /// As `Data`, and its name too: what was stored survives a loss of power.
    Full,
}

/// Which published pages a tier stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierStore {
    #[default]
    Published,
    /// Those that the index had before the publish: a request came back to them.
    Reused,
    /// None: the tier is read only.
    Nothing,
    /// Those that the pools will evict next.
    Evicted,
}

impl TierStore {
    fn raw(self) -> i32 {
        let store = match self {
            TierStore::Published => sys::KVC_TIER_STORE_PUBLISHED,
            TierStore::Reused => sys::KVC_TIER_STORE_REUSED,
            TierStore::Nothing => sys::KVC_TIER_STORE_NOTHING,
            TierStore::Evicted => sys::KVC_TIER_STORE_EVICTED,
        };
        store as i32
    }
}

fn medium_of(medium: &Option<String>) -> Result<Option<CString>> {
    medium.as_ref().map(|medium| path_of("medium", Path::new(medium))).transpose()
}

/// How the threads of a folder's tier read files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierReads {
    /// As `IoUring` where the kernel allows it, else as `Blocking`.
    #[default]
    Any,
    /// Each thread reads one file at a time.
    Blocking,
    /// A thread reads several small files at once, by io_uring.
    IoUring,
}

/// How a folder keeps pages. The default has no limit, and stores all that is published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskTierOptions {
    /// The objects used least recently are removed beyond it; 0 = no limit.
    pub capacity_bytes: u64,
    pub sync: TierSync,
    pub store: TierStore,
    /// A publish of fewer tokens is not stored.
    pub min_tokens: usize,
    /// The name of the tier in messages of events, which no other tier has. `None`: "STORAGE"; of a host tier "CPU" if the cache
    /// is on a GPU, else "HOST"; with a number if that is taken.
    pub medium: Option<String>,
    pub reads: TierReads,
}

/// How memory of this process keeps pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostTierOptions {
    /// The objects used least recently are removed beyond it. At least 4096. Memory is taken when objects fill it.
    pub capacity_bytes: u64,
    pub store: TierStore,
    /// A publish of fewer tokens is not stored.
    pub min_tokens: usize,
    /// The name of the tier in messages of events, which no other tier has. `None`: "STORAGE"; of a host tier "CPU" if the cache
    /// is on a GPU, else "HOST"; with a number if that is taken.
    pub medium: Option<String>,
    /// For a cache on a GPU, which then copies pages to and from this memory directly. `capacity_bytes` is at least 65536, and
    /// all of it is allocated and locked when the tier is added, which can take seconds.
    pub pinned: bool,
}

/// The pages of a load as in [`PrefixOptions`](crate::PrefixOptions), and what computing would cost instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadOptions {
    /// 0 to 100.
    pub priority: u8,
    pub session: u64,
    pub time_to_live: u64,
    /// What it costs to compute one token, in nanoseconds. By the measurements of the tiers, the load ends where computing is
    /// faster. 0 = as the cache has measured it; `u64::MAX` = load in any case.
    pub token_ns: u64,
}

/// Pages of groups that went between the pools and all tiers, since the cache was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierTraffic {
    pub num_tiers: usize,
    /// Queued for their store, or being stored. 0: the tiers have all that they will get.
    pub pages_waiting: usize,
    pub pages_stored: usize,
    /// Evicted before they were copied, or too many for the queue.
    pub pages_dropped: usize,
    /// That a tier refused, or failed to store.
    pub pages_not_stored: usize,
    /// Of loads that run.
    pub pages_loading: usize,
    pub pages_loaded: usize,
    /// That a tier no longer had, or whose bytes were not right.
    pub pages_not_loaded: usize,
    /// Sequences that are suspended now.
    pub sequences_suspended: usize,
}

/// How calls of a step treat the layers of a sequence of [`LoadJob::attach`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingOptions {
    /// They wait until their layer is ready, instead of returning [`Status::PENDING`](crate::Status::PENDING).
    pub wait: bool,
    /// The job is cancelled this long after the call. Zero: no limit.
    pub timeout: Duration,
}

/// What a sequence of [`LoadJob::attach`] still waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingLoad {
    /// The layers before this one are ready.
    pub ready_layers: usize,
    /// Tokens of the sequence whose pages the job loads.
    pub tokens: usize,
    /// Pages of all groups that the job loads.
    pub pages: usize,
    pub pages_loaded: usize,
    /// The load cannot complete, so the sequence will become shorter.
    pub failed: bool,
}

/// Tiers keep published pages after they were evicted, and after the process has ended. The cache needs
/// [`crate::CacheConfig::prefix_index`] and [`crate::CacheConfig::fingerprint`].
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// # let context = Context::new(ContextConfig::new())?;
/// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
/// # let config = CacheConfig { layers, capacity: Capacity::Tokens(256), ..CacheConfig::default() };
/// # let directory = std::env::temp_dir().join(format!("kvcache-doc-{}", std::process::id()));
/// # let prompt = [1, 2, 3];
/// let cache = Cache::new(&context, &CacheConfig { prefix_index: true, fingerprint: Some([7; 32]), ..config })?;
/// cache.add_disk_tier(&directory, &DiskTierOptions { capacity_bytes: 100 << 30, ..DiskTierOptions::default() })?;
/// let query = PrefixQuery::new(&prompt);
/// if let (Some(job), _) = cache.load_prefix(&query, &LoadOptions::default())? {
///     job.wait()?; // or poll() between the steps of other sequences
/// }
/// let (sequence, hit) = cache.attach_prefix(&query, Stream::NONE)?; // finds what was loaded
/// # assert_eq!((cache.length(sequence)?, hit.tokens), (0, 0));
/// # drop(cache);
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok(())
/// # }
/// ```
impl Cache {
    /// Adds a folder that keeps published pages, below the tiers that were added before. It is made if it does not exist, and
    /// several processes may share it. The call reads the names in it.
    pub fn add_disk_tier(&self, directory: impl AsRef<Path>, options: &DiskTierOptions) -> Result<()> {
        let directory = path_of("directory", directory.as_ref())?;
        let medium = medium_of(&options.medium)?;
        let config = sys::kvc_tier_config {
            directory: directory.as_ptr(),
            capacity_bytes: time(options.capacity_bytes),
            sync: match options.sync {
                TierSync::Data => sys::KVC_TIER_SYNC_DATA,
                TierSync::None => sys::KVC_TIER_SYNC_NONE,
                TierSync::Full => sys::KVC_TIER_SYNC_FULL,
            } as i32,
            store: options.store.raw(),
            min_tokens: wide(options.min_tokens),
            medium: medium.as_ref().map_or(null(), |medium| medium.as_ptr()),
            flags: match options.reads {
                TierReads::Any => 0,
                TierReads::Blocking => sys::KVC_TIER_BLOCKING,
                TierReads::IoUring => sys::KVC_TIER_IO_URING,
            },
            ..Default::default()
        };
        // SAFETY: the config borrows two names for the time of the call.
        check(|error| unsafe { sys::kvc_cache_add_tier(self.raw(), &config, error) })
    }

    /// Adds memory of this process that keeps published pages after they were evicted, below the tiers that were added before.
    pub fn add_host_tier(&self, options: &HostTierOptions) -> Result<()> {
        let medium = medium_of(&options.medium)?;
        let config = sys::kvc_tier_config {
            flags: sys::KVC_TIER_HOST | if options.pinned { sys::KVC_TIER_PINNED } else { 0 },
            capacity_bytes: time(options.capacity_bytes),
            store: options.store.raw(),
            min_tokens: wide(options.min_tokens),
            medium: medium.as_ref().map_or(null(), |medium| medium.as_ptr()),
            ..Default::default()
        };
        // SAFETY: the config borrows a name for the time of the call.
        check(|error| unsafe { sys::kvc_cache_add_tier(self.raw(), &config, error) })
            .map_err(|error| error.of_function("Cache::add_host_tier"))
    }

    /// Starts to move the pages that only this sequence uses to a tier. They are free when [`LoadJob::poll`] or
    /// [`LoadJob::wait`] has seen the end of the job. Until then the sequence is busy, and suspended then: it keeps its id, its
    /// length and its settings. Each page goes to the first tier that takes it, and a host tier never evicts it. A job that has
    /// failed or was cancelled is an error of `poll`, and the sequence is as it was.
    ///
    /// ```
    /// # use kvcache::*;
    /// # fn main() -> Result<()> {
    /// # let context = Context::new(ContextConfig::new())?;
    /// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
    /// # let config = CacheConfig { layers, capacity: Capacity::Tokens(256), ..CacheConfig::default() };
    /// let cache = Cache::new(&context, &CacheConfig { prefix_index: true, fingerprint: Some([7; 32]), ..config })?;
    /// cache.add_host_tier(&HostTierOptions { capacity_bytes: 1 << 30, ..HostTierOptions::default() })?;
    /// let victim = cache.add()?;
    /// cache.suspend(victim)?.wait()?; // its pages are free
    /// cache.resume(victim)?.wait()?; // OutOfPages: later
    /// # Ok(())
    /// # }
    /// ```
    pub fn suspend(&self, sequence: Seq) -> Result<LoadJob> {
        let mut id = 0;
        // SAFETY: one number; an id that may be gone: an error.
        check(|error| unsafe { sys::kvc_seq_suspend(self.raw(), sequence.0, &mut id, error) })?;
        Ok(LoadJob { cache: self.clone(), id, tokens: Mutex::new(None) })
    }

    /// Starts to bring back a suspended sequence, which is usable when the job has ended. It takes all pages at once: after
    /// [`Error::OutOfPages`](crate::Error::OutOfPages) nothing has changed.
    pub fn resume(&self, sequence: Seq) -> Result<LoadJob> {
        let mut id = 0;
        // SAFETY: one number; an id that may be gone: an error.
        check(|error| unsafe { sys::kvc_seq_resume(self.raw(), sequence.0, &mut id, error) })?;
        Ok(LoadJob { cache: self.clone(), id, tokens: Mutex::new(None) })
    }

    /// Starts to load what the tiers have of a prefix and the pools lack; `None` = nothing, or computing is faster.
    /// [`Cache::attach_prefix`] finds it when the job has ended. The load holds one sequence and its pages while it runs. The
    /// hit is that of [`Cache::match_prefix`].
    pub fn load_prefix(&self, query: &PrefixQuery<'_>, options: &LoadOptions) -> Result<(Option<LoadJob>, PrefixHit)> {
        let options = sys::kvc_prefix_load_options {
            priority: options.priority.into(),
            session: options.session,
            time_to_live: time(options.time_to_live),
            token_ns: time(options.token_ns),
            ..Default::default()
        };
        let (mut id, mut hit) = (0, sys::kvc_prefix_hit::default());
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe {
            sys::kvc_prefix_load(self.raw(), &query.raw().query, &options, &mut hit, &mut id, error)
        })?;
        let job = LoadJob { cache: self.clone(), id, tokens: Mutex::new(None) };
        Ok(((id != 0).then_some(job), hit.into()))
    }

    /// What a sequence of [`LoadJob::attach`] still waits for; `None`: nothing.
    pub fn pending(&self, sequence: Seq) -> Result<Option<PendingLoad>> {
        let mut info = sys::kvc_pending_info::default();
        // SAFETY: an id that may be gone: an error.
        check(|error| unsafe { sys::kvc_seq_pending(self.raw(), sequence.0, &mut info, error) })?;
        Ok((info.job != 0).then_some(PendingLoad {
            ready_layers: info.ready_layers as usize,
            tokens: info.tokens as usize,
            pages: info.pages as usize,
            pages_loaded: info.pages_loaded as usize,
            failed: info.failed != 0,
        }))
    }

    /// Counts pages that were stored and loaded. An engine that shuts down waits until `pages_waiting` is 0.
    pub fn tier_traffic(&self) -> Result<TierTraffic> {
        let mut traffic = sys::kvc_tier_traffic::default();
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_tier_traffic(self.raw(), &mut traffic, error) })?;
        Ok(TierTraffic {
            num_tiers: traffic.num_tiers as usize,
            pages_waiting: traffic.pages_waiting as usize,
            pages_stored: traffic.pages_stored as usize,
            pages_dropped: traffic.pages_dropped as usize,
            pages_not_stored: traffic.pages_not_stored as usize,
            pages_loading: traffic.pages_loading as usize,
            pages_loaded: traffic.pages_loaded as usize,
            pages_not_loaded: traffic.pages_not_loaded as usize,
            sequences_suspended: traffic.sequences_suspended as usize,
        })
    }
}

/// A load, suspend or resume that runs; it keeps its cache alive. Any thread may call it. A job that is dropped before its end is
/// cancelled, and the drop waits for the pages that are being moved.
#[derive(Debug)]
#[must_use = "a dropped job is cancelled"]
pub struct LoadJob {
    cache: Cache,
    id: sys::kvc_job,
    tokens: Mutex<Option<usize>>, // that were loaded; None = its end was not seen
}

impl LoadJob {
    /// The number of tokens that were loaded, or the length of the suspended or resumed sequence; `None` while the job runs. It
    /// waits for nothing. If a suspend or resume has failed, the error ends the job.
    pub fn poll(&self) -> Result<Option<usize>> {
        let mut tokens = self.tokens();
        if tokens.is_none() {
            let mut info = sys::kvc_job_info::default();
            // SAFETY: an id of this cache, which may be gone: an error.
            check(|error| unsafe { sys::kvc_job_poll(self.cache.raw(), self.id, &mut info, error) })?;
            *tokens = (info.done != 0).then_some(info.tokens as usize);
        }
        Ok(*tokens)
    }

    /// Waits for the end of the job, and returns the number of tokens that were loaded.
    pub fn wait(&self) -> Result<usize> {
        loop {
            if let Some(tokens) = self.wait_timeout(Duration::from_secs(3600))? {
                return Ok(tokens);
            }
        }
    }

    /// The same for so long. `None`: the job runs on, and can be waited for again.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<usize>> {
        let (begin, mut pause) = (Instant::now(), Duration::from_micros(50));
        loop {
            let (tokens, left) = (self.poll()?, timeout.saturating_sub(begin.elapsed()));
            if tokens.is_some() || left.is_zero() {
                return Ok(tokens);
            }
            sleep(pause.min(left));
            pause = (2 * pause).min(Duration::from_millis(1));
        }
    }

    /// Makes a new sequence with the prefix that the job loads, before it is loaded, and returns it with its length: whole pages.
    /// Its steps can attend to each layer as soon as that is loaded. Until the job has ended, the sequence is pending: it can only
    /// be used in steps, and removed. The job must still be polled to its end.
    ///
    /// If a page cannot be loaded, calls of a step return [`Status::IO`](crate::Status::IO) or
    /// [`Status::CANCELLED`](crate::Status::CANCELLED). After the step was aborted and the job has ended, the sequence has the
    /// length of what was loaded. [`Status::PENDING`](crate::Status::PENDING) of this call: a tier still searches, so poll the job
    /// and try again.
    pub fn attach(&self, options: &PendingOptions) -> Result<(Seq, usize)> {
        let options = sys::kvc_pending_options {
            flags: if options.wait { sys::KVC_PENDING_WAIT } else { 0 },
            timeout_ns: i64::try_from(options.timeout.as_nanos()).unwrap_or(i64::MAX),
            ..Default::default()
        };
        let (mut sequence, mut tokens) = (0, 0);
        // SAFETY: an id of this cache, which may be gone: an error.
        check(|error| unsafe {
            sys::kvc_prefix_attach_pending(self.cache.raw(), self.id, &options, &mut sequence, &mut tokens, error)
        })?;
        Ok((Seq(sequence), tokens as usize))
    }

    /// Ends the job early. Pages that are being read are waited for: poll or wait for its end. Nothing happens after its end.
    pub fn cancel(&self) -> Result<()> {
        if self.tokens().is_some() {
            return Ok(());
        }
        // SAFETY: an id of this cache, which may be gone: an error.
        check(|error| unsafe { sys::kvc_job_cancel(self.cache.raw(), self.id, error) })
    }

    /// A descriptor that is readable while some job of the cache has ended and was not polled since: for `poll`, epoll and the
    /// like. Do not read it. It is the cache's.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        let mut descriptor = -1;
        // SAFETY: one number.
        check(|error| unsafe { sys::kvc_cache_job_descriptor(self.cache.raw(), &mut descriptor, error) })?;
        // SAFETY: it is open as long as the cache, which the job keeps alive.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// The C id, for calls of `kvcache::sys`. `self` owns it.
    pub fn as_raw(&self) -> sys::kvc_job {
        self.id
    }

    fn tokens(&self) -> MutexGuard<'_, Option<usize>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LoadJob {
    fn drop(&mut self) {
        if self.id != 0 && self.tokens().is_none() {
            // SAFETY: an id of this cache, which may be gone: nothing happens.
            unsafe { sys::kvc_job_cancel(self.cache.raw(), self.id, null_mut()) };
            let _ = self.wait(); // an error says that it is gone
        }
    }
}
