//! What the cache remembers of sequences that are gone.
use crate::support::*;
use kvcache::*;

fn remembering(capacity: Capacity) -> Cache {
    Cache::new(&context(), &CacheConfig { prefix_index: true, capacity, ..config() }).unwrap()
}

/// A new sequence with random K and V, published under the query and removed. Returns its history and its pages.
fn publish(cache: &Cache, query: PrefixQuery<'_>, options: PrefixOptions) -> (History, Vec<Option<u32>>) {
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(cache, &mut [(sequence, &mut history, query.tokens.len())], None, &mut Random(70));
    cache.publish_prefix(sequence, &query, &options).unwrap();
    let pages = cache.pages(sequence, 0).unwrap();
    cache.remove(&[sequence]).unwrap();
    (history, pages)
}

fn found(cache: &Cache, tokens: &[i32]) -> usize {
    cache.match_prefix(&PrefixQuery { allow_all: true, ..PrefixQuery::new(tokens) }).unwrap().tokens
}

/// Tokens `first`, `first` + 1 ...
fn tokens(first: i32, n: i32) -> Vec<i32> {
    (first..first + n).collect()
}

#[test]
fn attach_finds_what_was_published() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(100, 11));
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(&cache, &mut [(sequence, &mut history, 10)], None, &mut Random(71));
    let query = PrefixQuery::new(&prompt[..10]);
    let published = cache.publish_prefix(sequence, &query, &PrefixOptions::default()).unwrap();
    assert_eq!(published, PrefixPublished { known_tokens: 10, pages_added: 3, pages_freed: 0 });
    let pages = cache.pages(sequence, 0).unwrap();
    cache.remove(&[sequence]).unwrap();
    let stats = cache.stats(None).unwrap();
    assert_eq!((stats.num_sequences, stats.pages_used, stats.pages_published, stats.pages_idle), (0, 3, 3, 3));

    let query = PrefixQuery::new(&prompt);
    let token_ns = cache.match_prefix(&query).unwrap().token_ns;
    assert!(token_ns > 0); // as measured
    let hit =
        PrefixHit { tokens: 10, copied_tokens: 2, known_tokens: 10, load_tokens: 10, token_ns, ..PrefixHit::default() };
    assert_eq!(cache.match_prefix(&query).unwrap(), hit);
    let (attached, its) = cache.attach_prefix(&query, Stream::NONE).unwrap();
    assert_eq!((its, cache.length(attached).unwrap()), (hit, 10));
    let shared = cache.pages(attached, 0).unwrap();
    assert_eq!(shared[..2], pages[..2]); // whole pages are the same, the part of one is a copy
    assert_ne!(shared[2], pages[2]);
    let exported = cache.export(attached, 0, .., Stream::NONE).unwrap();
    assert_eq!(exported.k.unwrap().as_slice::<f32>().unwrap(), history.k);
    run_step(&cache, &mut [(attached, &mut history, 3)], None, &mut Random(72)); // attends to what it found

    let stats = cache.stats(None).unwrap();
    assert_eq!((stats.prefix_attaches, stats.prefix_tokens, stats.pages_idle), (1, 10, 1));
    cache.check_invariants().unwrap();
}

#[test]
fn one_token_is_left_to_compute() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(1, 8));
    publish(&cache, PrefixQuery::new(&prompt), PrefixOptions::default());
    let hit = cache.match_prefix(&PrefixQuery::new(&prompt)).unwrap();
    assert_eq!((hit.tokens, hit.copied_tokens, hit.known_tokens), (7, 3, 8));
    let all = PrefixQuery { allow_all: true, ..PrefixQuery::new(&prompt) };
    assert_eq!(cache.match_prefix(&all).unwrap().tokens, 8);
    let (sequence, hit) = cache.attach_prefix(&PrefixQuery::new(&[9, 9, 9]), Stream::NONE).unwrap();
    let nothing = PrefixHit { token_ns: hit.token_ns, ..PrefixHit::default() };
    assert_eq!((hit, cache.length(sequence).unwrap()), (nothing, 0)); // an empty sequence
    assert_eq!(cache.match_prefix(&PrefixQuery::default()).unwrap(), nothing);
}

#[test]
fn equal_pages_become_one() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(1, 8));
    publish(&cache, PrefixQuery::new(&prompt), PrefixOptions::default());
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    run_step(&cache, &mut [(sequence, &mut history, 8)], None, &mut Random(70));
    let published = cache.publish_prefix(sequence, &PrefixQuery::new(&prompt), &PrefixOptions::default()).unwrap();
    assert_eq!(published, PrefixPublished { known_tokens: 8, pages_added: 0, pages_freed: 2 });
    assert_eq!(cache.stats(None).unwrap().pages_used, 2);
}

#[test]
fn salts_are_apart() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(1, 12));
    let of = |salt, salt_begin| PrefixQuery { salt, salt_begin, allow_all: true, ..PrefixQuery::new(&prompt) };
    publish(&cache, of(7, 4), PrefixOptions::default());
    let tokens = |query| cache.match_prefix(&query).unwrap().tokens;
    assert_eq!([tokens(of(7, 4)), tokens(of(8, 4)), tokens(of(0, 0)), tokens(of(7, 0))], [12, 4, 4, 0]);
    assert_eq!(cache.drop_prefix(&of(7, 4)).unwrap(), 1); // the last page, which all three tokens of it share
    assert_eq!(tokens(of(7, 4)), 8);
}

#[test]
fn adapters_and_media_are_apart() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(1, 12));
    let spans =
        |hash| [MediaSpan { begin: 5, tokens: 3, hash: [hash; 32] }, MediaSpan { begin: 20, tokens: 2, hash: [0; 32] }];
    let (cat, dog) = (spans(1), spans(2));
    let query = PrefixQuery { adapter: b"sql", media: &cat, allow_all: true, ..PrefixQuery::new(&prompt) };
    publish(&cache, query, PrefixOptions::default());
    let tokens = |query| cache.match_prefix(&query).unwrap().tokens;
    assert_eq!([tokens(query), tokens(PrefixQuery { media: &dog, ..query })], [12, 5]);
    assert_eq!([tokens(PrefixQuery { adapter: b"s", ..query }), tokens(PrefixQuery::new(&prompt))], [0, 0]);
    let overlapping = [cat[0], MediaSpan { begin: 7, ..cat[1] }];
    let wrong = cache.match_prefix(&PrefixQuery { media: &overlapping, ..query }).unwrap_err();
    assert_eq!(wrong.status(), Status::OUT_OF_RANGE);
}

#[test]
fn a_pin_protects_from_eviction() {
    let (cache, prompt) = (remembering(Capacity::Pages(4)), tokens(1, 8));
    let query = PrefixQuery::new(&prompt);
    publish(&cache, query, PrefixOptions::default());
    let (pin, hit) = cache.pin_prefix(&query).unwrap();
    assert_eq!((hit.tokens, cache.stats(None).unwrap().pages_idle), (8, 0));
    let sequence = cache.add().unwrap();
    let batch = Batch::new(&[sequence], &[12]);
    assert!(matches!(cache.can_fit(&batch), Err(Error::OutOfPages { required: 3, available: 2, .. })));
    cache.unpin_prefix(pin).unwrap();
    assert_eq!(cache.max_append(&[sequence]).unwrap(), [16]);
    drop(cache.begin(&batch, Stream::NONE).unwrap());
    assert_eq!((found(&cache, &prompt), cache.stats(None).unwrap().pages_evicted), (4, 1)); // a continuation goes first
    assert_eq!(cache.unpin_prefix(pin).unwrap_err().status(), Status::STALE_ID);
}

#[test]
fn sessions_are_dropped() {
    let cache = remembering(Capacity::Tokens(256));
    let (ours, theirs) = (tokens(1, 8), [tokens(1, 4), tokens(50, 4)].concat());
    let of = |session| PrefixOptions { session, ..PrefixOptions::default() };
    publish(&cache, PrefixQuery::new(&ours), of(1));
    publish(&cache, PrefixQuery::new(&theirs), of(2));
    assert_eq!(cache.drop_session(1).unwrap(), 1); // the first page is of both
    assert_eq!((found(&cache, &ours), found(&cache, &theirs)), (4, 8));
    assert_eq!((cache.drop_session(1).unwrap(), cache.drop_session(u64::MAX).unwrap()), (0, 0));
    assert_eq!(cache.drop_session(2).unwrap(), 1);
    assert_eq!(cache.stats(None).unwrap().pages_used, 1); // the page of both is no session's
}

/// Publishes three pages of their own, lets a step evict one, and returns which are left.
fn left_of_three(change: impl Fn(&Cache, &[Vec<i32>; 3])) -> [bool; 3] {
    let cache = remembering(Capacity::Pages(4));
    let prompts = [tokens(10, 4), tokens(20, 4), tokens(30, 4)];
    for (i, prompt) in prompts.iter().enumerate() {
        let options =
            PrefixOptions { priority: 50, session: i as u64 + 1, time_to_live: 100, ..PrefixOptions::default() };
        publish(&cache, PrefixQuery::new(prompt), options);
    }
    change(&cache, &prompts);
    let batch = Batch::new(&[cache.add().unwrap()], &[8]);
    drop(cache.begin(&batch, Stream::NONE).unwrap());
    cache.check_invariants().unwrap();
    prompts.each_ref().map(|prompt| found(&cache, prompt) == 4)
}

#[test]
fn priorities_and_time_order_eviction() {
    assert_eq!(left_of_three(|_, _| ()), [false, true, true]); // the one that was not used for longest
    let lower = |cache: &Cache, prompts: &[Vec<i32>; 3]| {
        cache.set_prefix_priority(&PrefixQuery::new(&prompts[1]), 49, 0).unwrap();
    };
    assert_eq!(left_of_three(lower), [true, false, true]);
    let session = |cache: &Cache, _: &[Vec<i32>; 3]| cache.set_session_priority(3, 0, 0).unwrap();
    assert_eq!(left_of_three(session), [true, true, false]);
    let higher = |cache: &Cache, _: &[Vec<i32>; 3]| cache.set_session_priority(1, 51, 0).unwrap();
    assert_eq!(left_of_three(higher), [true, false, true]);
    let expired = |cache: &Cache, prompts: &[Vec<i32>; 3]| {
        cache.set_time(7).unwrap();
        cache.set_prefix_priority(&PrefixQuery::new(&prompts[1]), 100, 2).unwrap();
        cache.set_time(9).unwrap();
    };
    assert_eq!(left_of_three(expired), [true, false, true]);
    let session_expired = |cache: &Cache, prompts: &[Vec<i32>; 3]| {
        cache.set_time(7).unwrap();
        cache.set_time(3).unwrap(); // never goes back
        cache.set_prefix_priority(&PrefixQuery::new(&prompts[0]), 0, 0).unwrap();
        cache.set_session_priority(3, 100, 2).unwrap();
        cache.set_time(9).unwrap();
        assert_eq!(found(cache, &prompts[2]), 4); // expired, and still found
    };
    assert_eq!(left_of_three(session_expired), [true, true, false]);
    let all_but_one = |cache: &Cache, prompts: &[Vec<i32>; 3]| {
        cache.set_prefix_priority(&PrefixQuery::new(&prompts[0]), 0, 0).unwrap(); // without a limit
        cache.set_time(u64::MAX).unwrap();
    };
    assert_eq!(left_of_three(all_but_one), [true, false, true]);
}

#[test]
fn recurrent_states_are_found_where_they_were_published() {
    let states = vec![State { shape: vec![2], ..State::default() }];
    let config = CacheConfig {
        layers: vec![layer(), Layer { group: 1, states, ..Layer::default() }],
        groups: vec![Group::full(), Group::recurrent()],
        prefix_index: true,
        prefix_pages: 8,
        prefix_checkpoints: 2,
        ..config()
    };
    let cache = Cache::new(&context(), &config).unwrap();
    let (sequence, prompt) = (cache.add().unwrap(), tokens(1, 9));
    let (input, numbers) = (Tokens::random(6, &mut Random(73)), [3f32, 4.0]);
    let step = cache.begin(&Batch::new(&[sequence], &[6]), Stream::NONE).unwrap();
    input.attend(&step, 0).unwrap();
    step.store_state(1, 0, &Tensor::new(&numbers, &[1, 2]).unwrap()).unwrap();
    step.end().unwrap();
    cache.publish_prefix(sequence, &PrefixQuery::new(&prompt[..6]), &PrefixOptions::default()).unwrap();
    cache.remove(&[sequence]).unwrap();

    let short = cache.match_prefix(&PrefixQuery::new(&prompt[..6])).unwrap(); // five of them: no states there
    assert_eq!((short.tokens, short.known_tokens, short.limited_by), (0, 6, Some(1)));
    let (attached, hit) = cache.attach_prefix(&PrefixQuery::new(&prompt), Stream::NONE).unwrap();
    assert_eq!(hit.tokens, 6);
    let step = cache.begin(&Batch::new(&[attached], &[1]), Stream::NONE).unwrap();
    let mut state = [0f32; 2];
    step.load_state(1, 0, &mut TensorMut::new(&mut state, &[1, 2]).unwrap()).unwrap();
    assert_eq!(state, numbers);
}

#[test]
fn clear_forgets_all() {
    let (cache, prompt) = (remembering(Capacity::Tokens(256)), tokens(1, 4));
    publish(&cache, PrefixQuery::new(&prompt), PrefixOptions::default());
    let (pin, _) = cache.pin_prefix(&PrefixQuery::new(&prompt)).unwrap();
    cache.clear().unwrap();
    assert_eq!((found(&cache, &prompt), cache.stats(None).unwrap().pages_used), (0, 0));
    assert_eq!(cache.unpin_prefix(pin).unwrap_err().status(), Status::STALE_ID);
}

/// The status of every call of the prefix index.
fn calls(cache: &Cache, sequence: Seq, query: &PrefixQuery<'_>) -> [Option<Status>; 9] {
    fn status<T>(result: Result<T>) -> Option<Status> {
        result.err().map(|error| error.status())
    }
    [
        status(cache.match_prefix(query)),
        status(cache.attach_prefix(query, Stream::NONE)),
        status(cache.publish_prefix(sequence, query, &PrefixOptions::default())),
        status(cache.drop_prefix(query)),
        status(cache.set_prefix_priority(query, 1, 0)),
        status(cache.pin_prefix(query)),
        status(cache.drop_session(1)),
        status(cache.set_session_priority(1, 1, 0)),
        status(cache.unpin_prefix(PrefixPin(1))),
    ]
}

#[test]
fn wrong_calls_are_errors() {
    let without = cache();
    let prompt = tokens(1, 4);
    let query = PrefixQuery::new(&prompt);
    assert_eq!(calls(&without, without.add().unwrap(), &query), [Some(Status::UNSUPPORTED); 9]);
    let error = without.match_prefix(&query).unwrap_err();
    assert!(error.message().contains("Cache::match_prefix") && error.message().contains("prefix_index"), "{error}");
    without.set_time(1).unwrap();
    let error = Cache::new(&context(), &CacheConfig { prefix_pages: 4, ..config() }).unwrap_err();
    assert!(error.message().contains("prefix_pages"), "{error}");

    let cache = remembering(Capacity::Tokens(256));
    let sequence = cache.add().unwrap();
    let refused = |result: Result<()>, status: Status, word: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.status(), status, "{error}");
        assert!(error.message().contains(word), "{error} does not say {word}");
    };
    let options = |priority| PrefixOptions { priority, ..PrefixOptions::default() };
    let publish = |priority| cache.publish_prefix(sequence, &query, &options(priority)).map(drop);
    refused(publish(0), Status::OUT_OF_RANGE, "4");
    refused(publish(101), Status::OUT_OF_RANGE, "priority");
    refused(cache.publish_prefix(Seq(5), &query, &options(0)).map(drop), Status::STALE_ID, "Cache::publish_prefix");
    refused(cache.set_prefix_priority(&query, 255, 0), Status::OUT_OF_RANGE, "priority");
    refused(cache.set_session_priority(0, 1, 0), Status::INVALID_ARGUMENT, "session");
    refused(cache.drop_session(0).map(drop), Status::INVALID_ARGUMENT, "session");
    refused(cache.unpin_prefix(PrefixPin(u64::MAX)), Status::STALE_ID, "Cache::unpin_prefix");
    assert_eq!(found(&cache, &prompt), 0);
    let far = PrefixQuery { salt: u64::MAX, salt_begin: usize::MAX, ..query }; // a salt that holds nowhere
    assert_eq!(calls(&cache, sequence, &far)[..2], [None, None]);
}

#[test]
fn threads_publish_and_attach() {
    let config = CacheConfig { max_open_steps: 4, prefix_index: true, capacity: Capacity::Pages(24), ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..40 {
                    let prompt = [tokens(1, 6), tokens(100 * (round % 3), 1 + thread)].concat();
                    let query = PrefixQuery::new(&prompt);
                    let (pin, _) = cache.pin_prefix(&query).unwrap();
                    let (sequence, hit) = cache.attach_prefix(&query, Stream::NONE).unwrap();
                    let rest = Tokens::random(prompt.len() - hit.tokens, &mut Random(74));
                    let step = cache.begin(&Batch::new(&[sequence], &[rest.n]), Stream::NONE).unwrap();
                    rest.attend(&step, 0).unwrap();
                    step.end().unwrap();
                    let options = PrefixOptions { session: 1 + thread as u64, ..PrefixOptions::default() };
                    cache.publish_prefix(sequence, &query, &options).unwrap();
                    cache.remove(&[sequence]).unwrap();
                    cache.unpin_prefix(pin).unwrap();
                }
                cache.drop_session(1 + thread as u64).unwrap();
                cache.check_invariants().unwrap();
            });
        }
    });
    cache.drop_prefix(&PrefixQuery::default()).unwrap(); // what several sessions published is no session's
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
}
