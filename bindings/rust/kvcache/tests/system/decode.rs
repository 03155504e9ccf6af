//! Prefill, decode and forks against attention by its definition.
use crate::support::*;
use kvcache::*;

#[test]
fn prefill_fork_and_decode() {
    let (cache, mut random) = (cache(), Random(1));
    let system = cache.add().unwrap();
    let mut prompt = History::default();
    run_step(&cache, &mut [(system, &mut prompt, 11)], None, &mut random);
    run_step(&cache, &mut [(system, &mut prompt, 3)], None, &mut random);
    let users = cache.fork(&[system; 3], Stream::NONE).unwrap();
    let earlier = cache.fork_at(&[(system, 6)], Stream::NONE).unwrap()[0];
    let (mut a, mut b, mut c, mut d) = (prompt.clone(), prompt.clone(), prompt.clone(), prompt.clone());
    d.truncate(6);
    for _ in 0..10 {
        let rows = &mut [(users[0], &mut a, 1), (users[1], &mut b, 2), (users[2], &mut c, 1), (earlier, &mut d, 1)];
        run_step(&cache, rows, None, &mut random);
    }
    cache.truncate(&[(users[0], 9)]).unwrap();
    a.truncate(9);
    run_step(&cache, &mut [(users[0], &mut a, 2), (system, &mut prompt, 1)], None, &mut random);
    cache.check_invariants().unwrap();
}

#[test]
fn sliding_window() {
    let groups = vec![Group::sliding(5)];
    let cache = Cache::new(&context(), &CacheConfig { groups, ..config() }).unwrap();
    let (sequence, mut history, mut random) = (cache.add().unwrap(), History::default(), Random(2));
    for n in [7, 1, 1, 4, 1, 1, 1, 9, 1] {
        run_step(&cache, &mut [(sequence, &mut history, n)], Some(5), &mut random);
    }
}

#[test]
fn many_threads_of_the_host_compute_it() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    // A host's pool that calls items twice, leaves some out and asks for one that is not there.
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let context = ContextConfig::new().threads(3).parallel_for(move |n, item| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..n / 2).for_each(item));
            (0..n / 2).for_each(item);
            item(n);
        });
    });
    let config = CacheConfig { capacity: Capacity::Tokens(4096), max_batch_tokens: 2048, ..config() };
    let cache = Cache::new(&Context::new(context).unwrap(), &config).unwrap(); // the cache alone keeps the context
    let (sequence, mut history, mut random) = (cache.add().unwrap(), History::default(), Random(3));
    run_step(&cache, &mut [(sequence, &mut history, 600)], None, &mut random);
    run_step(&cache, &mut [(sequence, &mut history, 1)], None, &mut random);
    assert!(calls.load(Ordering::Relaxed) > 0, "no job was large enough for the host's pool");
}

#[test]
fn a_panic_in_the_host_s_pool_does_not_pass_through_c() {
    let context = ContextConfig::new().threads(3).parallel_for(|_, _| panic!("a panic of the test"));
    let config = CacheConfig { capacity: Capacity::Tokens(4096), max_batch_tokens: 2048, ..config() };
    let cache = Cache::new(&Context::new(context).unwrap(), &config).unwrap();
    let (sequence, mut history, mut random) = (cache.add().unwrap(), History::default(), Random(4));
    run_step(&cache, &mut [(sequence, &mut history, 600)], None, &mut random);
}

#[test]
fn half_types_and_strides() {
    let layers = vec![Layer { dtype: DType::BF16, ..layer() }];
    let cache = Cache::new(&context(), &CacheConfig { layers, ..config() }).unwrap();
    let tokens = Tokens::random(3, &mut Random(5));
    let rounded = |numbers: &[f32]| numbers.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
    let (q, v) = (rounded(&tokens.q), rounded(&tokens.v));
    // k lies in a larger array: rows of K and something else, in turn.
    let mut wide = vec![bf16::NAN; 3 * 2 * KV_HEADS * DIM];
    for (to, from) in wide.chunks_mut(2 * KV_HEADS * DIM).zip(rounded(&tokens.k).chunks(KV_HEADS * DIM)) {
        to[..KV_HEADS * DIM].copy_from_slice(from);
    }
    let k = Tensor::strided(&wide, &[3, KV_HEADS, DIM], &[2 * KV_HEADS * DIM, DIM, 1]).unwrap();
    let mut out = vec![f16::NAN; 3 * HEADS * DIM];
    let mut lse = vec![f32::NAN; 3 * HEADS];
    let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[3]), Stream::NONE).unwrap();
    let (shape, kv_shape) = ([3, HEADS, DIM], [3, KV_HEADS, DIM]);
    let attend = Attend {
        lse: Some(TensorMut::new(&mut lse, &[3, HEADS]).unwrap()),
        ..Attend::new(
            Tensor::new(&q, &shape).unwrap(),
            k,
            Tensor::new(&v, &kv_shape).unwrap(),
            TensorMut::new(&mut out, &shape).unwrap(),
        )
    };
    step.attend(0, &attend).unwrap();
    assert_eq!(step.positions().unwrap(), [0, 1, 2]);
    assert_eq!(step.last_rows().unwrap(), [2]);
    step.end().unwrap();
    let mut history = History::default();
    let back = |numbers: &[bf16]| numbers.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let tokens = Tokens { n: 3, q: back(&q), k: back(&rounded(&tokens.k)), v: back(&v) };
    history.push(&tokens, 0..3);
    for i in 0..3 {
        let row = i * HEADS * DIM..(i + 1) * HEADS * DIM;
        let expected = history.attention(&tokens.q[row.clone()], 0..i + 1);
        for (got, expected) in out[row].iter().zip(expected) {
            assert!((got.to_f32() - expected).abs() < 2e-3, "{got} {expected}");
        }
    }
    assert!(lse.iter().all(|lse| lse.is_finite()));
}

#[test]
fn two_parts_merge() {
    let (cache, mut random) = (cache(), Random(6));
    let sequence = cache.add().unwrap();
    let mut history = History::default();
    run_step(&cache, &mut [(sequence, &mut history, 9)], None, &mut random);
    let tokens = Tokens::random(1, &mut random);
    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    step.append(0, &Append::new(tokens.k(), tokens.v())).unwrap();
    let shape = [1, HEADS, DIM];
    let mut parts = [Keys::Past, Keys::New].map(|keys| (keys, vec![0f32; HEADS * DIM], vec![0f32; HEADS]));
    for (keys, out, lse) in &mut parts {
        let lse = Some(TensorMut::new(lse, &[1, HEADS]).unwrap());
        let out = TensorMut::new(out, &shape).unwrap();
        step.attend(0, &Attend { lse, keys: *keys, ..Attend::stored(tokens.q(), out) }).unwrap();
    }
    step.end().unwrap();
    let parts = parts
        .each_ref()
        .map(|(_, out, lse)| (Tensor::new(out, &shape).unwrap(), Tensor::new(lse, &[1, HEADS]).unwrap()));
    let mut merged = vec![f32::NAN; HEADS * DIM];
    let mut out = TensorMut::new(&mut merged, &shape).unwrap();
    merge_states(cache.context(), &parts, &mut out, None, Stream::NONE).unwrap();
    history.push(&tokens, 0..1);
    assert_close(&merged, &history.attention(&tokens.q, 0..10));
}
