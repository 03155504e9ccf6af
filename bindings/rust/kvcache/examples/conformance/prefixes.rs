//! The prefix index and its events.
use crate::script::{Done, Script};
use crate::stateless::{bytes, media};
use crate::{list, Results};
use kvcache::*;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "match_prefix" => match_prefix(s),
        "attach_prefix" => attach_prefix(s),
        "publish_prefix" => publish_prefix(s),
        "drop_prefix" => drop_prefix(s),
        "drop_session" => drop_session(s),
        "set_prefix_priority" => set_prefix_priority(s),
        "pin_prefix" => pin_prefix(s),
        "unpin_prefix" => unpin_prefix(s),
        "set_time" => set_time(s),
        "prefix_stats" => prefix_stats(s),
        "events" => events(s),
        "event_message" => event_message(s),
        _ => return None,
    };
    Some(done)
}

/// What holds the arrays of a query.
pub struct Prompt {
    tokens: Vec<i32>,
    adapter: Vec<u8>,
    media: Vec<MediaSpan>,
}

impl Prompt {
    pub fn of(s: &Script) -> Done<Self> {
        Ok(Self { tokens: s.list("prompt")?, adapter: bytes(s, "adapter")?, media: media(s)? })
    }

    pub fn query(&self, s: &Script) -> Done<PrefixQuery<'_>> {
        Ok(PrefixQuery {
            tokens: &self.tokens,
            salt: s.number::<i64>("salt")? as u64,
            salt_begin: s.number("salt_begin")?,
            adapter: &self.adapter,
            media: &self.media,
            allow_all: s.has("allow_all"),
        })
    }
}

pub fn results(hit: &PrefixHit) -> Results {
    vec![
        ("tokens", hit.tokens.to_string()),
        ("copied", hit.copied_tokens.to_string()),
        ("known", hit.known_tokens.to_string()),
        ("limited_by", hit.limited_by.map_or("-1".into(), |group| group.to_string())),
    ]
}

fn match_prefix(s: &Script) -> Done<Results> {
    Ok(results(&s.cache()?.match_prefix(&Prompt::of(s)?.query(s)?)?))
}

fn attach_prefix(s: &mut Script) -> Done<Results> {
    let (sequence, hit) = s.cache()?.attach_prefix(&Prompt::of(s)?.query(s)?, Stream::NONE)?;
    s.bind(&[sequence])?;
    Ok(results(&hit))
}

fn publish_prefix(s: &Script) -> Done<Results> {
    let options = PrefixOptions {
        priority: s.number("priority")?,
        session: s.number::<i64>("session")? as u64,
        time_to_live: s.number("time_to_live")?,
        keep_private: s.has("keep_private"),
    };
    let done = s.cache()?.publish_prefix(s.sequence()?, &Prompt::of(s)?.query(s)?, &options)?;
    Ok(vec![
        ("known", done.known_tokens.to_string()),
        ("added", done.pages_added.to_string()),
        ("freed", done.pages_freed.to_string()),
    ])
}

fn drop_prefix(s: &Script) -> Done<Results> {
    Ok(vec![("pages", s.cache()?.drop_prefix(&Prompt::of(s)?.query(s)?)?.to_string())])
}

fn drop_session(s: &Script) -> Done<Results> {
    Ok(vec![("pages", s.cache()?.drop_session(s.number::<i64>("session")? as u64)?.to_string())])
}

fn set_prefix_priority(s: &Script) -> Done<Results> {
    let (cache, priority, time_to_live) = (s.cache()?, s.number("priority")?, s.number("time_to_live")?);
    match s.optional::<i64>("session")? {
        Some(session) => cache.set_session_priority(session as u64, priority, time_to_live)?,
        None => cache.set_prefix_priority(&Prompt::of(s)?.query(s)?, priority, time_to_live)?,
    }
    Ok(vec![])
}

fn pin_prefix(s: &Script) -> Done<Results> {
    let (pin, hit) = s.cache()?.pin_prefix(&Prompt::of(s)?.query(s)?)?;
    Ok(vec![("tokens", hit.tokens.to_string()), ("pin", pin.0.to_string())])
}

fn unpin_prefix(s: &Script) -> Done<Results> {
    s.cache()?.unpin_prefix(PrefixPin(s.number("pin")?))?;
    Ok(vec![])
}

fn prefix_stats(s: &Script) -> Done<Results> {
    let stats = s.cache()?.stats(s.group()?)?;
    Ok(vec![
        ("pages_published", stats.pages_published.to_string()),
        ("pages_idle", stats.pages_idle.to_string()),
        ("pages_evicted", stats.pages_evicted.to_string()),
        ("prefix_attaches", stats.prefix_attaches.to_string()),
        ("prefix_tokens", stats.prefix_tokens.to_string()),
    ])
}

fn set_time(s: &Script) -> Done<Results> {
    s.cache()?.set_time(s.number("now")?)?;
    Ok(vec![])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn events(s: &Script) -> Done<Results> {
    let cache = s.cache()?;
    let found = if s.has("snapshot") {
        cache.event_snapshot()?
    } else {
        cache.read_events(s.number("next")?, s.optional("most")?.unwrap_or(256))?
    };
    let stored = |event: &Event| match event {
        Event::Stored(page) => Some(page.clone()),
        _ => None,
    };
    let pages: Vec<_> = found.events.iter().map(stored).collect();
    let of_events = |of: fn(&Event) -> i64| list(found.events.iter().map(of));
    let of_pages = |of: fn(&StoredPage) -> i64| list(pages.iter().map(|page| page.as_ref().map_or(0, of)));
    let keys: Vec<_> = found
        .events
        .iter()
        .flat_map(|event| match event {
            Event::Stored(page) => page.key,
            Event::Removed { key, .. } => *key,
            Event::Cleared => [0; 32],
        })
        .collect();
    let parents: Vec<_> =
        pages.iter().flat_map(|page| page.as_ref().and_then(|page| page.parent).unwrap_or([0; 32])).collect();
    Ok(vec![
        ("begin", found.begin.to_string()),
        ("end", found.end.to_string()),
        ("newest", found.newest.to_string()),
        (
            "kinds",
            of_events(|event| match event {
                Event::Stored(_) => 1,
                Event::Removed { .. } => 2,
                Event::Cleared => 3,
            }),
        ),
        (
            "groups",
            of_events(|event| match event {
                Event::Stored(page) => page.group as i64,
                Event::Removed { group, .. } => *group as i64,
                Event::Cleared => -1,
            }),
        ),
        (
            "tiers",
            of_events(|event| match event {
                Event::Stored(page) => page.tier as i64,
                Event::Removed { tier, .. } => *tier as i64,
                Event::Cleared => 0,
            }),
        ),
        ("keys", hex(&keys)),
        ("parents", hex(&parents)),
        ("positions", of_pages(|page| page.position as i64)),
        ("sessions", of_pages(|page| page.session as i64)),
        ("salted", of_pages(|page| page.salted.into())),
        ("tokens", list(pages.iter().flatten().flat_map(|page| page.tokens.clone()))),
    ])
}

fn event_message(s: &Script) -> Done<Results> {
    let format = MessageFormat {
        timestamp: s.number("timestamp")?,
        data_parallel_rank: s.optional("rank")?,
        arrays: s.has("arrays"),
        short_hashes: s.has("short_hashes"),
        max_bytes: s.optional("max_bytes")?.unwrap_or(1 << 20),
    };
    let cache = s.cache()?;
    let message = if s.has("snapshot") {
        cache.event_snapshot_message(&format)?
    } else {
        cache.event_message(s.number("next")?, &format)?
    };
    Ok(vec![
        ("begin", message.begin.to_string()),
        ("end", message.end.to_string()),
        ("newest", message.newest.to_string()),
        ("count", message.count.to_string()),
        ("payload", hex(&message.payload)),
    ])
}
