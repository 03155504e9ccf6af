//! Bad input: an error with the library's words, never a crash, and nothing has changed. (That closed handles cannot be
//! used, the compiler sees to: `end` consumes the step, and a Step keeps its Cache.)
use crate::support::*;
use kvcache::*;

#[track_caller]
fn misuse<T: std::fmt::Debug>(result: Result<T>, status: Status, words: &str) {
    match result {
        Err(Error::Misuse(failure)) => {
            assert_eq!(failure.status, status, "{}", failure.message);
            assert!(failure.message.contains(words), "{:?} has no {words:?}", failure.message);
        }
        other => panic!("expected {status}, got {other:?}"),
    }
}

#[test]
fn slices_that_are_too_short() {
    let (short, shape) = ([0f32; 7], [2, 4]);
    misuse(
        Tensor::new(&short, &shape),
        Status::SHAPE,
        "shape [2, 4] with strides [4, 1] needs 8 elements, the slice has 7",
    );
    misuse(Tensor::strided(&short, &[2, 2], &[6, 1]), Status::SHAPE, "needs 8 elements");
    misuse(Tensor::from_bytes(&[0; 7], DType::F16, &[4]), Status::SHAPE, "the slice has 3");
    misuse(TensorMut::new(&mut [0f32; 7], &shape), Status::SHAPE, "needs 8 elements");
    misuse(TensorMut::from_bytes(&mut [0; 7], DType::F16, &[4]), Status::SHAPE, "the slice has 3");
    misuse(Tensor::new(&short, &[usize::MAX, usize::MAX]), Status::SHAPE, "more than there can be");
    misuse(Tensor::new(&short, &[1; MAX_RANK + 1]), Status::RANK, "at most 6 dimensions");
    misuse(Tensor::strided(&short, &[2, 2], &[1]), Status::STRIDE, "needs a stride a dimension");
    misuse(TensorMut::strided(&mut [0f32; 7], &[2, 2], &[1, 1]), Status::STRIDE, "two elements in one place");
    misuse(TensorMut::strided(&mut [0f32; 7], &[2, 2], &[0, 1]), Status::STRIDE, "two elements in one place");
    TensorMut::strided(&mut [0f32; 7], &[2, 3], &[1, 2]).unwrap(); // column-major
    Tensor::strided(&short, &[9, 7], &[0, 1]).unwrap(); // one row, nine times
    Tensor::new(&short, &[0, usize::MAX]).unwrap();
    TensorMut::strided(&mut [0f32; 7], &[0, 3, 3], &[1, usize::MAX, usize::MAX]).unwrap();
}

#[test]
fn wrong_tensors() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    let tokens = Tokens::random(3, &mut Random(20));
    let step = cache.begin(&Batch::new(&[sequence], &[3]), Stream::NONE).unwrap();
    let mut out = vec![0f32; 3 * HEADS * DIM];
    let shape = [3, HEADS, DIM];
    let mut attend = |q: Tensor<'_>, k: Tensor<'_>, v: Tensor<'_>, out_shape: &[usize]| {
        step.attend(0, &Attend::new(q, k, v, TensorMut::new(&mut out, out_shape).unwrap()))
    };
    let (q, k, v) = (tokens.q(), tokens.k(), tokens.v());
    let few = Tensor::new(&tokens.q, &[2, HEADS, DIM]).unwrap();
    misuse(attend(few, k, v, &shape), Status::SHAPE, "Step::attend");
    misuse(attend(q, Tensor::new(&tokens.k, &[3, 1, DIM]).unwrap(), v, &shape), Status::SHAPE, "");
    misuse(attend(q, k, Tensor::new(&tokens.v, &[3, KV_HEADS * DIM]).unwrap(), &shape), Status::RANK, "");
    misuse(attend(q, k, v, &[3, HEADS, DIM / 2]), Status::SHAPE, "");
    misuse(attend(q, k, v, &[]), Status::RANK, "");
    let bytes = vec![0u8; tokens.q.len()];
    misuse(attend(Tensor::new(&bytes, &shape).unwrap(), k, v, &shape), Status::DTYPE, "");
    let strides = [HEADS * DIM, 1, HEADS];
    misuse(attend(Tensor::strided(&tokens.q, &shape, &strides).unwrap(), k, v, &shape), Status::STRIDE, "");
    let bytes = vec![0u8; 4 * tokens.q.len() + 8];
    let offset = bytes.as_ptr().align_offset(4) + 1;
    let unaligned = Tensor::from_bytes(&bytes[offset..], DType::F32, &shape).unwrap();
    misuse(attend(unaligned, k, v, &shape), Status::STRIDE, "");
    // SAFETY: memory of the host that only says that it is elsewhere.
    let elsewhere = unsafe {
        let device = Device { device_type: 2, device_id: 0 };
        Tensor::from_raw(tokens.q.as_ptr().cast(), device, DType::F32, &shape, &[HEADS * DIM, DIM, 1]).unwrap()
    };
    misuse(attend(elsewhere, k, v, &shape), Status::DEVICE, "");
    attend(q, k, v, &shape).unwrap(); // the step is as it was
    assert!(matches!(attend(q, k, v, &shape), Err(Error::State(failure)) if failure.status == Status::ORDER));
    misuse(step.append(7, &Append::new(k, v)), Status::OUT_OF_RANGE, "7");
    misuse(step.append(usize::MAX, &Append::new(k, v)), Status::OUT_OF_RANGE, "");
    misuse(step.store_state(0, 0, &q), Status::INVALID_ARGUMENT, "");
    step.end().unwrap();
}

#[test]
fn ids_of_another_cache_and_ids_that_are_gone() {
    let (cache, other) = (cache(), cache());
    let (ours, foreign) = (cache.add().unwrap(), other.add().unwrap());
    assert_ne!(ours, foreign);
    let gone = cache.add().unwrap();
    cache.remove(&[gone]).unwrap();
    for bad in [foreign, gone, Seq(0), Seq(u64::MAX), Seq(12345)] {
        misuse(cache.length(bad), Status::STALE_ID, "Cache::lengths");
        misuse(cache.lengths(&[ours, bad]), Status::STALE_ID, "");
        misuse(cache.remove(&[ours, bad]), Status::STALE_ID, "Cache::remove");
        misuse(cache.fork(&[ours, bad], Stream::NONE), Status::STALE_ID, "");
        misuse(cache.truncate(&[(bad, 0)]), Status::STALE_ID, "");
        misuse(cache.commit(&[(bad, None)], Stream::NONE), Status::STALE_ID, "");
        misuse(cache.pages(bad, 0), Status::STALE_ID, "");
        misuse(cache.nearest_positions(bad, 0), Status::STALE_ID, "");
        misuse(cache.max_append(&[bad]), Status::STALE_ID, "");
        misuse(cache.exclusive_pages(0, &[bad]), Status::STALE_ID, "Cache::exclusive_pages");
        misuse(cache.tree_nodes(&[bad]), Status::STALE_ID, "");
        misuse(cache.streaming(bad), Status::STALE_ID, "");
        misuse(cache.export(bad, 0, 0..1, Stream::NONE), Status::STALE_ID, "");
        misuse(cache.import(bad, &Import::default(), Stream::NONE), Status::INVALID_ARGUMENT, "");
        if bad != Seq::INERT {
            misuse(cache.begin(&Batch::new(&[bad], &[1]), Stream::NONE), Status::STALE_ID, "");
        }
    }
    assert_eq!(cache.remove(&[ours, gone]).unwrap_err().index(), Some(1));
    assert_eq!(cache.length(ours).unwrap(), 0);
    let canceller = cache.begin(&Batch::new(&[ours], &[1]), Stream::NONE).unwrap().canceller(); // of a dropped step
    misuse(canceller.cancel(), Status::STALE_ID, "");
}

#[test]
fn wrong_arguments() {
    let cache = cache();
    let sequence = cache.add().unwrap();
    misuse(cache.begin(&Batch::new(&[sequence], &[]), Stream::NONE), Status::INVALID_ARGUMENT, "0 append_lengths");
    misuse(
        cache.can_fit(&Batch::new(&[sequence], &[3]).tree_parents(&[-1])),
        Status::INVALID_ARGUMENT,
        "1 tree_parents",
    );
    misuse(cache.can_fit(&Batch::new(&[sequence], &[3]).span_ids(&[1])), Status::INVALID_ARGUMENT, "1 span_ids");
    misuse(cache.can_fit(&Batch::new(&[sequence], &[0])), Status::INVALID_ARGUMENT, "");
    misuse(cache.can_fit(&Batch::new(&[sequence; 2], &[1, 1])), Status::DUPLICATE, "");
    misuse(cache.can_fit(&Batch::new(&[sequence], &[1]).layers(0..9)), Status::OUT_OF_RANGE, "");
    misuse(cache.can_fit(&Batch::new(&[sequence], &[1]).encoder_group(0)), Status::INVALID_ARGUMENT, "");
    let error = cache.can_fit(&Batch::new(&[sequence], &[usize::MAX])).unwrap_err();
    assert!(matches!(&error, Error::Capacity(failure) if failure.status == Status::BATCH_TOO_LARGE), "{error:?}");
    let error = cache.add_many(usize::MAX).unwrap_err();
    assert!(matches!(&error, Error::Capacity(failure) if failure.available == 15), "{error:?}");
    misuse(cache.truncate(&[(sequence, 1)]), Status::OUT_OF_RANGE, "");
    misuse(cache.truncate(&[(sequence, usize::MAX)]), Status::OUT_OF_RANGE, "");
    misuse(cache.pages(sequence, 5), Status::OUT_OF_RANGE, "5");
    misuse(cache.stats(Some(5)), Status::OUT_OF_RANGE, "5");
    misuse(cache.checkpoint(&[sequence]), Status::UNSUPPORTED, "");
    misuse(cache.set_rope(&[sequence], RopeSet::Long), Status::UNSUPPORTED, "");
    misuse(cache.encoder_lengths(0, &[sequence]), Status::INVALID_ARGUMENT, "");
    let window = StreamingWindow { sinks: 1, window: 8, prefix_is_sink: false };
    misuse(cache.set_streaming(&[sequence], Some(window)), Status::UNSUPPORTED, "");
    misuse(
        cache.export(sequence, 0, std::ops::Range { start: 1, end: 0 }, Stream::NONE),
        Status::OUT_OF_RANGE,
        "no range",
    );
    misuse(cache.export(sequence, 0, 0..4, Stream::NONE), Status::OUT_OF_RANGE, "");
    misuse(cache.export_pool(0, Pool::KScale, Stream::NONE), Status::UNSUPPORTED, "");
    // SAFETY: the CPU refuses it.
    let stream = unsafe { Stream::from_raw(8 as *mut _) };
    misuse(cache.begin(&Batch::new(&[sequence], &[1]), stream), Status::DEVICE, "");
    misuse(
        merge_states(cache.context(), &[], &mut TensorMut::new(&mut [0f32], &[1, 1, 1]).unwrap(), None, Stream::NONE),
        Status::INVALID_ARGUMENT,
        "parts.len()",
    );
    cache.check_invariants().unwrap();
}

#[test]
fn wrong_configs() {
    let context = context();
    let refused = |config: CacheConfig, status, words| {
        misuse(Cache::estimate(&context, &config, None).map(drop), status, words);
        misuse(Cache::new(&context, &config).map(drop), status, words);
    };
    let layers = |layer: Layer| CacheConfig { layers: vec![layer], ..config() };
    refused(CacheConfig { layers: vec![], ..config() }, Status::INVALID_ARGUMENT, "layers.len()");
    refused(CacheConfig { capacity: Capacity::Groups, ..config() }, Status::INVALID_ARGUMENT, "Capacity");
    refused(CacheConfig { page_size: usize::MAX, ..config() }, Status::INVALID_ARGUMENT, "page_size");
    refused(layers(Layer { group: 3, ..layer() }), Status::OUT_OF_RANGE, "group");
    refused(layers(Layer { q_heads: 3, ..layer() }), Status::INVALID_ARGUMENT, "");
    refused(layers(Layer { dtype: DType::I32, ..layer() }), Status::DTYPE, "");
    refused(
        layers(Layer { k_scales: vec![1.0; 2], v_scales: vec![1.0], ..layer() }),
        Status::INVALID_ARGUMENT,
        "v_scales",
    );
    let state = State { shape: vec![1; 5], ..State::default() };
    refused(layers(Layer { states: vec![state], ..Layer::default() }), Status::RANK, "1 to 4 dimensions");
    let scaling = RopeScaling::Linear { factor: 0.5 };
    refused(
        layers(Layer { rope: Rope::on_append(1e4).scaled(scaling), ..layer() }),
        Status::INVALID_ARGUMENT,
        "factor",
    );
    let long = LongRope { original_max_position: 64, short_factors: vec![1.0; 3], ..LongRope::default() };
    let rope = Rope::on_append(1e4).scaled(RopeScaling::LongRope(long));
    refused(layers(Layer { rope, ..layer() }), Status::INVALID_ARGUMENT, "factors");
    misuse(Context::new(ContextConfig::new().threads(5000)).map(drop), Status::INVALID_ARGUMENT, "threads");
    misuse(Context::new(ContextConfig::new().simd("no such")).map(drop), Status::UNSUPPORTED, "no such");
    misuse(Context::new(ContextConfig::new().simd("a\0b")).map(drop), Status::UNSUPPORTED, "");
    let gpu = ContextConfig::new().device(Device { device_type: 2, device_id: 0 });
    assert!(matches!(Context::new(gpu), Err(Error::Device(failure)) if failure.status == Status::DEVICE_UNAVAILABLE));
}

#[test]
fn errors_are_displayed() {
    let error = cache().length(Seq(7)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Cache::lengths") && text.ends_with("(KVC_ERROR_STALE_ID)"), "{text}");
    assert_eq!(Status(42).name(), Status(43).name()); // the name of their band
}

#[test]
fn every_status_of_the_header_has_a_name_here() {
    let header = include_str!("../../../kvcache-sys/src/generated/types.rs");
    let names = header.lines().filter_map(|line| line.strip_prefix("pub const KVC_ERROR_")?.split_once(':'));
    let names: Vec<_> = names.map(|(name, _)| name).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let line = format!("    {name} = KVC_ERROR_{name},");
        assert!(include_str!("../../src/error.rs").lines().any(|of_ours| of_ours == line), "{name} is missing");
    }
}
