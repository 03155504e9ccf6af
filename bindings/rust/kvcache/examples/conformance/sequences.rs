//! Caches and sequences.
use crate::script::{Done, Script, Stop};
use crate::{list, Results};
use kvcache::*;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "cache_close" => cache_close(s),
        "add" => add(s),
        "fork" => fork(s),
        _ => return in_cache(s, name),
    };
    Some(done)
}

fn cache_close(s: &mut Script) -> Done<Results> {
    if let Some(cache) = s.caches.remove(&s.number("cache")?) {
        s.steps.retain(|_, step| step.cache().as_raw() != cache.as_raw()); // an open step would keep it
    }
    Ok(vec![])
}

fn add(s: &mut Script) -> Done<Results> {
    let made = s.cache()?.add_many(s.list::<i64>("seqs")?.len())?;
    s.bind(&made)?;
    Ok(vec![])
}

fn fork(s: &mut Script) -> Done<Results> {
    let (cache, parents) = (s.cache()?, s.sequences("parents")?);
    let positions: Vec<i64> = s.list("positions")?;
    let made = if !s.has("positions") {
        cache.fork(&parents, Stream::NONE)?
    } else if positions.len() == parents.len() {
        let at = |(parent, position): (&Seq, i64)| match position {
            -1 => Ok((*parent, cache.length(*parent).unwrap_or(0))), // an id that is gone: fork says it
            position => Ok((*parent, usize::try_from(position).map_err(|_| Stop::Skip)?)),
        };
        cache.fork_at(&parents.iter().zip(positions).map(at).collect::<Done<Vec<_>>>()?, Stream::NONE)?
    } else {
        return Err(Stop::Skip);
    };
    s.bind(&made)?;
    Ok(vec![])
}

fn in_cache(s: &Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "cache_describe" => s.cache().and_then(|cache| Ok(cache.describe()?)).map(|_| vec![]),
        "digest" => {
            let digest = s.cache().and_then(|cache| Ok(cache.digest()?));
            digest.map(|digest| vec![("digest", format!("{digest:016x}"))])
        }
        "stats" => stats(s),
        "pages" => pages(s),
        "nearest" => nearest(s),
        "streaming" => streaming(s),
        "set_streaming" => set_streaming(s),
        "commit" | "set_rope" => change(s, name).map(|()| vec![]),
        _ => return None,
    };
    Some(done)
}

fn stats(s: &Script) -> Done<Results> {
    let stats = s.cache()?.stats(s.group()?)?;
    Ok(vec![
        ("num_sequences", stats.num_sequences.to_string()),
        ("pages_total", stats.pages_total.to_string()),
        ("pages_used", stats.pages_used.to_string()),
        ("pages_free", stats.pages_free.to_string()),
        ("pages_shared", stats.pages_shared.to_string()),
        ("pages_peak", stats.pages_peak.to_string()),
        ("tokens_held", stats.tokens_held.to_string()),
        ("tokens_shared", stats.tokens_shared.to_string()),
        ("tokens_logical", stats.tokens_logical.to_string()),
        ("fragmentation_bytes", stats.fragmentation_bytes.to_string()),
        ("storage_bytes", stats.storage_bytes.to_string()),
    ])
}

fn pages(s: &Script) -> Done<Results> {
    let pages = s.cache()?.pages(s.sequence()?, s.number("group")?)?;
    Ok(vec![("pages", list(pages.iter().map(|page| page.map_or(-1, i64::from))))])
}

fn nearest(s: &Script) -> Done<Results> {
    let (before, after) = s.cache()?.nearest_positions(s.sequence()?, s.number("position")?)?;
    Ok(vec![("before", before.to_string()), ("after", after.map_or("-1".into(), |after| after.to_string()))])
}

fn streaming(s: &Script) -> Done<Results> {
    let (sinks, window) = s.cache()?.streaming(s.sequence()?)?.unwrap_or((0, 0));
    Ok(vec![("sinks", sinks.to_string()), ("window", window.to_string())])
}

fn set_streaming(s: &Script) -> Done<Results> {
    let (sinks, window, prefix_is_sink) = (s.number("sinks")?, s.number("window")?, s.has("prefix_is_sink"));
    let wanted = match window {
        0 if sinks == 0 && !prefix_is_sink => None,
        window => Some(StreamingWindow { sinks, window, prefix_is_sink }),
    };
    s.cache()?.set_streaming(&s.sequences("seqs")?, wanted)?;
    Ok(vec![])
}

fn change(s: &Script, name: &str) -> Done<()> {
    let (cache, sequences) = (s.cache()?, s.sequences("seqs")?);
    let leaf = |(sequence, leaf): (Seq, i64)| match leaf {
        -1 => Ok((sequence, None)),
        leaf => Ok((sequence, Some(usize::try_from(leaf).map_err(|_| Stop::Skip)?))),
    };
    match (name, s.word("set")) {
        ("commit", _) => {
            let leaves = s.pairs("leaves")?.into_iter().map(leaf).collect::<Done<Vec<_>>>()?;
            cache.commit(&leaves, Stream::NONE)?;
        }
        (_, Some("short")) => cache.set_rope(&sequences, RopeSet::Short)?,
        (_, Some("long")) => cache.set_rope(&sequences, RopeSet::Long)?,
        _ => return Err(Stop::Skip),
    }
    Ok(())
}
