//! Tiers: memory, and folders in those that the driver names.
use crate::prefixes::{results, Prompt};
use crate::saves::path_in;
use crate::script::{Done, Script, Stop};
use crate::{list, Results};
use kvcache::*;
use std::time::Duration;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "add_tier" => add_tier(s),
        "load_prefix" => load_prefix(s),
        "attach_pending" => attach_pending(s),
        "wait_job" => wait_job(s),
        "suspend" => moved(s, Cache::suspend),
        "resume" => moved(s, Cache::resume),
        "tier_traffic" => tier_traffic(s),
        _ => return None,
    };
    Some(done)
}

fn add_tier(s: &Script) -> Done<Results> {
    let unknown = |word: &str| Err(Stop::Failed(format!("no such word: {word}")));
    let store = match s.word("store") {
        None | Some("published") => TierStore::Published,
        Some("reused") => TierStore::Reused,
        Some("nothing") => TierStore::Nothing,
        Some("evicted") => TierStore::Evicted,
        Some(word) => return unknown(word),
    };
    let (capacity_bytes, min_tokens) = (s.number("capacity_bytes")?, s.number("min_tokens")?);
    let medium = s.word("medium").map(String::from);
    if s.has("host") {
        s.cache()?.add_host_tier(&HostTierOptions {
            capacity_bytes,
            store,
            min_tokens,
            medium,
            pinned: s.has("pinned"),
        })?;
        return Ok(Vec::new());
    }
    let options = DiskTierOptions {
        capacity_bytes,
        sync: match s.word("sync") {
            None | Some("data") => TierSync::Data,
            Some("none") => TierSync::None,
            Some("full") => TierSync::Full,
            Some(word) => return unknown(word),
        },
        store,
        min_tokens,
        medium,
        reads: match s.word("reads") {
            None | Some("any") => TierReads::Any,
            Some("blocking") => TierReads::Blocking,
            Some("io_uring") => TierReads::IoUring,
            Some(word) => return unknown(word),
        },
    };
    let folder = if s.has("of_first") { "KVCACHE_CONFORMANCE_LOAD" } else { "KVCACHE_CONFORMANCE_SAVE" };
    s.cache()?.add_disk_tier(path_in(folder, s, "directory")?, &options)?;
    Ok(Vec::new())
}

fn moved(s: &Script, start: fn(&Cache, Seq) -> Result<LoadJob>) -> Done<Results> {
    let tokens = start(s.cache()?, s.sequence()?)?.wait()?;
    Ok(vec![("tokens", tokens.to_string())])
}

fn load_prefix(s: &Script) -> Done<Results> {
    let options = LoadOptions {
        priority: s.number("priority")?,
        session: s.number::<i64>("session")? as u64,
        time_to_live: s.number("time_to_live")?,
        token_ns: s.optional("token_ns")?.unwrap_or(u64::MAX),
    };
    let (job, hit) = s.cache()?.load_prefix(&Prompt::of(s)?.query(s)?, &options)?;
    if let (Some(job), true) = (&job, s.has("cancel")) {
        job.cancel()?;
    }
    let loaded = job.map_or(Ok(0), |job| job.wait())?;
    if s.has("cancel") {
        return Ok(Vec::new());
    }
    let tiers = hit.tier_tokens.iter().rposition(|&tokens| tokens > 0).map_or(0, |last| last + 1);
    let more = vec![
        ("load_tokens", hit.load_tokens.to_string()),
        ("tier_tokens", list(&hit.tier_tokens[..tiers])),
        ("loaded", loaded.to_string()),
    ];
    Ok([results(&hit), more].concat())
}

fn attach_pending(s: &mut Script) -> Done<Results> {
    let options = LoadOptions { token_ns: u64::MAX, ..LoadOptions::default() };
    let (job, _) = s.cache()?.load_prefix(&Prompt::of(s)?.query(s)?, &options)?;
    let job = job.ok_or(Stop::Failed("there is nothing to load".into()))?;
    let (sequence, tokens) = job.attach(&PendingOptions { wait: true, ..PendingOptions::default() })?;
    s.bind(&[sequence])?;
    s.job = Some(job);
    Ok(vec![("tokens", tokens.to_string())])
}

fn wait_job(s: &mut Script) -> Done<Results> {
    let job = s.job.take().ok_or(Stop::Skip)?;
    let loaded = job.wait()?;
    let pending = s.cache()?.pending(s.sequence()?)?.is_some();
    Ok(vec![("loaded", loaded.to_string()), ("pending", i32::from(pending).to_string())])
}

fn tier_traffic(s: &Script) -> Done<Results> {
    loop {
        let traffic = s.cache()?.tier_traffic()?;
        if traffic.pages_waiting == 0 {
            return Ok(vec![
                ("num_tiers", traffic.num_tiers.to_string()),
                ("stored", traffic.pages_stored.to_string()),
                ("dropped", traffic.pages_dropped.to_string()),
                ("not_stored", traffic.pages_not_stored.to_string()),
                ("loading", traffic.pages_loading.to_string()),
                ("loaded", traffic.pages_loaded.to_string()),
                ("not_loaded", traffic.pages_not_loaded.to_string()),
                ("suspended", traffic.sequences_suspended.to_string()),
            ]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
