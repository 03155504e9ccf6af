//! Transfers: sequences to caches of this process, or of others over a transport.
use crate::saves::path_in;
use crate::script::{Done, Script, Stop};
use crate::Results;
use kvcache::*;
use std::time::Duration;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "set_transport" => set_transport(s),
        "receive" => receive(s),
        "describe_transfer" => describe(s),
        "send" => send(s),
        "poll_transfer" => poll(s),
        "cancel_transfer" => transfer(s).and_then(|transfer| Ok(transfer.cancel()?)).map(|()| Vec::new()),
        _ => return None,
    };
    Some(done)
}

fn transfer(s: &Script) -> Done<&Transfer> {
    s.transfers.get(&s.number("transfer")?).ok_or(Stop::Skip)
}

fn failed(problem: std::io::Error) -> Stop {
    Stop::Failed(problem.to_string())
}

fn set_transport(s: &Script) -> Done<Results> {
    let variable = |name| std::env::var(name).map_err(|problem| Stop::Failed(problem.to_string()));
    let library = variable("KVCACHE_CONFORMANCE_TRANSPORT")?;
    // SAFETY: the driver names a transport.
    unsafe { s.cache()?.set_transport(library, &variable("KVCACHE_CONFORMANCE_OPTIONS")?)? };
    Ok(Vec::new())
}

fn receive(s: &mut Script) -> Done<Results> {
    let prefix = if s.has("prefix") { s.sequences("prefix")?.first().copied() } else { None };
    let options = ReceiveOptions { prefix, timeout: Duration::from_millis(s.number("timeout_ms")?) };
    let made = s.cache()?.receive(s.number("tokens")?, &options)?;
    s.transfers.insert(s.number("transfer")?, made);
    Ok(Vec::new())
}

fn describe(s: &mut Script) -> Done<Results> {
    let description = transfer(s)?.describe()?;
    if s.has("file") {
        let path = path_in("KVCACHE_CONFORMANCE_SAVE", s, "file")?;
        let part = path.with_extension("part");
        std::fs::write(&part, &description).map_err(failed)?;
        std::fs::rename(part, path).map_err(failed)?; // the sender finds all of it
    }
    s.descriptions.insert(s.number("transfer")?, description);
    Ok(Vec::new())
}

fn send(s: &mut Script) -> Done<Results> {
    if s.has("file") {
        let path = path_in("KVCACHE_CONFORMANCE_LOAD", s, "file")?;
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        s.descriptions.insert(s.number("of")?, std::fs::read(path).map_err(failed)?);
    }
    let description = s.descriptions.get(&s.number("of")?).ok_or(Stop::Skip)?;
    let description = &description[..description.len() - s.number::<usize>("cut")?];
    let made = s.cache()?.send(s.sequence()?, description)?;
    s.transfers.insert(s.number("transfer")?, made);
    Ok(Vec::new())
}

fn poll(s: &mut Script) -> Done<Results> {
    let transfer = transfer(s)?;
    let progress = if s.has("until_done") { transfer.wait()? } else { transfer.poll()? };
    if let (Some(sequence), true) = (progress.sequence, s.has("seqs")) {
        s.bind(&[sequence])?;
    }
    let done = i32::from(progress.done).to_string();
    Ok(vec![("done", done), ("tokens", progress.tokens.to_string()), ("bytes", progress.bytes.to_string())])
}
