//! Page pools that others gave, and caches without any.
use crate::support::*;
use kvcache::*;
use std::sync::Arc;

const PAGES: usize = 64; // config(): 256 tokens, pages of 4
const SLOT: usize = KV_HEADS * DIM;
const POOL: usize = PAGES * 4 * SLOT;

fn run(cache: &Cache) -> (Seq, Tokens, Vec<f32>) {
    let (sequence, tokens) = (cache.add().unwrap(), Tokens::random(9, &mut Random(60)));
    let step = cache.begin(&Batch::new(&[sequence], &[9]), Stream::NONE).unwrap();
    let out = tokens.attend(&step, 0).unwrap();
    step.end().unwrap();
    (sequence, tokens, out)
}

#[test]
fn adopted_pools_hold_the_keys() {
    let expected = run(&cache()).2;
    let kv = || ManagedTensor::from_vec(vec![0f32; 2 * POOL], &[PAGES, 2, KV_HEADS, 4, DIM]).unwrap();
    let one = |heads_first: bool| {
        let strides = if heads_first { [4 * SLOT, 4 * DIM, DIM, 1] } else { [4 * SLOT, DIM, SLOT, 1] };
        ManagedTensor::from_vec_strided(vec![0f32; POOL], &[PAGES, KV_HEADS, 4, DIM], &strides).unwrap()
    };
    for pools in [Pools::Kv(kv()), Pools::Separate { k: one(true), v: one(false) }] {
        let cache = Cache::with_pools(&context(), &config(), vec![(0, pools)]).unwrap();
        let (sequence, tokens, out) = run(&cache);
        assert_eq!(out, expected);
        let pages = cache.pages(sequence, 0).unwrap();
        let pool = cache.export_pool(0, Pool::V, Stream::NONE).unwrap();
        let strides: Vec<_> = pool.strides().iter().map(|stride| *stride as usize).collect();
        drop(cache); // the view keeps the memory alive
        for token in 0..9 {
            for head in 0..KV_HEADS {
                let at = pages[token / 4].unwrap() as usize * strides[0] + head * strides[1] + token % 4 * strides[2];
                // SAFETY: within the pool, which no cache writes any more.
                let row = unsafe { std::slice::from_raw_parts(pool.data().cast::<f32>().add(at), DIM) };
                assert_eq!(row, &tokens.v[token * SLOT + head * DIM..][..DIM]);
            }
        }
    }
}

/// A buffer with all layers of a slot side by side; every tensor of it has a reference.
fn interleaved(buffer: &Arc<ManagedTensor>, index: usize, of: usize) -> ManagedTensor {
    let (shape, strides) = ([PAGES, KV_HEADS, 4, DIM], [4 * of * SLOT, DIM, of * SLOT, 1]);
    assert!(buffer.shape()[0] as usize >= of * POOL);
    // SAFETY: within the buffer, which only caches write.
    unsafe {
        let data = buffer.data().cast::<f32>().cast_mut().add(index * SLOT).cast();
        ManagedTensor::from_owner(buffer.clone(), data, Device::CPU, DType::F32, &shape, &strides).unwrap()
    }
}

#[test]
fn pools_are_released_once() {
    let buffer = Arc::new(ManagedTensor::from_vec(vec![0f32; 4 * POOL], &[4 * POOL]).unwrap());
    let layers = vec![layer(); 2];
    let config = CacheConfig { layers, ..config() };
    let pools = |layer: usize, first| {
        let (k, v) = (interleaved(&buffer, first, 4), interleaved(&buffer, first + 1, 4));
        (layer, Pools::Separate { k, v })
    };
    let cache = Cache::with_pools(&context(), &config, vec![pools(0, 0), pools(1, 2)]).unwrap();
    assert_eq!(Arc::strong_count(&buffer), 5);
    let view = cache.export_pool(1, Pool::K, Stream::NONE).unwrap();
    drop(cache);
    assert!(Arc::strong_count(&buffer) >= 2); // the view's
    std::thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(Arc::strong_count(&buffer), 1);
    // A failure releases them too; so does a tensor that was never given.
    let refused = |pools, status| {
        let error = Cache::with_pools(&context(), &config, pools).unwrap_err();
        assert_eq!(error.status(), status, "{error}");
        assert_eq!(Arc::strong_count(&buffer), 1);
    };
    refused(vec![pools(0, 0), pools(1, 1)], Status::DUPLICATE); // K of one is V of the other
    refused(vec![pools(0, 0), pools(0, 2)], Status::DUPLICATE);
    refused(vec![pools(2, 0)], Status::OUT_OF_RANGE);
    refused(vec![pools(usize::MAX, 0)], Status::OUT_OF_RANGE);
    refused(vec![(0, Pools::Latent(interleaved(&buffer, 0, 4)))], Status::INVALID_ARGUMENT);
    refused(vec![(0, Pools::Kv(interleaved(&buffer, 0, 4)))], Status::RANK);
    let bytes = ManagedTensor::from_vec(vec![0i8; 2 * POOL], &[PAGES, 2, KV_HEADS, 4, DIM]).unwrap();
    refused(vec![(0, Pools::Kv(bytes))], Status::DTYPE);
    let small = ManagedTensor::from_vec(vec![0f32; 2 * POOL], &[PAGES - 1, 2, KV_HEADS, 4, DIM]).unwrap();
    refused(vec![(0, Pools::Kv(small))], Status::SHAPE);
    drop(interleaved(&buffer, 0, 4));
    assert_eq!(Arc::strong_count(&buffer), 1);
}

#[test]
fn vectors_as_tensors() {
    let tensor = ManagedTensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], &[2, 3]).unwrap();
    assert_eq!((tensor.shape(), tensor.strides(), tensor.dtype()), (&[2, 3][..], &[3, 1][..], Some(DType::I64)));
    assert_eq!(tensor.as_slice::<i64>().unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(tensor.view().unwrap().row(1).unwrap().as_slice::<i64>().unwrap(), [4, 5, 6]);
    let strided = ManagedTensor::from_vec_strided(vec![0f32; 6], &[3, 2], &[1, 3]).unwrap();
    assert_eq!(strided.as_slice::<f32>().unwrap_err().status(), Status::STRIDE);
    let status = |tensor: Result<ManagedTensor>| tensor.unwrap_err().status();
    assert_eq!(status(ManagedTensor::from_vec(vec![0f32; 5], &[2, 3])), Status::SHAPE);
    assert_eq!(status(ManagedTensor::from_vec_strided(vec![0f32; 6], &[2, 3], &[1, 1])), Status::STRIDE);
    assert_eq!(status(ManagedTensor::from_vec_strided(vec![0f32; 6], &[2, 3], &[9, 1])), Status::SHAPE);
}

/// An engine with pools of its own: page ids and tables from the cache, copies and attention over its own memory.
#[test]
fn without_storage() {
    let config = CacheConfig { storage: Storage::None, ..config() };
    let (context, cache) = (context(), Cache::new(&context(), &config).unwrap());
    let (mut k_pool, mut v_pool) = (vec![0f32; POOL], vec![0f32; POOL]);
    let mut random = Random(61);
    let copies_made = |k_pool: &mut Vec<f32>, v_pool: &mut Vec<f32>| {
        let copies = cache.take_copies().unwrap();
        for copy in &copies {
            let source = copy.source_slot * SLOT..(copy.source_slot + copy.count) * SLOT;
            k_pool.copy_within(source.clone(), copy.target_slot * SLOT);
            v_pool.copy_within(source, copy.target_slot * SLOT);
        }
        assert_eq!(cache.take_copies().unwrap(), []);
        copies.len()
    };
    let mut rows: Vec<(Seq, History)> = vec![(cache.add().unwrap(), History::default())];
    for n in [6, 1, 5, 1] {
        let sequences: Vec<_> = rows.iter().map(|row| row.0).collect();
        let batch = Batch::new(&sequences, &vec![n; rows.len()]);
        let step = cache.begin(&batch, Stream::NONE).unwrap();
        copies_made(&mut k_pool, &mut v_pool);
        let tokens = Tokens::random(n * rows.len(), &mut random);
        let tables = step.tables(0, TablesOptions { pad_value: Some(0), ..TablesOptions::default() }).unwrap();
        let shape = [PAGES, 4, KV_HEADS, DIM];
        let mut out = vec![f32::NAN; tokens.q.len()];
        let pools = (TensorMut::new(&mut k_pool, &shape).unwrap(), TensorMut::new(&mut v_pool, &shape).unwrap());
        let append = AppendSlots::new((tokens.k(), tokens.v()), pools, tables.slot_mapping.unwrap());
        append_slots(&context, &append, Stream::NONE).unwrap();
        let attend = FlashAttn {
            cache_seqlens: Some(tables.cache_seqlens),
            block_table: tables.block_table,
            cu_seqlens_q: Some(tables.cu_seqlens_q),
            causal: tables.causal,
            ..FlashAttn::new(
                tokens.q(),
                Tensor::new(&k_pool, &shape).unwrap(),
                Tensor::new(&v_pool, &shape).unwrap(),
                TensorMut::new(&mut out, &[tokens.n, HEADS, DIM]).unwrap(),
            )
        };
        flash_attn_with_kvcache(&context, &attend, Stream::NONE).unwrap();
        assert_eq!(
            step.attend(
                0,
                &Attend::stored(tokens.q(), TensorMut::new(&mut out.clone(), &[tokens.n, HEADS, DIM]).unwrap())
            )
            .unwrap_err()
            .status(),
            Status::UNSUPPORTED
        );
        step.end().unwrap();
        for (r, (_, history)) in rows.iter_mut().enumerate() {
            let begin = history.length();
            history.push(&tokens, r * n..(r + 1) * n);
            for i in 0..n {
                let q = (r * n + i) * HEADS * DIM..(r * n + i + 1) * HEADS * DIM;
                assert_close(&out[q.clone()], &history.attention(&tokens.q[q], 0..begin + i + 1));
            }
        }
        // A fork of the first, whose last page is partial after 6, 7 and 13 tokens, not after 12.
        let child = cache.fork(&sequences[..1], Stream::NONE).unwrap()[0];
        let partial = !rows[0].1.length().is_multiple_of(4);
        if partial {
            let error = cache.begin(&Batch::new(&[child], &[1]), Stream::NONE).unwrap_err();
            assert_eq!(error.status(), Status::ORDER, "{error}"); // the copy waits
        }
        assert_eq!(copies_made(&mut k_pool, &mut v_pool), usize::from(partial));
        let history = rows[0].1.clone();
        rows.push((child, history));
    }
    assert_eq!(cache.export(rows[0].0, 0, .., Stream::NONE).unwrap_err().status(), Status::UNSUPPORTED);
    assert_eq!(cache.export_pool(0, Pool::K, Stream::NONE).unwrap_err().status(), Status::UNSUPPORTED);
    let pool = ManagedTensor::from_vec(vec![0f32; 2 * POOL], &[PAGES, 2, KV_HEADS, 4, DIM]).unwrap();
    let error = Cache::with_pools(&context, &config, vec![(0, Pools::Kv(pool))]).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT, "{error}");
}
