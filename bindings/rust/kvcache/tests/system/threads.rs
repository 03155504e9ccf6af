//! One cache from many threads.
use crate::support::*;
use kvcache::*;
use std::sync::{Arc, Mutex};
use std::thread;

#[test]
fn sequences_decode_on_threads_of_their_own() {
    let config = CacheConfig { max_open_steps: 4, ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    thread::scope(|scope| {
        for seed in 0..4 {
            let cache = cache.clone();
            scope.spawn(move || {
                let (mut history, mut random) = (History::default(), Random(100 + seed));
                let sequence = cache.add().unwrap();
                for _ in 0..40 {
                    run_step(&cache, &mut [(sequence, &mut history, 1)], None, &mut random);
                }
                let fork = cache.fork(&[sequence], Stream::NONE).unwrap();
                cache.remove(&[sequence, fork[0]]).unwrap();
            });
        }
    });
    cache.check_invariants().unwrap();
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
}

#[test]
fn a_step_moves_between_threads() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    let step = cache.begin(&Batch::new(&[sequence], &[2]), Stream::NONE).unwrap();
    let tokens = Tokens::random(2, &mut Random(50));
    let step = thread::spawn(move || {
        tokens.attend(&step, 0).unwrap();
        step
    });
    step.join().unwrap().end().unwrap();
    assert_eq!(cache.length(sequence).unwrap(), 2);
}

#[test]
fn a_step_is_cancelled_from_another_thread() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    let step = cache.begin(&Batch::new(&[sequence], &[2]), Stream::NONE).unwrap();
    let canceller = step.canceller();
    thread::spawn(move || canceller.cancel().unwrap()).join().unwrap();
    let error = Tokens::random(2, &mut Random(51)).attend(&step, 0).unwrap_err();
    assert!(matches!(&error, Error::State(failure) if failure.status == Status::CANCELLED), "{error:?}");
    assert_eq!(step.end().unwrap_err().status(), Status::CANCELLED); // and aborted
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
}

#[test]
fn the_log_is_called_and_may_panic() {
    let lines = Arc::new(Mutex::new(0));
    let counted = lines.clone();
    let context = ContextConfig::new().log(move |_, message| {
        assert!(!message.is_empty());
        *counted.lock().unwrap() += 1;
        panic!("a panic of the test");
    });
    let context = Context::new(context).unwrap();
    drop(Cache::new(&context, &config()).unwrap());
    drop(context);
    assert_eq!(Arc::strong_count(&lines), 1, "the callback lives on");
}
