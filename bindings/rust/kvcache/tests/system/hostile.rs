//! Arguments that no sane program passes, and callbacks that call back: errors, never a crash.
use crate::support::*;
use kvcache::*;
use std::sync::{Arc, Mutex};

const ROWS: usize = 1 << 62;

/// A tensor of rows without number, all in one place.
fn endless<'a>(row: &'a [f32], dims: &[usize]) -> Tensor<'a> {
    let shape: Vec<usize> = [ROWS].iter().chain(dims).copied().collect();
    let strides: Vec<usize> = (0..=dims.len()).map(|i| if i == 0 { 0 } else { dims[i..].iter().product() }).collect();
    Tensor::strided(row, &shape, &strides).unwrap()
}

#[test]
fn rows_without_end() {
    let cache = cache();
    let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[3]), Stream::NONE).unwrap();
    let (row, mut out) = ([1f32; HEADS * DIM], [0f32; 3 * HEADS * DIM]);
    let kv = endless(&row, &[KV_HEADS, DIM]);
    let out_tensor = TensorMut::new(&mut out, &[3, HEADS, DIM]).unwrap();
    step.attend(0, &Attend::new(endless(&row, &[HEADS, DIM]), kv, kv, out_tensor)).unwrap();
    assert!(out.iter().all(|x| *x == 1.0)); // the step has three of them

    let (pool, mut out) = ([1f32; 4 * 16 * DIM], [0f32; HEADS * DIM]);
    let pool = Tensor::new(&pool, &[4, 16, 1, DIM]).unwrap();
    let out = TensorMut::new(&mut out, &[1, 1, HEADS, DIM]).unwrap();
    let call = FlashAttn {
        cache_seqlens: Some(Tensor::new(&[4], &[1]).unwrap()),
        block_table: Some(Tensor::new(&[0], &[1, 1]).unwrap()),
        ..FlashAttn::new(endless(&row, &[1, HEADS, DIM]), pool, pool, out)
    };
    let error = flash_attn_with_kvcache(&context(), &call, Stream::NONE).unwrap_err();
    assert_eq!(error.status(), Status::SHAPE, "{error}");

    let (mut k, mut v) = ([0f32; 4 * 16 * DIM], [0f32; 4 * 16 * DIM]);
    let pools = [&mut k, &mut v].map(|pool| TensorMut::new(pool, &[4, 16, 1, DIM]).unwrap());
    let [k, v] = pools;
    let slots = Tensor::strided(&[-1i64], &[ROWS], &[0]).unwrap();
    let kv = endless(&row, &[1, DIM]);
    let error = append_slots(&context(), &AppendSlots::new((kv, kv), (k, v), slots), Stream::NONE).unwrap_err();
    assert!([Status::SHAPE, Status::OUT_OF_MEMORY].contains(&error.status()), "{error}");
}

#[test]
fn a_callback_drops_another_cache() {
    let victims = Arc::new(Mutex::new(Vec::<(Cache, Step)>::new()));
    let inside = victims.clone();
    let context = Context::new(ContextConfig::new().threads(2).parallel_for(move |n, item| {
        let victim = inside.lock().unwrap().pop();
        drop(victim); // first the cache's last handle but the step's, then the step
        (0..n).for_each(item);
    }))
    .unwrap();
    let cache = Cache::new(&context, &config()).unwrap();
    for _ in 0..3 {
        let other = Cache::new(&context, &config()).unwrap();
        let step = other.begin(&Batch::new(&[other.add().unwrap()], &[2]), Stream::NONE).unwrap();
        victims.lock().unwrap().push((other, step));
    }
    let (mut random, mut history) = (Random(60), History::default());
    let sequence = cache.add().unwrap();
    for _ in 0..6 {
        run_step(&cache, &mut [(sequence, &mut history, 40)], None, &mut random);
    }
    assert!(victims.lock().unwrap().is_empty(), "the callback ran");
    cache.check_invariants().unwrap();
}

#[test]
fn a_callback_computes_in_another_cache() {
    let other = Arc::new(Mutex::new(None::<(Cache, Seq)>));
    let inside = other.clone();
    let context = Context::new(ContextConfig::new().threads(2).parallel_for(move |n, item| {
        let taken = inside.lock().unwrap().take();
        if let Some((cache, sequence)) = taken {
            run_step(&cache, &mut [(sequence, &mut History::default(), 40)], None, &mut Random(61));
        }
        (0..n).for_each(item);
    }))
    .unwrap();
    let cache = Cache::new(&context, &config()).unwrap();
    let second = Cache::new(&context, &config()).unwrap();
    let (sequence, mut history) = (cache.add().unwrap(), History::default());
    *other.lock().unwrap() = Some((second.clone(), second.add().unwrap()));
    run_step(&cache, &mut [(sequence, &mut history, 40)], None, &mut Random(62));
    assert!(other.lock().unwrap().is_none(), "the callback ran");
}

/// Siblings share the pages of their encoder sequence, and a step that appends to it attends to nothing.
#[test]
fn an_encoder_step_of_forks_is_described() {
    let config = CacheConfig {
        layers: vec![layer(), Layer { group: 1, ..layer() }],
        groups: vec![Group::full(), Group::cross()],
        prefix_sharing: PrefixSharing::Always,
        ..config()
    };
    let cache = Cache::new(&context(), &config).unwrap();
    let a = cache.add().unwrap();
    let step = cache.begin(&Batch::new(&[a], &[32]).encoder_group(1), Stream::NONE).unwrap();
    let frames = Tokens::random(32, &mut Random(63));
    step.append(1, &Append::new(frames.k(), frames.v())).unwrap();
    step.end().unwrap();
    let forks = cache.fork(&[a, a], Stream::NONE).unwrap();
    let batch = Batch::new(&[a, forks[0], forks[1]], &[1, 1, 1]).encoder_group(1);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    assert!(step.describe().unwrap().contains("\"rows\": 3"));
}

/// No token is stored, and the tables of cos and sin have no rows: nothing is read of them.
#[test]
fn padding_alone_with_empty_rotary_tables() {
    let kv = [1f32; 3 * DIM];
    let kv = Tensor::new(&kv, &[3, 1, DIM]).unwrap();
    let empty = Tensor::new(&[0f32; 0], &[0, DIM / 2]).unwrap();
    let positions = Tensor::new(&[0i64; 3], &[3]).unwrap();
    let append = |slots: &[i64]| {
        let (mut k, mut v) = ([0f32; 4 * 16 * DIM], [0f32; 4 * 16 * DIM]);
        let pools =
            (TensorMut::new(&mut k, &[4, 16, 1, DIM]).unwrap(), TensorMut::new(&mut v, &[4, 16, 1, DIM]).unwrap());
        let rotary = Some(Rotary { cos: empty, sin: empty, positions, interleaved: false });
        let call = AppendSlots { rotary, ..AppendSlots::new((kv, kv), pools, Tensor::new(slots, &[3]).unwrap()) };
        append_slots(&context(), &call, Stream::NONE).map_err(|error| error.status())
    };
    assert_eq!(append(&[-1, -1, -1]), Ok(()));
    assert_eq!(append(&[-1, 0, -1]), Err(Status::OUT_OF_RANGE));
}
