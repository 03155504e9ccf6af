//! Tiers: what was evicted, or was computed by an earlier cache, is loaded instead of computed.
use crate::support::*;
use kvcache::*;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kvcache-tier-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn without_tier() -> Cache {
    let config = CacheConfig { prefix_index: true, fingerprint: Some([7; 32]), ..config() };
    Cache::new(&context(), &config).unwrap()
}

fn tiered(folder: &Path) -> Cache {
    let cache = without_tier();
    cache.add_disk_tier(folder, &DiskTierOptions::default()).unwrap();
    cache
}

fn prompt(n: i32) -> Vec<i32> {
    (0..n).collect()
}

/// Computes a prompt with the K and V of a seed, publishes it, and waits until the tier has it.
fn store(cache: &Cache, prompt: &[i32], options: &PrefixOptions) -> History {
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(cache, &mut [(sequence, &mut history, prompt.len())], None, &mut Random(5));
    cache.publish_prefix(sequence, &PrefixQuery::new(prompt), options).unwrap();
    cache.remove(&[sequence]).unwrap();
    while cache.tier_traffic().unwrap().pages_waiting > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    history
}

fn load(cache: &Cache, prompt: &[i32]) -> Option<LoadJob> {
    let options = LoadOptions { token_ns: u64::MAX, ..LoadOptions::default() };
    cache.load_prefix(&PrefixQuery::new(prompt), &options).unwrap().0
}

#[test]
fn a_later_cache_loads_what_this_one_computed() {
    let (folder, prompt) = (Folder::new("later"), prompt(30));
    let first = tiered(&folder.0);
    let mut history = store(&first, &prompt, &PrefixOptions::default());
    let stored = TierTraffic { num_tiers: 1, pages_stored: 7, ..TierTraffic::default() };
    assert_eq!(first.tier_traffic().unwrap(), stored);
    drop(first);

    let cache = tiered(&folder.0);
    let (job, hit) = cache.load_prefix(&PrefixQuery::new(&prompt), &LoadOptions::default()).unwrap();
    assert_eq!((hit.tokens, hit.load_tokens, hit.token_ns), (0, 28, 0));
    assert_eq!(hit.tier_tokens, [28, 0, 0, 0, 0, 0, 0, 0]);
    let job = job.unwrap();
    assert!(job.descriptor().unwrap().as_raw_fd() >= 0);
    assert_eq!((job.wait().unwrap(), job.poll().unwrap()), (28, Some(28)));
    job.cancel().unwrap(); // it has ended: nothing happens
    let (sequence, hit) = cache.attach_prefix(&PrefixQuery::new(&prompt), Stream::NONE).unwrap();
    assert_eq!((hit.tokens, hit.load_tokens), (28, 28));
    history.truncate(28);
    run_step(&cache, &mut [(sequence, &mut history, 2)], None, &mut Random(6)); // attends to the K and V of the first cache
    assert!(load(&cache, &prompt).is_none());
    assert_eq!(cache.tier_traffic().unwrap().pages_loaded, 7);
    cache.check_invariants().unwrap();
}

#[test]
fn nothing_crosses_salts_and_private_prefixes_stay() {
    let (folder, prompt) = (Folder::new("private"), prompt(16));
    let cache = tiered(&folder.0);
    store(&cache, &prompt, &PrefixOptions { keep_private: true, ..PrefixOptions::default() });
    assert_eq!(cache.tier_traffic().unwrap().pages_stored, 0);
    cache.drop_prefix(&PrefixQuery::default()).unwrap();
    store(&cache, &prompt, &PrefixOptions::default());
    cache.drop_prefix(&PrefixQuery::default()).unwrap();
    let salted = PrefixQuery { salt: 1, ..PrefixQuery::new(&prompt) };
    assert!(cache.load_prefix(&salted, &LoadOptions::default()).unwrap().0.is_none());
    assert_eq!(load(&cache, &prompt).unwrap().wait_timeout(Duration::from_secs(60)).unwrap(), Some(16));
}

#[test]
fn options_of_a_tier() {
    let (folder, prompt) = (Folder::new("options"), prompt(16));
    let stores = |options: DiskTierOptions| {
        let _ = std::fs::remove_dir_all(&folder.0);
        let cache = without_tier();
        cache.add_disk_tier(&folder.0, &options).unwrap();
        store(&cache, &prompt, &PrefixOptions::default());
        cache.tier_traffic().unwrap().pages_stored
    };
    let default = DiskTierOptions::default();
    assert_eq!(stores(DiskTierOptions { sync: TierSync::None, min_tokens: 16, ..default.clone() }), 4);
    assert_eq!(stores(DiskTierOptions { sync: TierSync::Full, min_tokens: 17, ..default.clone() }), 0);
    assert_eq!(stores(DiskTierOptions { store: TierStore::Reused, ..default.clone() }), 0); // the index had none of it
    assert_eq!(stores(DiskTierOptions { store: TierStore::Nothing, ..default.clone() }), 0);
    assert_eq!(stores(DiskTierOptions { store: TierStore::Evicted, ..default }), 0);
    // enough pages are free
}

/// A job that is cancelled twice, or dropped while it runs, gives its pages and its sequence back.
#[test]
fn cancelled_and_dropped_jobs() {
    let (folder, prompt) = (Folder::new("cancel"), prompt(64));
    store(&tiered(&folder.0), &prompt, &PrefixOptions::default());
    for dropped in [false, true] {
        let cache = tiered(&folder.0);
        let job = load(&cache, &prompt).unwrap();
        if dropped {
            drop(job);
        } else {
            job.cancel().unwrap();
            job.cancel().unwrap();
            let loaded = job.wait().unwrap();
            let all = PrefixQuery { allow_all: true, ..PrefixQuery::new(&prompt) };
            assert!(loaded <= 64 && cache.match_prefix(&all).unwrap().tokens == loaded);
        }
        let stats = cache.stats(None).unwrap();
        assert_eq!((stats.num_sequences, stats.pages_used), (0, stats.pages_idle));
        assert_eq!(cache.tier_traffic().unwrap().pages_loading, 0);
        cache.clear().unwrap(); // BUSY while a load runs
        cache.check_invariants().unwrap();
    }
}

#[test]
fn a_job_keeps_its_cache() {
    let (folder, prompt) = (Folder::new("keeps"), prompt(32));
    store(&tiered(&folder.0), &prompt, &PrefixOptions::default());
    let job = load(&tiered(&folder.0), &prompt).unwrap();
    let waits = std::thread::spawn(move || job.wait().unwrap());
    assert_eq!(waits.join().unwrap(), 32);
}

#[test]
fn a_job_that_another_poll_ended() {
    let (folder, prompt) = (Folder::new("ended"), prompt(32));
    store(&tiered(&folder.0), &prompt, &PrefixOptions::default());
    let cache = tiered(&folder.0);
    let job = load(&cache, &prompt).unwrap();
    let mut info = sys::kvc_job_info::default();
    while info.done == 0 {
        // SAFETY: a live cache, and a job of it.
        let status = unsafe { sys::kvc_job_poll(cache.as_raw(), job.as_raw(), &mut info, std::ptr::null_mut()) };
        assert_eq!(status, 0);
    }
    for error in [job.poll().unwrap_err(), job.wait().unwrap_err(), job.cancel().unwrap_err()] {
        assert_eq!(error.status(), Status::STALE_ID);
        assert!(error.message().starts_with("LoadJob::"), "{error}");
    }
}

#[test]
fn refused_calls() {
    let folder = Folder::new("refused");
    let default = DiskTierOptions::default();
    let add =
        |cache: &Cache, folder: &Path, options: &DiskTierOptions| cache.add_disk_tier(folder, options).unwrap_err();
    let error = add(&cache(), &folder.0, &default);
    assert_eq!(
        (error.status(), error.message()),
        (Status::UNSUPPORTED, "Cache::add_disk_tier: a tier needs prefix_index")
    );
    let plain = without_tier();
    let error = plain.load_prefix(&PrefixQuery::new(&[1, 2]), &LoadOptions::default()).unwrap_err();
    assert_eq!((error.status(), error.message()), (Status::UNSUPPORTED, "Cache::load_prefix: the cache has no tier"));
    assert_eq!(plain.tier_traffic().unwrap(), TierTraffic::default());
    let error = add(&plain, Path::new("a\0b"), &default);
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    let error = add(&plain, &folder.0, &DiskTierOptions { medium: Some("a\0b".into()), ..default.clone() });
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    let error = add(&plain, &folder.0, &DiskTierOptions { medium: Some("CPU".into()), ..default.clone() });
    assert!(error.message().ends_with("medium \"CPU\" is taken"), "{error}");

    std::fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("file");
    std::fs::write(&file, "no folder").unwrap();
    let error = add(&plain, &file.join("tier"), &default);
    assert_eq!(error.status(), Status::IO);
    assert!(error.message().contains(file.join("tier").to_str().unwrap()), "{error}");
    assert_eq!(plain.tier_traffic().unwrap().num_tiers, 0);

    let cache = tiered(&folder.0.join("tier"));
    let options = LoadOptions { priority: 101, ..LoadOptions::default() };
    let error = cache.load_prefix(&PrefixQuery::new(&[1, 2]), &options).unwrap_err();
    assert_eq!(error.status(), Status::OUT_OF_RANGE);
    assert!(error.message().starts_with("Cache::load_prefix: priority 101"), "{error}");
}

#[test]
fn a_sequence_is_attached_to_a_load_that_runs() {
    let (folder, prompt) = (Folder::new("pending"), prompt(30));
    let first = tiered(&folder.0);
    let mut history = store(&first, &prompt, &PrefixOptions::default());
    drop(first);

    let cache = tiered(&folder.0);
    let job = load(&cache, &prompt).unwrap();
    let options = PendingOptions { wait: true, timeout: Duration::from_secs(60) };
    let (sequence, tokens) = job.attach(&options).unwrap();
    assert_eq!((tokens, cache.length(sequence).unwrap()), (28, 28));
    let waiting = cache.pending(sequence).unwrap().unwrap(); // until a step or a poll has seen the end of the load
    assert_eq!((waiting.tokens, waiting.pages, waiting.failed), (28, 7, false));
    assert!(waiting.pages_loaded <= 7);
    assert_eq!(cache.fork(&[sequence], Stream::NONE).unwrap_err().status(), Status::PENDING);
    history.truncate(28);
    run_step(&cache, &mut [(sequence, &mut history, 2)], None, &mut Random(6));
    assert_eq!(cache.pending(sequence).unwrap(), None);
    assert_eq!(job.wait().unwrap(), 28);
    let error = job.attach(&PendingOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::STALE_ID);
    assert!(error.message().starts_with("LoadJob::attach: job"), "{error}");
    assert_eq!(cache.pending(Seq(12345)).unwrap_err().status(), Status::STALE_ID);
    cache.check_invariants().unwrap();
}

#[test]
fn a_resumed_sequence_goes_on() {
    let cache = without_tier();
    cache.add_host_tier(&HostTierOptions { capacity_bytes: 1 << 20, ..HostTierOptions::default() }).unwrap();
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(&cache, &mut [(sequence, &mut history, 30)], None, &mut Random(5));
    assert_eq!(cache.suspend(sequence).unwrap().wait().unwrap(), 30);
    assert_eq!(cache.tier_traffic().unwrap().sequences_suspended, 1);
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
    assert_eq!(cache.fork(&[sequence], Stream::NONE).unwrap_err().status(), Status::SUSPENDED);
    assert_eq!(cache.resume(sequence).unwrap().wait().unwrap(), 30);
    run_step(&cache, &mut [(sequence, &mut history, 2)], None, &mut Random(6)); // it attends to what came back
    assert_eq!(cache.resume(sequence).unwrap_err().status(), Status::ORDER);
    let error = cache.add_host_tier(&HostTierOptions { capacity_bytes: 10, ..HostTierOptions::default() }).unwrap_err();
    assert!(error.message().starts_with("Cache::add_host_tier: capacity_bytes is 10"), "{error}");
    let pinned = HostTierOptions { capacity_bytes: 1 << 20, pinned: true, ..HostTierOptions::default() };
    assert_eq!(cache.add_host_tier(&pinned).unwrap_err().status(), Status::UNSUPPORTED); // it is on the CPU
    drop(cache.suspend(sequence).unwrap()); // cancels it, or it had ended
    cache.check_invariants().unwrap();
}
