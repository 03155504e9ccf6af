//! Attention over K and V of our own, against the definition.
use crate::support::*;
use kvcache::*;

const PAGES: usize = 12;
const PAGE: usize = 4;
const SLOT: usize = KV_HEADS * DIM;
const SHAPE: [usize; 4] = [PAGES, PAGE, KV_HEADS, DIM];
const POOL: usize = PAGES * PAGE * SLOT;

/// Three rows whose pages lie anywhere, grown by `FlashAttn::append`; K and V in one buffer, by the order of `strides`.
fn decode(kv: &mut [f32], split: impl for<'a> Fn(&'a mut [f32]) -> (TensorMut<'a>, TensorMut<'a>)) {
    let (context, mut random) = (context(), Random(50));
    let table = [7, 1, 4, 11, 0, 3, 9, 2, 5];
    let mut lengths = [0, 0, 0];
    let mut rows: [History; 3] = Default::default();
    for n in [1, 4, 2, 3] {
        let tokens = Tokens::random(3 * n, &mut random);
        let (mut out, mut lse) = (vec![f32::NAN; tokens.q.len()], vec![f32::NAN; 3 * HEADS * n]);
        let (q_shape, kv_shape) = ([3, n, HEADS, DIM], [3, n, KV_HEADS, DIM]);
        let tensor = |data, shape| Tensor::new(data, shape).unwrap();
        let call = FlashAttn {
            cache_seqlens: Some(Tensor::new(&lengths, &[3]).unwrap()),
            block_table: Some(Tensor::new(&table, &[3, 3]).unwrap()),
            softmax_lse: Some(TensorMut::new(&mut lse, &[3, HEADS, n]).unwrap()),
            causal: true,
            ..FlashAttn::append(
                tensor(&tokens.q, &q_shape),
                split(kv),
                (tensor(&tokens.k, &kv_shape), tensor(&tokens.v, &kv_shape)),
                TensorMut::new(&mut out, &q_shape).unwrap(),
            )
        };
        flash_attn_with_kvcache(&context, &call, Stream::NONE).unwrap();
        for (r, row) in rows.iter_mut().enumerate() {
            row.push(&tokens, r * n..(r + 1) * n);
            for i in 0..n {
                let q = (r * n + i) * HEADS * DIM..(r * n + i + 1) * HEADS * DIM;
                assert_close(&out[q.clone()], &row.attention(&tokens.q[q], 0..lengths[r] as usize + i + 1));
            }
            lengths[r] += n as i32;
        }
        assert!(lse.iter().all(|lse| lse.is_finite()));
    }
    // What is stored, read: a window, and rows in another order.
    let q = Random(51).numbers(2 * HEADS * DIM);
    let mut out = vec![f32::NAN; q.len()];
    let (k_cache, v_cache) = split(kv);
    // SAFETY: nothing writes it.
    let read = |tensor: &TensorMut<'_>| unsafe {
        let (dtype, shape, strides) = (tensor.dtype(), tensor.shape(), tensor.strides());
        Tensor::from_raw(tensor.data(), tensor.device(), dtype, &shape, &strides).unwrap()
    };
    let shape = [2, 1, HEADS, DIM];
    let out_tensor = TensorMut::new(&mut out, &shape).unwrap();
    let call = FlashAttn {
        cache_seqlens: Some(Tensor::strided(&lengths, &[2], &[0]).unwrap()), // one value for all
        cache_batch_idx: Some(Tensor::new(&[2, 0], &[2]).unwrap()),
        block_table: Some(Tensor::new(&table, &[3, 3]).unwrap()),
        window_left: Some(2),
        causal: true,
        ..FlashAttn::new(Tensor::new(&q, &shape).unwrap(), read(&k_cache), read(&v_cache), out_tensor)
    };
    flash_attn_with_kvcache(&context, &call, Stream::NONE).unwrap();
    for (row, history) in [&rows[2], &rows[0]].into_iter().enumerate() {
        let q = &q[row * HEADS * DIM..][..HEADS * DIM];
        assert_close(&out[row * HEADS * DIM..][..HEADS * DIM], &history.attention(q, 7..10));
    }
}

#[test]
fn decoding_over_a_paged_cache_in_any_order() {
    // [pages, page, heads, dim] one after the other; [pages, heads, page, dim]; K and V side by side in each slot.
    decode(&mut vec![0.0; 2 * POOL], |kv| {
        let (k, v) = kv.split_at_mut(POOL);
        (TensorMut::new(k, &SHAPE).unwrap(), TensorMut::new(v, &SHAPE).unwrap())
    });
    decode(&mut vec![0.0; 2 * POOL], |kv| {
        let (k, v) = kv.split_at_mut(POOL);
        let strides = [PAGE * SLOT, DIM, PAGE * DIM, 1];
        (TensorMut::strided(k, &SHAPE, &strides).unwrap(), TensorMut::strided(v, &SHAPE, &strides).unwrap())
    });
    decode(&mut vec![0.0; 2 * POOL], |kv| {
        TensorMut::new(kv, &[PAGES, PAGE, KV_HEADS, 2 * DIM]).unwrap().split_at(3, DIM).unwrap()
    });
}

#[test]
fn slots_and_rotation() {
    let (context, tokens) = (context(), Tokens::random(3, &mut Random(52)));
    let (mut k_cache, mut v_cache) = (vec![0f32; POOL], vec![0f32; POOL]);
    let (angle, slots) = (0.7f32, [9i64, -1, 30]);
    let (cos, sin) = ([1.0, angle.cos()], [0.0, angle.sin()]); // positions 0 and 1 of one pair
    let call = AppendSlots {
        rotary: Some(Rotary {
            cos: Tensor::new(&cos, &[2, 1]).unwrap(),
            sin: Tensor::new(&sin, &[2, 1]).unwrap(),
            positions: Tensor::new(&[1, 0, 0], &[3]).unwrap(),
            interleaved: true,
        }),
        ..AppendSlots::new(
            (tokens.k(), tokens.v()),
            (TensorMut::new(&mut k_cache, &SHAPE).unwrap(), TensorMut::new(&mut v_cache, &SHAPE).unwrap()),
            Tensor::new(&slots, &[3]).unwrap(),
        )
    };
    append_slots(&context, &call, Stream::NONE).unwrap();
    let mut rotated = tokens.k.clone();
    for head in rotated[..SLOT].chunks_mut(DIM) {
        let (x, y) = (head[0], head[1]);
        (head[0], head[1]) = (x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos());
    }
    for slot in 0..PAGES * PAGE {
        let token = [(9, Some(0)), (30, Some(2))].iter().find(|(at, _)| *at == slot).and_then(|entry| entry.1);
        let expected = |values: &[f32]| token.map_or(vec![0.0; SLOT], |token| values[token * SLOT..][..SLOT].to_vec());
        assert_close(&k_cache[slot * SLOT..][..SLOT], &expected(&rotated));
        assert_close(&v_cache[slot * SLOT..][..SLOT], &expected(&tokens.v));
    }
    // Latent rows: [latent | rotary].
    let (latent, rotary) = (Random(53).numbers(2 * 6), Random(54).numbers(2 * 2));
    let mut rows = vec![0f32; PAGES * 8];
    let parts = (Tensor::new(&rotary, &[2, 1, 2]).unwrap(), Tensor::new(&latent, &[2, 1, 6]).unwrap());
    let cache = TensorMut::new(&mut rows, &[3, PAGE, 1, 8]).unwrap();
    let call = AppendSlots::latent(parts, cache, Tensor::new(&[3, 11], &[2]).unwrap());
    append_slots(&context, &call, Stream::NONE).unwrap();
    for (token, slot) in [3, 11].into_iter().enumerate() {
        assert_eq!(rows[slot * 8..][..8], [&latent[token * 6..][..6], &rotary[token * 2..][..2]].concat());
    }
}

/// What a call refuses, and that it wrote nothing.
#[track_caller]
fn refused(change: impl FnOnce(&mut FlashAttn<'_>), status: Status, index: Option<usize>) {
    let tokens = Tokens::random(2, &mut Random(55));
    let (mut k, mut v, mut out) = (vec![0f32; POOL], vec![0f32; POOL], vec![5f32; tokens.q.len()]);
    let (q_shape, kv_shape) = ([2, 1, HEADS, DIM], [2, 1, KV_HEADS, DIM]);
    let mut call = FlashAttn {
        cache_seqlens: Some(Tensor::new(&[3, 4], &[2]).unwrap()),
        block_table: Some(Tensor::new(&[0, 1, 2, 3], &[2, 2]).unwrap()),
        ..FlashAttn::append(
            Tensor::new(&tokens.q, &q_shape).unwrap(),
            (TensorMut::new(&mut k, &SHAPE).unwrap(), TensorMut::new(&mut v, &SHAPE).unwrap()),
            (Tensor::new(&tokens.k, &kv_shape).unwrap(), Tensor::new(&tokens.v, &kv_shape).unwrap()),
            TensorMut::new(&mut out, &q_shape).unwrap(),
        )
    };
    change(&mut call);
    let error = flash_attn_with_kvcache(&context(), &call, Stream::NONE).unwrap_err();
    assert_eq!((error.status(), error.index()), (status, index), "{error}");
    assert!(error.message().starts_with("flash_attn_with_kvcache: "), "{error}");
    assert!(k.iter().chain(&v).all(|x| *x == 0.0) && out.iter().all(|x| *x == 5.0));
}

#[test]
fn bad_input() {
    let ints = |data: &'static [i32], shape: &[usize]| Some(Tensor::new(data, shape).unwrap());
    let zeros: &'static [f32] = &[0.0; 2 * HEADS * DIM];
    refused(|call| call.cache_seqlens = ints(&[3, 8], &[2]), Status::BUFFER_TOO_SMALL, Some(1));
    refused(|call| call.cache_seqlens = ints(&[3, 9], &[2]), Status::OUT_OF_RANGE, Some(1));
    refused(|call| call.cache_seqlens = ints(&[3, -1], &[2]), Status::OUT_OF_RANGE, Some(1));
    refused(|call| call.cache_seqlens = ints(&[3, 4], &[2, 1]), Status::RANK, None);
    refused(|call| call.cache_seqlens = Some(Tensor::new(&[0f32; 2], &[2]).unwrap()), Status::DTYPE, None);
    refused(|call| call.cache_seqlens = None, Status::NULL_ARGUMENT, None);
    refused(|call| call.block_table = ints(&[0, 1, 2, PAGES as i32], &[2, 2]), Status::OUT_OF_RANGE, Some(1));
    refused(|call| call.block_table = ints(&[0, 1, -5, 3], &[2, 2]), Status::OUT_OF_RANGE, Some(1));
    refused(|call| call.block_table = ints(&[0, 1, 2, 3], &[4]), Status::RANK, None);
    refused(|call| call.cache_batch_idx = ints(&[1, 1], &[2]), Status::INVALID_ARGUMENT, Some(1));
    refused(|call| call.cache_leftpad = ints(&[0, 5], &[2]), Status::OUT_OF_RANGE, Some(1));
    refused(|call| call.q = Tensor::new(zeros, &[2, 1, HEADS, DIM / 2]).unwrap(), Status::SHAPE, None);
    refused(|call| call.q = Tensor::new(zeros, &[2, HEADS, DIM]).unwrap(), Status::RANK, None);
    refused(|call| call.alibi_slopes = Some(Tensor::new(zeros, &[HEADS - 1]).unwrap()), Status::SHAPE, None);
    refused(|call| call.softcap = -1.0, Status::OUT_OF_RANGE, None);
    refused(|call| call.num_splits = usize::MAX, Status::OUT_OF_RANGE, None);
    let (mut k, mut v) = (vec![0f32; POOL], vec![0f32; POOL]);
    let tokens = Tokens::random(2, &mut Random(56));
    let mut slots = |slots: &[i32]| {
        let caches = (TensorMut::new(&mut k, &SHAPE).unwrap(), TensorMut::new(&mut v, &SHAPE).unwrap());
        let call = AppendSlots::new((tokens.k(), tokens.v()), caches, Tensor::new(slots, &[slots.len()]).unwrap());
        append_slots(&context(), &call, Stream::NONE).map_err(|error| (error.status(), error.index()))
    };
    assert_eq!(slots(&[0, (PAGES * PAGE) as i32]), Err((Status::OUT_OF_RANGE, Some(1))));
    assert_eq!(slots(&[0, 1, 2]).unwrap_err().0, Status::SHAPE); // more than k and v have
    assert!(k.iter().all(|x| *x == 0.0));
}

#[test]
fn views_of_slices() {
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let tensor = Tensor::new(&data, &[3, 4]).unwrap();
    assert_eq!(tensor.row(2).unwrap().as_slice::<f32>().unwrap(), &data[8..]);
    assert_eq!(tensor.as_slice::<i32>().unwrap_err().status(), Status::DTYPE);
    assert_eq!(tensor.row(3).unwrap_err().status(), Status::OUT_OF_RANGE);
    let one = tensor.row(1).unwrap().row(3).unwrap();
    assert_eq!((one.shape(), one.as_slice::<f32>().unwrap()), (vec![], &[7.0][..]));
    assert_eq!(one.row(0).unwrap_err().status(), Status::OUT_OF_RANGE);
    let columns = Tensor::strided(&data, &[4, 3], &[1, 4]).unwrap();
    assert_eq!(columns.as_slice::<f32>().unwrap_err().status(), Status::STRIDE);
    assert!(Tensor::new(&data, &[0, 9]).unwrap().as_slice::<f32>().unwrap().is_empty());
    let bytes = [0u8; 9];
    let odd = bytes.as_ptr().align_offset(4) + 1;
    let unaligned = Tensor::from_bytes(&bytes[odd..], DType::F32, &[1]).unwrap();
    assert_eq!(unaligned.as_slice::<f32>().unwrap_err().status(), Status::STRIDE);
    let mut kv = [0f32; 12];
    let (k, v) = TensorMut::new(&mut kv, &[2, 6]).unwrap().split_at(1, 4).unwrap();
    assert_eq!((k.shape(), v.shape(), v.strides()), (vec![2, 4], vec![2, 2], vec![6, 1]));
    assert_eq!(v.data().addr() - k.data().addr(), 4 * 4);
    let (k0, k1) = k.split_at(0, 1).unwrap();
    assert_eq!((k1.data().addr() - k0.data().addr(), k1.shape()), (6 * 4, vec![1, 4]));
    assert_eq!(k0.split_at(1, 5).unwrap_err().status(), Status::OUT_OF_RANGE);
    assert_eq!(v.split_at(2, 0).unwrap_err().status(), Status::OUT_OF_RANGE);
}
