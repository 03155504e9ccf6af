//! What becomes of sequences and pages.
use crate::support::*;
use kvcache::*;

fn append(cache: &Cache, sequence: Seq, n: usize) {
    run_step(cache, &mut [(sequence, &mut grown(cache, sequence), n)], None, &mut Random(7))
}

/// A history that fits the length only: for steps whose output is not compared. (Exported keys are what is stored.)
fn grown(cache: &Cache, sequence: Seq) -> History {
    if cache.length(sequence).unwrap() == 0 {
        return History::default();
    }
    let exported = cache.export(sequence, 0, .., Stream::NONE).unwrap();
    let numbers = |tensor: &Option<ManagedTensor>| tensor.as_ref().unwrap().as_slice::<f32>().unwrap().to_vec();
    History { k: numbers(&exported.k), v: numbers(&exported.v) }
}

#[test]
fn out_of_pages_changes_nothing() {
    let cache = cache(); // 64 pages of 4 tokens
    let a = cache.add().unwrap();
    for _ in 0..3 {
        append(&cache, a, 60);
    }
    let b = cache.add().unwrap();
    let before = cache.digest().unwrap();
    append(&cache, b, 64);
    let batch = Batch::new(&[a, b], &[4, 12]);
    let error = cache.begin(&batch, Stream::NONE).unwrap_err();
    match &error {
        Error::OutOfPages { row, group, required, available, message } => {
            assert_eq!((*row, *group, *required, *available), (Some(1), Some(0), 4, 3));
            assert!(message.contains("Cache::begin"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(error.status(), Status::OUT_OF_PAGES);
    assert!(error.status().is_capacity() && !Status::STALE_ID.is_capacity());
    assert_eq!(cache.can_fit(&batch).unwrap_err(), {
        let Error::OutOfPages { row, group, required, available, .. } = error else { unreachable!() };
        let message = cache.can_fit(&batch).unwrap_err().message().to_string();
        Error::OutOfPages { row, group, required, available, message }
    });
    assert_eq!(cache.max_append(&[a, b]).unwrap(), [12, 12]);
    cache.truncate(&[(b, 0)]).unwrap();
    assert_eq!(cache.digest().unwrap(), before);
    cache.remove(&[a, b]).unwrap();
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
    assert_eq!(cache.length(a).unwrap_err().status(), Status::STALE_ID);
}

#[test]
fn a_dropped_step_is_aborted() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    append(&cache, sequence, 5);
    let before = cache.digest().unwrap();
    let batch = Batch::new(&[sequence], &[9]);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    assert_ne!(cache.digest().unwrap(), before);
    Tokens::random(9, &mut Random(8)).attend(&step, 0).unwrap();
    drop(step);
    assert_eq!(cache.digest().unwrap(), before);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    assert_eq!(step.end().unwrap_err().status(), Status::ORDER); // no layer was appended: aborted too
    assert_eq!(cache.digest().unwrap(), before);
    cache.begin(&batch, Stream::NONE).unwrap().abort().unwrap();
    assert_eq!(cache.digest().unwrap(), before);
}

#[test]
fn a_step_outlives_its_cache_s_handles() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    let step = cache.begin(&Batch::new(&[sequence], &[2]), Stream::NONE).unwrap();
    drop(cache);
    Tokens::random(2, &mut Random(9)).attend(&step, 0).unwrap();
    assert_eq!(step.cache().length(sequence).unwrap(), 0);
    step.end().unwrap();
}

#[test]
fn trees_commit() {
    let (cache, mut random) = (cache(), Random(10));
    let sequence = cache.add().unwrap();
    let mut history = History::default();
    run_step(&cache, &mut [(sequence, &mut history, 5)], None, &mut random);
    let parents = [Batch::ROOT, 0, 0, 1, 1, 2];
    let batch = Batch::new(&[sequence], &[6]).tree_parents(&parents);
    let tokens = Tokens::random(6, &mut random);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    assert_eq!(step.positions().unwrap(), [5, 6, 6, 7, 7, 7]);
    let out = tokens.attend(&step, 0).unwrap();
    step.end().unwrap();
    assert_eq!(cache.tree_nodes(&[sequence]).unwrap(), [6]);
    assert_eq!(cache.fork(&[sequence], Stream::NONE).unwrap_err().status(), Status::UNCOMMITTED);
    for node in [0, 1, 4] {
        history.push(&tokens, node..node + 1);
    }
    let row = 4 * HEADS * DIM..5 * HEADS * DIM;
    assert_close(&out[row.clone()], &history.attention(&tokens.q[row], 0..8));
    assert_eq!(cache.commit(&[(sequence, Some(6))], Stream::NONE).unwrap_err().status(), Status::OUT_OF_RANGE);
    cache.commit(&[(sequence, Some(4))], Stream::NONE).unwrap();
    assert_eq!(cache.length(sequence).unwrap(), 8);
    run_step(&cache, &mut [(sequence, &mut history, 2)], None, &mut random);

    let step = cache.begin(&batch, Stream::NONE).unwrap();
    tokens.attend(&step, 0).unwrap();
    step.end().unwrap();
    cache.commit(&[(sequence, None)], Stream::NONE).unwrap();
    assert_eq!((cache.length(sequence).unwrap(), cache.tree_nodes(&[sequence]).unwrap()), (10, vec![0]));
}

#[test]
fn pages_and_positions() {
    let groups = vec![Group::sliding(5)];
    let config = CacheConfig { groups, rollback_tokens: Some(3), max_batch_tokens: 8, ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    let (sequence, mut history, mut random) = (cache.add().unwrap(), History::default(), Random(11));
    for _ in 0..5 {
        run_step(&cache, &mut [(sequence, &mut history, 4)], Some(5), &mut random);
    }
    let pages = cache.pages(sequence, 0).unwrap();
    assert_eq!(pages.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, false, true, true]);
    assert_eq!(cache.nearest_positions(sequence, 9).unwrap(), (0, Some(16)));
    let error = cache.truncate(&[(sequence, 9)]).unwrap_err();
    assert!(matches!(&error, Error::State(failure) if failure.status == Status::EVICTED), "{error:?}");
    cache.truncate(&[(sequence, 17)]).unwrap();
}

#[test]
fn streaming_windows() {
    let cache = Cache::new(&context(), &CacheConfig { streaming: true, ..config() }).unwrap();
    let (sequence, mut random) = (cache.add().unwrap(), Random(12));
    let window = StreamingWindow { sinks: 4, window: 12, prefix_is_sink: false };
    cache.set_streaming(&[sequence], Some(window)).unwrap();
    assert_eq!(cache.streaming(sequence).unwrap(), Some((4, 12)));
    let mut history = History::default();
    for _ in 0..50 {
        let tokens = Tokens::random(8, &mut random);
        let step = cache.begin(&Batch::new(&[sequence], &[8]), Stream::NONE).unwrap();
        let out = tokens.attend(&step, 0).unwrap();
        step.end().unwrap();
        history.push(&tokens, 0..8);
        let last = history.length() - 1;
        let seen = (0..=last).filter(|key| *key < 4 || key + 8 > last); // four sinks, and the last 12 - 4
        let row = 7 * HEADS * DIM..8 * HEADS * DIM;
        assert_close(&out[row.clone()], &history.attention(&tokens.q[row], seen));
    }
    assert_eq!(cache.length(sequence).unwrap(), 400); // of a cache that holds 256
    cache.truncate(&[(sequence, 3)]).unwrap(); // within the sinks
    cache.set_streaming(&[sequence], None).unwrap();
    assert_eq!(cache.streaming(sequence).unwrap(), None);
}

#[test]
fn stats_estimate_and_descriptions() {
    let (context, config) = (context(), config());
    let estimate = Cache::estimate(&context, &config, None).unwrap();
    let cache = Cache::new(&context, &config).unwrap();
    let sequences = cache.add_many(3).unwrap();
    append(&cache, sequences[0], 6);
    let fork = cache.fork(&sequences[..1], Stream::NONE).unwrap();
    let stats = cache.stats(Some(0)).unwrap();
    assert_eq!((stats.num_sequences, stats.tokens_logical, stats.pages_shared), (4, 12, 1));
    assert_eq!((stats.pages_total, stats.storage_bytes), (estimate.num_pages, estimate.storage_bytes));
    assert_eq!(cache.exclusive_pages(0, &[sequences[0], fork[0], sequences[1]]).unwrap(), [1, 1, 0]);
    let pages = cache.pages(fork[0], 0).unwrap();
    assert_eq!(pages[0], cache.pages(sequences[0], 0).unwrap()[0]); // the whole page is shared, the partial one is not
    assert_ne!(pages[1], cache.pages(sequences[0], 0).unwrap()[1]);
    let step = cache.begin(&Batch::new(&[fork[0], Seq::INERT], &[1, 2]), Stream::NONE).unwrap();
    assert_eq!(step.last_rows().unwrap(), [0, 2]);
    for text in [context.describe().unwrap(), step.describe().unwrap(), build_info().into()] {
        assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
    }
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    drop(step);
    cache.clear().unwrap();
    assert_eq!(cache.lengths(&sequences).unwrap_err().index(), Some(0));
}
