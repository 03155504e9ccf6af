//! Events of the prefix index: what routers are told.
use crate::support::*;
use kvcache::*;

const MODEL: [u8; 32] = [7; 32];

fn telling(events_capacity: usize) -> Cache {
    let config = CacheConfig { prefix_index: true, fingerprint: Some(MODEL), events_capacity, ..config() };
    Cache::new(&context(), &config).unwrap()
}

fn publish(cache: &Cache, query: &PrefixQuery<'_>, session: u64) {
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(cache, &mut [(sequence, &mut history, query.tokens.len())], None, &mut Random(80));
    cache.publish_prefix(sequence, query, &PrefixOptions { session, ..PrefixOptions::default() }).unwrap();
    cache.remove(&[sequence]).unwrap();
}

#[test]
fn events_say_what_is_published_and_dropped() {
    let (cache, tokens) = (telling(100), Vec::from_iter(0..10));
    let query = PrefixQuery { salt: 9, salt_begin: 4, ..PrefixQuery::new(&tokens) };
    publish(&cache, &query, 3);
    let salt = 9u64.to_le_bytes();
    let named = PageKeys {
        tokens: &tokens,
        page_size: 4,
        fingerprint: Some(&MODEL),
        salt: &salt,
        salt_begin: 4,
        ..PageKeys::default()
    };
    let keys = page_keys(&named).unwrap();
    let stored = |page: usize| StoredPage {
        group: 0,
        key: keys[page],
        parent: page.checked_sub(1).map(|before| keys[before]),
        position: 4 * page,
        tokens: tokens[4 * page..4 * page + 4].to_vec(),
        session: 3,
        salted: page == 1,
        tier: 0,
    };
    let (first, second) = (Event::Stored(stored(0)), Event::Stored(stored(1)));
    let found = cache.read_events(0, 100).unwrap();
    assert_eq!((found.begin, found.end, found.newest), (0, 2, 2));
    assert_eq!(found.events, [first.clone(), second.clone()]);
    let one = cache.read_events(1, 1).unwrap();
    assert_eq!((one.epoch, one.begin, one.end), (found.epoch, 1, 2));
    assert_eq!(one.events, [second]);
    let most = cache.read_events(0, 1).unwrap();
    assert_eq!((most.end, most.newest, most.events.len()), (1, 2, 1));

    let message = cache.event_message(0, &MessageFormat::default()).unwrap();
    assert_eq!((message.epoch, message.begin, message.end, message.count), (found.epoch, 0, 2, 2));
    assert!(message.payload.windows(32).any(|bytes| bytes == keys[1]));
    let short = cache.event_message(0, &MessageFormat { max_bytes: 1, ..MessageFormat::default() }).unwrap_err();
    assert_eq!(short.status(), Status::BUFFER_TOO_SMALL);

    cache.drop_prefix(&PrefixQuery { tokens: &tokens[..8], ..query }).unwrap();
    assert_eq!(cache.read_events(2, 100).unwrap().events, [Event::Removed { group: 0, key: keys[1], tier: 0 }]);
    let snapshot = cache.event_snapshot().unwrap();
    assert_eq!((snapshot.epoch, snapshot.end, &snapshot.events[..]), (found.epoch, 3, &[first][..]));
    let message = cache.event_snapshot_message(&MessageFormat::default()).unwrap();
    assert!((message.count, message.end) == (1, 3) && message.payload.windows(32).any(|bytes| bytes == keys[0]));
    cache.clear().unwrap();
    assert_eq!(cache.read_events(3, 100).unwrap().events, [Event::Cleared]);
    assert!(cache.event_snapshot().unwrap().events.is_empty());
}

#[test]
fn a_reader_notices_what_it_missed() {
    let (cache, tokens) = (telling(3), Vec::from_iter(0..40));
    publish(&cache, &PrefixQuery::new(&tokens), 0);
    let found = cache.read_events(0, 100).unwrap();
    assert_eq!((found.begin, found.end, found.events.len()), (7, 10, 3));
    assert_eq!(cache.event_snapshot().unwrap().events.len(), 10);
    assert_ne!(telling(3).read_events(0, 1).unwrap().epoch, found.epoch); // another cache
    let error = telling(0).read_events(0, 1).unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert!(error.message().starts_with("Cache::read_events: "), "{error}");
    assert_eq!(telling(0).event_snapshot().unwrap_err().status(), Status::UNSUPPORTED);
}

#[test]
fn pages_of_tiers_are_told() {
    let config = CacheConfig {
        prefix_index: true,
        fingerprint: Some(MODEL),
        events_capacity: 100,
        events_tier_pages: 100,
        ..config()
    };
    let (cache, tokens) = (Cache::new(&context(), &config).unwrap(), Vec::from_iter(0..12));
    let options =
        HostTierOptions { capacity_bytes: 1 << 20, medium: Some("Flash".into()), ..HostTierOptions::default() };
    cache.add_host_tier(&options).unwrap();
    publish(&cache, &PrefixQuery::new(&tokens), 3);
    while cache.tier_traffic().unwrap().pages_waiting > 0 {
        std::thread::yield_now();
    }
    let tiers = |events: &[Event]| {
        Vec::from_iter(events.iter().map(|event| match event {
            Event::Stored(page) => (page.tier, page.position, page.session),
            Event::Removed { tier, .. } => (*tier, usize::MAX, 0),
            Event::Cleared => panic!("a clear"),
        }))
    };
    let all = [(0, 0, 3), (0, 4, 3), (0, 8, 3), (1, 0, 3), (1, 4, 3), (1, 8, 3)];
    assert_eq!(tiers(&cache.read_events(0, 100).unwrap().events), all);
    assert_eq!(tiers(&cache.event_snapshot().unwrap().events), all);
    let message = cache.event_message(0, &MessageFormat::default()).unwrap();
    assert!(message.payload.windows(6).any(|bytes| bytes == b"\xa5Flash"));
    cache.clear().unwrap();
    assert_eq!(tiers(&cache.read_events(6, 100).unwrap().events), [(0, usize::MAX, 0); 3]); // the tier keeps its pages
    assert_eq!(tiers(&cache.event_snapshot().unwrap().events), all[3..]);
}
