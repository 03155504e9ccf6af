//! The prefix index.
use crate::script::{Done, Script};
use crate::Results;
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
        _ => return None,
    };
    Some(done)
}

/// What holds the tokens of a query.
struct Prompt(Vec<i32>);

impl Prompt {
    fn of(s: &Script) -> Done<Self> {
        Ok(Self(s.list("prompt")?))
    }

    fn query(&self, s: &Script) -> Done<PrefixQuery<'_>> {
        let salt = s.number::<i64>("salt")? as u64;
        Ok(PrefixQuery { tokens: &self.0, salt, salt_begin: s.number("salt_begin")?, allow_all: s.has("allow_all") })
    }
}

fn results(hit: &PrefixHit) -> Results {
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
