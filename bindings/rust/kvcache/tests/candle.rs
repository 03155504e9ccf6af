//! candle's tensors in and out.
#![cfg(feature = "candle")]
use candle_core::{DType, Device, Tensor};
use kvcache::{Batch, Cache, CacheConfig, Capacity, Context, ContextConfig, Layer, Status, Stream};

const SHAPE: (usize, usize, usize) = (3, 2, 16);

fn cache() -> Cache {
    let layer = Layer { q_heads: 2, kv_heads: 2, head_dim: 16, ..Layer::default() };
    let config = CacheConfig { layers: vec![layer], capacity: Capacity::Tokens(64), ..CacheConfig::default() };
    Cache::new(&Context::new(ContextConfig::new()).unwrap(), &config).unwrap()
}

/// Causal attention by candle's own operations; `[T, H, D]`.
fn by_candle(q: &Tensor, k: &Tensor, v: &Tensor) -> candle_core::Result<Tensor> {
    let heads_first = |tensor: &Tensor| tensor.transpose(0, 1)?.contiguous();
    let scores = (heads_first(q)?.matmul(&heads_first(k)?.transpose(1, 2)?.contiguous()?)? / 4.0)?;
    let mask: Vec<f32> = (0..9).map(|i| if i % 3 > i / 3 { f32::NEG_INFINITY } else { 0.0 }).collect();
    let weights = scores.broadcast_add(&Tensor::from_vec(mask, (3, 3), &Device::Cpu)?)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(2)?)?;
    weights.matmul(&heads_first(v)?)?.transpose(0, 1)
}

#[test]
fn attention_is_candle_s() -> candle_core::Result<()> {
    let random = || Tensor::randn(0f32, 1.0, SHAPE, &Device::Cpu);
    let (q, v) = (random()?, random()?);
    let k = Tensor::randn(0f32, 1.0, (2, 3, 16), &Device::Cpu)?.transpose(0, 1)?; // strided, and from an offset
    let v = Tensor::cat(&[&random()?, &v], 0)?.narrow(0, 3, 3)?;
    let cache = cache();
    let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[3]), Stream::NONE).unwrap();
    let out = step.attend_candle(0, &q, Some((&k, &v))).unwrap();
    step.end().unwrap();
    let difference = (out - by_candle(&q, &k, &v)?)?.abs()?.max_all()?.to_scalar::<f32>()?;
    assert!(difference < 2e-5, "{difference}");
    Ok(())
}

#[test]
fn dtypes_and_wrong_tensors() -> candle_core::Result<()> {
    let cache = cache();
    let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[3]), Stream::NONE).unwrap();
    let ones = |dtype| Tensor::ones(SHAPE, dtype, &Device::Cpu);
    let wrong = ones(DType::F64)?;
    assert_eq!(step.attend_candle(0, &wrong, None).unwrap_err().status(), Status::DTYPE);
    let kv = ones(DType::I64)?;
    assert_eq!(step.attend_candle(0, &ones(DType::F32)?, Some((&kv, &kv))).unwrap_err().status(), Status::DTYPE);
    let flat = Tensor::ones(8, DType::F32, &Device::Cpu)?;
    assert_eq!(step.attend_candle(0, &flat, None).unwrap_err().status(), Status::RANK);
    let (q, k, v) = (ones(DType::BF16)?, ones(DType::F16)?, ones(DType::F32)?);
    let out = step.attend_candle(0, &q, Some((&k, &v))).unwrap();
    assert_eq!((out.dtype(), out.dims()), (DType::BF16, [3, 2, 16].as_slice()));
    assert_eq!(out.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?, [1.0; 96]);
    step.end().unwrap();
    Ok(())
}
