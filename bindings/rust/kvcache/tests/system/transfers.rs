//! Sequences to other caches of this process.
use crate::support::*;
use kvcache::*;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const ROW_BYTES: usize = 2 * KV_HEADS * DIM * 4;

fn filled(n: usize) -> (Cache, Seq, History) {
    let (cache, mut history) = (cache(), History::default());
    let sequence = cache.add().unwrap();
    run_step(&cache, &mut [(sequence, &mut history, n)], None, &mut Random(n as u64));
    (cache, sequence, history)
}

fn goes_on(cache: &Cache, sequence: Seq, history: &History) {
    run_step(cache, &mut [(sequence, &mut history.clone(), 2)], None, &mut Random(7));
}

fn receive(cache: &Cache, tokens: usize, prefix: Option<Seq>) -> Transfer {
    cache.receive(tokens, &ReceiveOptions { prefix, timeout: LONG }).unwrap()
}

#[test]
fn a_sequence_travels() {
    let (prefill, source, history) = filled(21);
    let decode = Cache::new(&context(), &CacheConfig { page_size: 8, ..config() }).unwrap();
    let incoming = receive(&decode, 21, None);
    let outgoing = prefill.send(source, &incoming.describe().unwrap()).unwrap();
    let sent = outgoing.poll().unwrap();
    assert_eq!((sent.done, sent.tokens, sent.bytes), (false, 21, 21 * ROW_BYTES));
    let received = incoming.wait().unwrap();
    assert_eq!((received.done, received.tokens, received.bytes), (true, 21, 21 * ROW_BYTES));
    assert_eq!(outgoing.wait().unwrap(), TransferProgress { sequence: None, ..received });
    assert_eq!(incoming.poll().unwrap(), received);
    incoming.cancel().unwrap();
    drop(incoming); // the sequence stays
    goes_on(&decode, received.sequence.unwrap(), &history);
    goes_on(&prefill, source, &history);
}

#[test]
fn only_the_tail_of_a_prefix_travels() {
    let (prefill, source, history) = filled(21);
    let (decode, mut part) = (cache(), history.clone());
    let prefix = prefill.fork(&[source], Stream::NONE).unwrap()[0];
    prefill.truncate(&[(prefix, 10)]).unwrap();
    part.truncate(10);
    let mut has = None;
    for (sequence, tokens, bytes) in [(prefix, 10, 10 * ROW_BYTES), (source, 21, (21 - 8) * ROW_BYTES)] {
        let incoming = receive(&decode, tokens, has);
        let outgoing = prefill.send(sequence, &incoming.describe().unwrap()).unwrap();
        outgoing.poll().unwrap();
        let received = incoming.wait().unwrap();
        assert_eq!(received.bytes, bytes);
        has = received.sequence;
    }
    goes_on(&decode, has.unwrap(), &history);
}

#[test]
fn a_dropped_transfer_is_cancelled() {
    let (prefill, source, history) = filled(9);
    let decode = cache();
    let incoming = receive(&decode, 10, None); // the sender has less
    let outgoing = prefill.send(source, &incoming.describe().unwrap()).unwrap();
    assert_eq!(outgoing.wait_timeout(Duration::from_millis(5)).unwrap(), None);
    assert!(decode.stats(None).unwrap().pages_used > 0);
    assert!(!incoming.poll().unwrap().done); // it hears of the sender
    drop(incoming);
    assert_eq!(decode.stats(None).unwrap().pages_used, 0);
    let error = outgoing.wait().unwrap_err();
    assert_eq!(error.status(), Status::IO);
    assert!(error.message().starts_with("Transfer::poll: ") && error.message().contains("cancelled"), "{error}");
    assert_eq!(outgoing.poll().unwrap_err().status(), Status::STALE_ID);
    goes_on(&prefill, source, &history);
}

#[test]
fn what_is_refused() {
    let (prefill, source, _) = filled(8);
    let decode = cache();
    let error = decode.receive(0, &ReceiveOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::OUT_OF_RANGE);
    assert!(error.message().starts_with("Cache::receive: "), "{error}");
    let error = decode.receive(1, &ReceiveOptions { timeout: 2 * LONG, ..Default::default() }).unwrap_err();
    assert!(error.message().contains("timeout 7200000"), "{error}");
    assert!(matches!(decode.receive(1 << 20, &ReceiveOptions::default()), Err(Error::OutOfPages { .. })));
    let incoming = receive(&decode, 8, None);
    let description = incoming.describe().unwrap();
    for broken in [&[][..], &description[..description.len() - 1]] {
        assert_eq!(prefill.send(source, broken).unwrap_err().status(), Status::CORRUPT);
    }
    let layers = vec![Layer { kv_heads: 1, ..layer() }];
    let other = Cache::new(&context(), &CacheConfig { layers, ..config() }).unwrap();
    assert_eq!(other.send(other.add().unwrap(), &description).unwrap_err().status(), Status::LAYOUT);
    let outgoing = prefill.send(source, &description).unwrap();
    assert_eq!(outgoing.describe().unwrap_err().status(), Status::INVALID_ARGUMENT);
    let silent =
        decode.receive(8, &ReceiveOptions { timeout: Duration::from_micros(1), ..Default::default() }).unwrap();
    let error = silent.wait().unwrap_err();
    assert!(error.status() == Status::IO && error.message().contains("silent"), "{error}");
}

#[test]
fn libraries_that_are_no_transport() {
    let cache = cache();
    // SAFETY: none of them is a library with the symbol.
    let error = unsafe { cache.set_transport("/no/such/library.so", "") }.unwrap_err();
    assert_eq!(error.status(), Status::IO);
    assert!(error.message().starts_with("Cache::set_transport: ") && error.message().contains("library.so"), "{error}");
    // SAFETY: likewise.
    let error = unsafe { cache.set_transport("a\0b", "") }.unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    // SAFETY: libm sets up its own data.
    let error = unsafe { cache.set_transport("libm.so.6", "") }.unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert!(error.message().contains("kvc_transport_open"), "{error}");
    for bad in [("", "x"), ("a=b", "x"), ("a;b", "x"), ("a", "x;y")] {
        let error = cache.use_nixl(&[bad]).unwrap_err();
        assert!(error.status() == Status::INVALID_ARGUMENT && error.message().contains("no option"), "{error}");
    }
    if std::env::var_os("KVCACHE_NIXL_LIBRARY").is_none() {
        let error = cache.use_nixl(&[("backend", "UCX")]).unwrap_err();
        assert!(error.message().starts_with("Cache::use_nixl: ") && error.message().contains("nixl.so.0"), "{error}");
    }
    drop(receive(&cache, 1, None)); // it reaches caches of this process
}
