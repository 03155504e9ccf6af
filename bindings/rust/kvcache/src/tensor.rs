//! Tensors for the library's calls: borrowed memory with a dtype, a shape and strides.
use crate::config::wide;
use crate::error::{Error, Result, Status};
use crate::sys;
use half::{bf16, f16};
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::slice;

/// Most dimensions of a tensor.
pub const MAX_RANK: usize = 6;

/// Type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DType {
    #[default]
    F32,
    F16,
    BF16,
    /// float8_e4m3fn
    F8E4M3,
    /// float8_e5m2
    F8E5M2,
    I8,
    U8,
    I32,
    F64,
    I64,
    /// Of a layer. Its exports are of `U8`, two elements in each.
    U4,
    /// float4_e2m1fn, of a layer. Its exports are of `U8`: the elements of a row, then its scales.
    F4E2M1,
}

impl DType {
    const ALL: [(DType, sys::DLDataTypeCode, u8); 12] = [
        (DType::F32, sys::kDLFloat, 32),
        (DType::F16, sys::kDLFloat, 16),
        (DType::BF16, sys::kDLBfloat, 16),
        (DType::F8E4M3, sys::kDLFloat8_e4m3fn, 8),
        (DType::F8E5M2, sys::kDLFloat8_e5m2, 8),
        (DType::I8, sys::kDLInt, 8),
        (DType::U8, sys::kDLUInt, 8),
        (DType::I32, sys::kDLInt, 32),
        (DType::F64, sys::kDLFloat, 64),
        (DType::I64, sys::kDLInt, 64),
        (DType::U4, sys::kDLUInt, 4),
        (DType::F4E2M1, sys::kDLFloat4_e2m1fn, 4),
    ];

    pub fn size_bytes(self) -> usize {
        usize::from(Self::ALL[self as usize].2).div_ceil(8)
    }

    #[inline]
    pub(crate) fn raw(self) -> sys::DLDataType {
        let (_, code, bits) = Self::ALL[self as usize];
        sys::DLDataType { code: code as u8, bits, lanes: 1 }
    }

    pub(crate) fn from_raw(raw: sys::DLDataType) -> Option<Self> {
        let same = |dtype: &sys::DLDataType| (dtype.code, dtype.bits, dtype.lanes) == (raw.code, raw.bits, raw.lanes);
        Self::ALL.iter().map(|entry| entry.0).find(|dtype| same(&dtype.raw()))
    }
}

/// Rust types whose slices are tensors.
///
/// # Safety
/// The type has no padding, every bit pattern is a value of it, and `DTYPE` describes it.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty: $dtype:ident),*) => {
        $(
            // SAFETY: a number, of the size that its dtype says.
            unsafe impl Element for $rust { const DTYPE: DType = DType::$dtype; }
        )*
    };
}
elements!(f32: F32, f16: F16, bf16: BF16, i8: I8, u8: U8, i32: I32, f64: F64, i64: I64);

/// Memory that the library reads. Copying it copies the description.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    layout: Layout,
    borrowed: PhantomData<&'a [u8]>,
}

/// Memory that the library writes.
pub struct TensorMut<'a> {
    layout: Layout,
    borrowed: PhantomData<&'a mut [u8]>,
}

// SAFETY: they stand for `&[T]` and `&mut [T]` of numbers. TensorMut is not Sync on purpose: the library writes through a
// shared reference to it (Attend), so only one thread at a time may have one.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}
unsafe impl Send for TensorMut<'_> {}

/// `Tensor(F32[3, 4, 16])`, with the strides where they are not compact.
impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tensor({:?})", self.layout)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TensorMut({:?})", self.layout)
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, strides) = (&self.shape[..self.rank], &self.strides[..self.rank]);
        write!(formatter, "{:?}{shape:?}", self.dtype)?;
        let mut compact = 1i64;
        let is_compact = shape.iter().zip(strides).rev().all(|(size, stride)| {
            let fits = *size <= 1 || *stride == compact;
            compact = compact.saturating_mul(*size);
            fits
        });
        if !is_compact {
            write!(formatter, " with strides {strides:?}")?;
        }
        if self.device.device_type != sys::kDLCPU {
            write!(formatter, " on device {{{}, {}}}", self.device.device_type, self.device.device_id)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Layout {
    data: *mut c_void,
    device: sys::DLDevice,
    dtype: DType,
    rank: usize,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

const CPU: sys::DLDevice = sys::DLDevice { device_type: sys::kDLCPU, device_id: 0 };

impl<'a> Tensor<'a> {
    /// A slice as a compact tensor: its first elements in row-major order. The slice may be longer.
    #[inline]
    pub fn new<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Self> {
        let layout = Layout::compact(data.as_ptr().cast(), T::DTYPE, shape)?;
        layout.check_length(data.len())?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// A slice with a stride for each dimension, in elements.
    #[inline]
    pub fn strided<T: Element>(data: &'a [T], shape: &[usize], strides: &[usize]) -> Result<Self> {
        let layout = Layout::new(data.as_ptr().cast(), T::DTYPE, shape, strides)?;
        layout.check_length(data.len())?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// Bytes as a compact tensor of any dtype. Rust has no type for float8, so it is given in this way.
    pub fn from_bytes(data: &'a [u8], dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = Layout::compact(data.as_ptr().cast(), dtype, shape)?;
        layout.check_length(data.len() / dtype.size_bytes())?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// Any memory, on any device.
    ///
    /// # Safety
    /// All elements that the shape and the strides reach are readable and unchanged for `'a` (on a GPU: until the stream
    /// has passed the work that reads them).
    pub unsafe fn from_raw(
        data: *const c_void,
        device: Device,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        let layout = Layout { device: device.raw(), ..Layout::new(data, dtype, shape, strides)? };
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// A description that the library returned of its own memory. `None` for a tensor without dimensions, which means
    /// that there is none.
    ///
    /// # Safety
    /// As [`Tensor::from_raw`], and shape and strides are those of a well-formed description.
    pub(crate) unsafe fn from_dl(raw: &sys::DLTensor) -> Option<Self> {
        let rank = usize::try_from(raw.ndim).ok().filter(|rank| (1..=MAX_RANK).contains(rank))?;
        let data = raw.data.cast::<u8>().wrapping_add(raw.byte_offset as usize).cast();
        let (dtype, zeros) = (DType::from_raw(raw.dtype)?, [0; MAX_RANK]);
        let mut layout = Layout { data, device: raw.device, dtype, rank, shape: zeros, strides: zeros };
        // SAFETY: [ndim] both.
        unsafe {
            layout.shape[..rank].copy_from_slice(slice::from_raw_parts(raw.shape, rank));
            layout.strides[..rank].copy_from_slice(slice::from_raw_parts(raw.strides, rank));
        }
        Some(Self { layout, borrowed: PhantomData })
    }

    /// The tensor at an index of the first dimension.
    pub fn row(&self, index: usize) -> Result<Self> {
        let mut layout = self.layout;
        if index >= layout.rank.min(1) * layout.shape[0] as usize {
            let message = format!("there is no row {index} in a tensor of the shape {:?}", self.shape());
            return Err(Error::misuse(Status::OUT_OF_RANGE, message));
        }
        layout.data = layout.offset((index as i64).wrapping_mul(layout.strides[0])); // large in an empty tensor
        layout.rank -= 1;
        layout.shape.copy_within(1.., 0);
        layout.strides.copy_within(1.., 0);
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// All elements in row-major order, where they are.
    /// Errors: DTYPE (another type), DEVICE (not the CPU's memory), STRIDE (not compact, or not aligned).
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        let layout = &self.layout;
        if layout.dtype != T::DTYPE {
            return Err(Error::misuse(
                Status::DTYPE,
                format!("the tensor is of {:?}, not of {:?}", layout.dtype, T::DTYPE),
            ));
        }
        let mut length = 1i64;
        for (&extent, &stride) in layout.shape[..layout.rank].iter().zip(&layout.strides).rev() {
            if extent > 1 && stride != length {
                let strides = &layout.strides[..layout.rank];
                let message = format!("shape {:?}, strides {strides:?}: not compact", self.shape());
                return Err(Error::misuse(Status::STRIDE, message));
            }
            length = length.saturating_mul(extent);
        }
        let (kind, data) = (layout.device.device_type, layout.data.cast::<T>());
        if length == 0 {
            return Ok(&[]);
        }
        if kind != CPU.device_type || !data.is_aligned() {
            let status = if data.is_aligned() { Status::DEVICE } else { Status::STRIDE };
            let message = format!("the tensor at {data:?} on a device of type {kind} is no slice of the host");
            return Err(Error::misuse(status, message));
        }
        // SAFETY: compact, on the CPU, of that type, aligned, borrowed for 'a.
        Ok(unsafe { slice::from_raw_parts(data, length as usize) })
    }
}

impl<'a> TensorMut<'a> {
    /// A slice as a compact tensor: its first elements in row-major order. The slice may be longer.
    #[inline]
    pub fn new<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        let layout = Layout::compact(data.as_mut_ptr().cast(), T::DTYPE, shape)?;
        layout.check_length(data.len())?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// A slice with a stride for each dimension, in elements. No two elements may share memory.
    pub fn strided<T: Element>(data: &'a mut [T], shape: &[usize], strides: &[usize]) -> Result<Self> {
        let layout = Layout::new(data.as_mut_ptr().cast(), T::DTYPE, shape, strides)?;
        layout.check_length(data.len())?;
        layout.check_distinct()?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// Bytes as a compact tensor of any dtype.
    pub fn from_bytes(data: &'a mut [u8], dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = Layout::compact(data.as_mut_ptr().cast(), dtype, shape)?;
        layout.check_length(data.len() / dtype.size_bytes())?;
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// Any memory, on any device.
    ///
    /// # Safety
    /// All elements that the shape and the strides reach are writable, and nothing else accesses them for `'a` (on a GPU:
    /// until the stream has passed the work that writes them).
    pub unsafe fn from_raw(
        data: *mut c_void,
        device: Device,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        let layout = Layout { device: device.raw(), ..Layout::new(data, dtype, shape, strides)? };
        Ok(Self { layout, borrowed: PhantomData })
    }

    /// Splits at an index of a dimension: K and V of one buffer, or the latent and rotary parts of rows.
    pub fn split_at(self, dim: usize, index: usize) -> Result<(Self, Self)> {
        let (mut left, mut right) = (self.layout, self.layout);
        if dim >= left.rank || wide(index) > left.shape[dim] {
            let message = format!("shape {:?} cannot be split at index {index} of dimension {dim}", self.shape());
            return Err(Error::misuse(Status::OUT_OF_RANGE, message));
        }
        left.shape[dim] = index as i64;
        right.shape[dim] -= index as i64;
        if right.reach() != Some(0) {
            right.data = right.offset(index as i64 * right.strides[dim]);
        }
        Ok((Self { layout: left, borrowed: PhantomData }, Self { layout: right, borrowed: PhantomData }))
    }

    /// The same memory, reborrowed.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        TensorMut { layout: self.layout, borrowed: PhantomData }
    }
}

macro_rules! accessors {
    ($($type:ident),*) => {
        $(impl $type<'_> {
            pub fn dtype(&self) -> DType {
                self.layout.dtype
            }

            pub fn shape(&self) -> Vec<usize> {
                self.layout.shape[..self.layout.rank].iter().map(|extent| *extent as usize).collect()
            }

            /// In elements.
            pub fn strides(&self) -> Vec<usize> {
                self.layout.strides[..self.layout.rank].iter().map(|stride| *stride as usize).collect()
            }

            /// Of the first element.
            pub fn data(&self) -> *const c_void {
                self.layout.data
            }

            pub fn device(&self) -> Device {
                let device = self.layout.device;
                Device { device_type: device.device_type as i32, device_id: device.device_id }
            }

            /// The C struct. It points into `self`, which must not move meanwhile.
            #[inline]
            pub(crate) fn raw(&self) -> sys::DLTensor {
                self.layout.raw()
            }
        })*
    };
}
accessors!(Tensor, TensorMut);

impl Layout {
    #[inline]
    fn compact(data: *const c_void, dtype: DType, shape: &[usize]) -> Result<Self> {
        let mut strides = [1; MAX_RANK];
        for i in (1..shape.len().min(MAX_RANK)).rev() {
            strides[i - 1] = shape[i].max(1).saturating_mul(strides[i]);
        }
        Self::new(data, dtype, shape, &strides[..shape.len().min(MAX_RANK)])
    }

    #[inline]
    fn new(data: *const c_void, dtype: DType, shape: &[usize], strides: &[usize]) -> Result<Self> {
        if shape.len() > MAX_RANK || shape.len() != strides.len() {
            return Err(wrong_rank(shape, strides));
        }
        let rank = shape.len();
        let zeros = [0; MAX_RANK];
        let mut layout = Layout { data: data.cast_mut(), device: CPU, dtype, rank, shape: zeros, strides: zeros };
        for i in 0..rank {
            layout.shape[i] = wide(shape[i]);
            layout.strides[i] = wide(strides[i]);
        }
        Ok(layout)
    }

    #[inline]
    fn check_length(&self, length: usize) -> Result<()> {
        match self.reach() {
            Some(reach) if reach <= length => Ok(()),
            reach => Err(self.too_short(reach, length)),
        }
    }

    #[cold]
    fn too_short(&self, reach: Option<usize>, length: usize) -> Error {
        let (shape, strides) = (&self.shape[..self.rank], &self.strides[..self.rank]);
        let needed = reach.map_or("more than there can be".into(), |reach| reach.to_string());
        let message =
            format!("shape {shape:?} with strides {strides:?} needs {needed} elements, the slice has {length}");
        Error::misuse(Status::SHAPE, message)
    }

    /// The address of the element that is `elements` elements after the first one.
    fn offset(&self, elements: i64) -> *mut c_void {
        self.data
            .cast::<u8>()
            .wrapping_offset((elements as isize).wrapping_mul(self.dtype.size_bytes() as isize))
            .cast()
    }

    /// Number of elements from the first to the last, both included; `None` if it overflows.
    #[inline]
    fn reach(&self) -> Option<usize> {
        let mut last = 0i64;
        for (&extent, &stride) in self.shape[..self.rank].iter().zip(&self.strides) {
            if extent == 0 {
                return Some(0);
            }
            last = last.checked_add((extent - 1).checked_mul(stride)?)?;
        }
        usize::try_from(last.checked_add(1)?).ok()
    }

    /// Checks that, ordered by stride, each dimension steps over all that the dimensions before it reach.
    fn check_distinct(&self) -> Result<()> {
        if self.shape[..self.rank].contains(&0) {
            return Ok(());
        }
        let mut dims: Vec<_> = (0..self.rank).filter(|&dim| self.shape[dim] > 1).collect();
        dims.sort_by_key(|&dim| self.strides[dim]);
        let mut reach = 1;
        for dim in dims {
            if self.strides[dim] < reach {
                let strides = &self.strides[..self.rank];
                let message = format!("strides {strides:?} of an output put two elements in one place");
                return Err(Error::misuse(Status::STRIDE, message));
            }
            reach += (self.shape[dim] - 1) * self.strides[dim]; // within the slice: no overflow
        }
        Ok(())
    }

    #[inline]
    fn raw(&self) -> sys::DLTensor {
        sys::DLTensor {
            data: self.data,
            device: self.device,
            ndim: self.rank as i32,
            dtype: self.dtype.raw(),
            shape: self.shape.as_ptr().cast_mut(),
            strides: self.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }
}

#[cold]
fn wrong_rank(shape: &[usize], strides: &[usize]) -> Error {
    if shape.len() > MAX_RANK {
        let message = format!("a tensor has at most {MAX_RANK} dimensions, the shape {shape:?} has {}", shape.len());
        return Error::misuse(Status::RANK, message);
    }
    let message = format!("the shape {shape:?} needs a stride a dimension, not the strides {strides:?}");
    Error::misuse(Status::STRIDE, message)
}

/// Where memory is: a DLPack device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// A `DLDeviceType`.
    pub device_type: i32,
    pub device_id: i32,
}

impl Device {
    pub const CPU: Device = Device { device_type: sys::kDLCPU as i32, device_id: 0 };

    pub(crate) fn raw(self) -> sys::DLDevice {
        sys::DLDevice { device_type: self.device_type as sys::DLDeviceType, device_id: self.device_id }
    }
}

/// The address of a tensor's description, or null.
#[inline]
pub(crate) fn pointer(tensor: &Option<sys::DLTensor>) -> *const sys::DLTensor {
    tensor.as_ref().map_or(std::ptr::null(), |tensor| tensor)
}
