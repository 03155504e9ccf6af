//! Export, import, pool views: DLPack out.
use crate::support::*;
use kvcache::*;

fn filled(config: &CacheConfig, n: usize) -> (Cache, Seq, Tokens) {
    let cache = Cache::new(&context(), config).unwrap();
    let sequence = cache.add().unwrap();
    let tokens = Tokens::random(n, &mut Random(40));
    let step = cache.begin(&Batch::new(&[sequence], &[n]), Stream::NONE).unwrap();
    step.append(0, &Append::new(tokens.k(), tokens.v())).unwrap();
    step.end().unwrap();
    (cache, sequence, tokens)
}

#[test]
fn exports_outlive_the_cache() {
    let (cache, sequence, tokens) = filled(&config(), 10);
    let exported = cache.export(sequence, 0, .., Stream::NONE).unwrap();
    let parts = ExportParts { v: true, ..ExportParts::default() };
    let part = cache.export_parts(sequence, 0, 3..=5, parts, Stream::NONE).unwrap();
    assert!(part.k.is_none());
    let part = part.v.unwrap();
    let parts = ExportParts { k_scale: true, ..parts };
    let error = cache.export_parts(sequence, 0, .., parts, Stream::NONE).unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
    let pool = cache.export_pool(0, Pool::Kv, Stream::NONE).unwrap();
    assert_eq!(pool.shape(), [64, 2, KV_HEADS as i64, 4, DIM as i64]);
    assert_eq!((pool.dtype(), pool.strides().len()), (Some(DType::F32), 5));
    let page = cache.pages(sequence, 0).unwrap()[0].unwrap();
    assert!(pool.is_read_only() && !cache.export_pool_writable(0, Pool::Kv, Stream::NONE).unwrap().is_read_only());
    drop(cache);
    let k = exported.k.unwrap();
    assert_eq!(k.shape(), [10, KV_HEADS as i64, DIM as i64]);
    assert_eq!((k.dtype(), k.device()), (Some(DType::F32), Device::CPU));
    assert_eq!(k.as_slice::<f32>().unwrap(), tokens.k);
    assert_eq!(part.as_slice::<f32>().unwrap(), &tokens.v[3 * KV_HEADS * DIM..6 * KV_HEADS * DIM]);
    assert_eq!(k.as_slice::<f16>().unwrap_err().status(), Status::DTYPE);
    // SAFETY: the cache is gone, so nothing writes its pool; the first row of the page's K.
    let row = unsafe {
        std::slice::from_raw_parts(pool.data().cast::<f32>().offset(page as isize * pool.strides()[0] as isize), DIM)
    };
    assert_eq!(row, &tokens.k[..DIM]);
    // Through DLPack and back, dropped on another thread.
    let raw = k.into_raw();
    // SAFETY: ours again.
    let k = unsafe { ManagedTensor::from_raw(raw) }.unwrap();
    std::thread::spawn(move || drop((k, pool))).join().unwrap();
}

#[test]
fn import_is_the_inverse_of_export() {
    for dtype in [DType::F32, DType::BF16, DType::I8, DType::F8E4M3] {
        let scales = if dtype == DType::F8E4M3 { vec![0.5; KV_HEADS] } else { vec![] };
        let layers = vec![Layer { dtype, k_scales: scales.clone(), v_scales: scales, ..layer() }];
        let config = CacheConfig { layers, ..config() };
        let (cache, sequence, _) = filled(&config, 9);
        let exported = cache.export(sequence, 0, .., Stream::NONE).unwrap();
        let view = |tensor: &'_ Option<ManagedTensor>| tensor.as_ref().map(|tensor| tensor.view().unwrap().shape());
        assert_eq!(view(&exported.k), Some(vec![9, KV_HEADS, DIM]));
        let scaled = dtype == DType::I8;
        assert_eq!(
            view(&exported.k_scale),
            match dtype {
                DType::I8 => Some(vec![9, KV_HEADS]),
                DType::F8E4M3 => Some(vec![KV_HEADS]),
                _ => None,
            }
        );
        let copy = cache.add().unwrap();
        let k = [exported.k.as_ref().map(|k| k.view().unwrap())];
        let v = [exported.v.as_ref().map(|v| v.view().unwrap())];
        let k_scale = [exported.k_scale.as_ref().filter(|_| scaled).map(|scale| scale.view().unwrap())];
        let v_scale = [exported.v_scale.as_ref().filter(|_| scaled).map(|scale| scale.view().unwrap())];
        let import = Import { k: &k, v: &v, k_scale: &k_scale, v_scale: &v_scale, as_stored: true };
        cache.import(copy, &import, Stream::NONE).unwrap();
        let again = cache.export(copy, 0, .., Stream::NONE).unwrap();
        assert_eq!(bytes(&again.k), bytes(&exported.k), "{dtype:?}");
        assert_eq!(bytes(&again.v), bytes(&exported.v), "{dtype:?}");
        let short = Import { v: &[], k_scale: &[None, None], ..import };
        assert_eq!(cache.import(copy, &short, Stream::NONE).unwrap_err().status(), Status::INVALID_ARGUMENT);
    }
}

fn bytes(tensor: &Option<ManagedTensor>) -> Vec<u8> {
    let tensor = tensor.as_ref().unwrap();
    match tensor.dtype().unwrap() {
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::BF16 => tensor.as_slice::<bf16>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I8 => tensor.as_slice::<i8>().unwrap().iter().map(|x| *x as u8).collect(),
        _ => tensor.as_slice::<u8>().unwrap().to_vec(),
    }
}

#[test]
fn float8_bytes_are_appended_as_stored() {
    let layers = vec![Layer { dtype: DType::F8E4M3, ..layer() }];
    let cache = Cache::new(&context(), &CacheConfig { layers, ..config() }).unwrap();
    let sequence = cache.add().unwrap();
    let one = vec![0x38u8; KV_HEADS * DIM]; // 1.0 in float8_e4m3fn
    let tensor = Tensor::from_bytes(&one, DType::F8E4M3, &[1, KV_HEADS, DIM]).unwrap();
    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    step.append(0, &Append { as_stored: true, ..Append::new(tensor, tensor) }).unwrap();
    let (q, mut out) = (vec![1f32; HEADS * DIM], vec![0f32; HEADS * DIM]);
    let shape = [1, HEADS, DIM];
    let attend = Attend::stored(Tensor::new(&q, &shape).unwrap(), TensorMut::new(&mut out, &shape).unwrap());
    step.attend(0, &attend).unwrap();
    step.end().unwrap();
    assert_eq!(out, [1.0; HEADS * DIM]);
}
