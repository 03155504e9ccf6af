//! candle's tensors, on the CPU (feature `candle`).
use crate::error::{Error, Result, Status};
use crate::step::{Attend, Step};
use crate::tensor::{Element, Tensor, TensorMut};
use candle_core::{CpuStorage, DType, Layout, Storage};
use half::{bf16, f16};
use std::ops::Deref;

/// A candle tensor that is read: its storage stays locked for readers.
#[allow(missing_debug_implementations)] // neither has the guard one
pub struct Borrowed<'a> {
    storage: Box<dyn Deref<Target = Storage> + 'a>, // a guard, of a type that changes with candle's release
    layout: &'a Layout,
}

impl<'a> Borrowed<'a> {
    pub fn new(tensor: &'a candle_core::Tensor) -> Self {
        let (storage, layout) = tensor.storage_and_layout();
        Self { storage: Box::new(storage), layout }
    }

    /// Errors: DEVICE (not the CPU's), DTYPE.
    pub fn view(&self) -> Result<Tensor<'_>> {
        match &**self.storage {
            Storage::Cpu(CpuStorage::F32(data)) => strided(self.layout, data),
            Storage::Cpu(CpuStorage::F16(data)) => strided(self.layout, data),
            Storage::Cpu(CpuStorage::BF16(data)) => strided(self.layout, data),
            Storage::Cpu(CpuStorage::U8(data)) => strided(self.layout, data),
            Storage::Cpu(other) => {
                use candle_core::backend::BackendStorage;
                Err(Error::misuse(
                    Status::DTYPE,
                    format!("candle's {:?} is none of f32, f16, bf16 and u8", other.dtype()),
                ))
            }
            _ => Err(Error::misuse(Status::DEVICE, "the candle tensor is not on the CPU".into())),
        }
    }
}

fn strided<'b, T: Element>(layout: &Layout, data: &'b [T]) -> Result<Tensor<'b>> {
    Tensor::strided(&data[layout.start_offset().min(data.len())..], layout.dims(), layout.stride())
}

impl Step {
    /// Attention of one layer with candle's tensors: `q` is `[T, q heads, head dim]`; `k` and `v` are stored first if they
    /// are given. Returns `[T, q heads, v head dim]` of q's dtype; `v head dim` is v's, or q's head dim without one.
    pub fn attend_candle(
        &self,
        layer: usize,
        q: &candle_core::Tensor,
        kv: Option<(&candle_core::Tensor, &candle_core::Tensor)>,
    ) -> Result<candle_core::Tensor> {
        match q.dtype() {
            DType::F32 => self.attend_as::<f32>(layer, q, kv),
            DType::F16 => self.attend_as::<f16>(layer, q, kv),
            DType::BF16 => self.attend_as::<bf16>(layer, q, kv),
            other => Err(Error::misuse(Status::DTYPE, format!("q of {other:?} is none of f32, f16 and bf16"))),
        }
    }

    fn attend_as<T: Element + candle_core::WithDType>(
        &self,
        layer: usize,
        q: &candle_core::Tensor,
        kv: Option<(&candle_core::Tensor, &candle_core::Tensor)>,
    ) -> Result<candle_core::Tensor> {
        let &[tokens, heads, dim] = q.dims() else {
            return Err(Error::misuse(Status::RANK, format!("q has the shape {:?}, not three dimensions", q.dims())));
        };
        let v_dim = kv.and_then(|(_, v)| v.dims().last().copied()).unwrap_or(dim);
        let mut out = vec![T::zero(); tokens * heads * v_dim];
        let q = Borrowed::new(q);
        let (k, v) = (kv.map(|kv| Borrowed::new(kv.0)), kv.map(|kv| Borrowed::new(kv.1)));
        let attend = Attend {
            k: k.as_ref().map(Borrowed::view).transpose()?,
            v: v.as_ref().map(Borrowed::view).transpose()?,
            ..Attend::stored(q.view()?, TensorMut::new(&mut out, &[tokens, heads, v_dim])?)
        };
        self.attend(layer, &attend)?;
        candle_core::Tensor::from_vec(out, (tokens, heads, v_dim), &candle_core::Device::Cpu)
            .map_err(|error| Error::misuse(Status::SHAPE, error.to_string()))
    }
}
