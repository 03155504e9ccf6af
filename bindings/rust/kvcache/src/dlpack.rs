//! Tensors that the library returned, as DLPack has them.
use crate::config::wide;
use crate::error::{Error, Result, Status};
use crate::sys;
use crate::tensor::{DType, Device, Element, Tensor, TensorMut, MAX_RANK};
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::slice;

/// Owns a `DLManagedTensorVersioned`: dropping it calls its deleter. It may outlive the cache that it came from.
#[derive(Debug)]
pub struct ManagedTensor(NonNull<sys::DLManagedTensorVersioned>);

// SAFETY: the header: the deleter may be called on any thread; shared access only reads.
unsafe impl Send for ManagedTensor {}
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// # Safety
    /// `raw` is a managed tensor that no other code releases. It has strides unless it has no dimensions. Its memory is
    /// not written while this object lives.
    pub unsafe fn from_raw(raw: *mut sys::DLManagedTensorVersioned) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// A compact tensor that owns its elements, for example a page pool for [`crate::Cache::with_pools`].
    pub fn from_vec<T: Element>(mut data: Vec<T>, shape: &[usize]) -> Result<Self> {
        let strides = TensorMut::new(&mut data, shape)?.strides();
        let pointer = data.as_mut_ptr().cast();
        // SAFETY: within the vector, which no other code has.
        unsafe { Self::from_owner(data, pointer, Device::CPU, T::DTYPE, shape, &strides) }
    }

    /// The same with a stride for each dimension, in elements. No two elements may share memory.
    pub fn from_vec_strided<T: Element>(mut data: Vec<T>, shape: &[usize], strides: &[usize]) -> Result<Self> {
        TensorMut::strided(&mut data, shape, strides)?;
        let pointer = data.as_mut_ptr().cast();
        // SAFETY: within the vector, which no other code has.
        unsafe { Self::from_owner(data, pointer, Device::CPU, T::DTYPE, shape, strides) }
    }

    /// Any memory on any device that lives as long as `owner`. `owner` is dropped with the tensor, on any thread. Pools
    /// that interleave in one buffer each have an `Arc` of the buffer.
    ///
    /// # Safety
    /// All elements that the shape and the strides reach are readable and writable while `owner` lives, and nothing else
    /// writes them, or reads what a cache writes at the same time.
    pub unsafe fn from_owner<O: Send + 'static>(
        owner: O,
        data: *mut c_void,
        device: Device,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        // SAFETY: a description alone; the memory is not touched.
        unsafe { TensorMut::from_raw(data, device, dtype, shape, strides)? };
        let (mut dims, rank) = ([[0; MAX_RANK]; 2], shape.len());
        for (dims, given) in dims.iter_mut().zip([shape, strides]) {
            dims.iter_mut().zip(given).for_each(|(to, from)| *to = wide(*from));
        }
        let dl_tensor = sys::DLTensor {
            data,
            device: device.raw(),
            ndim: rank as i32,
            dtype: dtype.raw(),
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let version = sys::DLPackVersion { major: sys::DLPACK_MAJOR_VERSION, minor: sys::DLPACK_MINOR_VERSION };
        let deleter = Some(release::<O> as _);
        let tensor = sys::DLManagedTensorVersioned { version, manager_ctx: null_mut(), deleter, flags: 0, dl_tensor };
        let held = Box::into_raw(Box::new(Held { tensor, dims, _owner: owner }));
        // SAFETY: ours, and not moved from here on.
        unsafe {
            (*held).tensor.dl_tensor.shape = (&raw mut (*held).dims[0]).cast();
            (*held).tensor.dl_tensor.strides = (&raw mut (*held).dims[1]).cast();
        }
        Ok(Self(NonNull::new(held).expect("a box").cast()))
    }

    /// Still owned by `self`.
    pub fn as_raw(&self) -> *mut sys::DLManagedTensorVersioned {
        self.0.as_ptr()
    }

    /// Gives it to a consumer of DLPack, which calls the deleter.
    pub fn into_raw(self) -> *mut sys::DLManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// `None` for a dtype that this crate has no name for.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_raw(self.tensor().dtype)
    }

    pub fn device(&self) -> Device {
        let device = self.tensor().device;
        Device { device_type: device.device_type as i32, device_id: device.device_id }
    }

    pub fn shape(&self) -> &[i64] {
        self.dims(self.tensor().shape)
    }

    /// In elements.
    pub fn strides(&self) -> &[i64] {
        self.dims(self.tensor().strides)
    }

    pub fn data(&self) -> *const c_void {
        let tensor = self.tensor();
        tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast()
    }

    /// All elements in row-major order.
    /// Errors: DTYPE (another type), DEVICE (not the CPU's memory), STRIDE (not compact).
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if self.dtype() != Some(T::DTYPE) {
            let dtype = self.tensor().dtype;
            let message = format!("the tensor is of {:?} ({dtype:?}), not of {:?}", self.dtype(), T::DTYPE);
            return Err(Error::misuse(Status::DTYPE, message));
        }
        let length = self.compact()?;
        if length == 0 {
            return Ok(&[]);
        }
        // SAFETY: compact, on the CPU, of that type, not written while `self` lives.
        Ok(unsafe { slice::from_raw_parts(self.data().cast(), length) })
    }

    /// The same memory as an input, as for [`crate::Cache::import`].
    pub fn view(&self) -> Result<Tensor<'_>> {
        if self.shape().iter().chain(self.strides()).any(|dim| *dim < 0) {
            return Err(Error::misuse(Status::STRIDE, format!("strides {:?}: not below 0", self.strides())));
        }
        let dtype = self.dtype().ok_or_else(|| Error::misuse(Status::DTYPE, "a dtype without a name".into()))?;
        let dims = |dims: &[i64]| dims.iter().map(|dim| *dim as usize).collect::<Vec<_>>();
        // SAFETY: the managed tensor's own description, alive as long as `self`.
        unsafe { Tensor::from_raw(self.data(), self.device(), dtype, &dims(self.shape()), &dims(self.strides())) }
    }

    fn compact(&self) -> Result<usize> {
        if self.device() != Device::CPU {
            return Err(Error::misuse(Status::DEVICE, format!("the tensor is on {:?}, not on the CPU", self.device())));
        }
        let mut length = 1;
        for (&extent, &stride) in self.shape().iter().zip(self.strides()).rev() {
            if extent != 1 && stride != length {
                let message = format!("shape {:?}, strides {:?}: not compact", self.shape(), self.strides());
                return Err(Error::misuse(Status::STRIDE, message));
            }
            length *= extent;
        }
        Ok(length as usize)
    }

    fn dims(&self, dims: *const i64) -> &[i64] {
        match self.tensor().ndim {
            0 => &[],
            // SAFETY: DLPack: [ndim]; version 1.2 and this library always give strides.
            rank => unsafe { slice::from_raw_parts(dims, rank as usize) },
        }
    }

    fn tensor(&self) -> &sys::DLTensor {
        // SAFETY: valid until its deleter runs.
        unsafe { &(*self.0.as_ptr()).dl_tensor }
    }
}

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        // SAFETY: released once. A deleter may be absent.
        unsafe {
            if let Some(deleter) = (*self.0.as_ptr()).deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// What a tensor of ours points into; the tensor's address is its own.
#[repr(C)]
struct Held<O> {
    tensor: sys::DLManagedTensorVersioned,
    dims: [[i64; MAX_RANK]; 2],
    _owner: O,
}

unsafe extern "C" fn release<O>(tensor: *mut sys::DLManagedTensorVersioned) {
    // SAFETY: made by from_owner, released once.
    drop(unsafe { Box::from_raw(tensor.cast::<Held<O>>()) });
}

/// A layer's page pool. The cache continues to write it, so reading it at a safe time is up to the caller.
#[derive(Debug)]
pub struct PoolView(pub(crate) ManagedTensor);

impl PoolView {
    pub fn dtype(&self) -> Option<DType> {
        self.0.dtype()
    }

    /// As the header's `KVC_POOL_*`: pages first.
    pub fn shape(&self) -> &[i64] {
        self.0.shape()
    }

    /// In elements.
    pub fn strides(&self) -> &[i64] {
        self.0.strides()
    }

    pub fn data(&self) -> *const c_void {
        self.0.data()
    }

    /// Whether consumers of DLPack may only read it.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: valid until its deleter runs.
        unsafe { (*self.0.as_raw()).flags & u64::from(sys::DLPACK_FLAG_BITMASK_READ_ONLY) != 0 }
    }

    /// Gives it to a consumer of DLPack, which calls the deleter.
    pub fn into_raw(self) -> *mut sys::DLManagedTensorVersioned {
        self.0.into_raw()
    }
}
