//! Tensors of a script: how they are written, generated and printed.
use kvcache::{bf16, f16, DType, Device, ManagedTensor, PoolView, Tensor, TensorMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

const NAMES: [(&str, DType); 10] = [
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("e4m3", DType::F8E4M3),
    ("e5m2", DType::F8E5M2),
    ("i8", DType::I8),
    ("u4", DType::U4),
    ("e2m1", DType::F4E2M1),
    ("u8", DType::U8),
    ("i32", DType::I32),
    ("i64", DType::I64),
];

pub fn dtype(name: &str) -> Option<DType> {
    NAMES.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

/// A compact tensor. Clones share their memory, which a cache may adopt and write.
#[derive(Clone)]
pub struct Buffer {
    dtype: DType,
    shape: Vec<usize>,
    memory: Arc<Memory>,
}

/// Bytes at a multiple of 8.
struct Memory {
    words: NonNull<[u64]>,
    length: usize,
}

// SAFETY: the runner has one thread, and the library is done with it when a call returns.
unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        Self { words: NonNull::from(Box::leak(words.into_boxed_slice())), length: bytes.len() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`.
        drop(unsafe { Box::from_raw(self.words.as_ptr()) });
    }
}

impl Buffer {
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        Self { dtype, shape, memory: Arc::new(Memory::new(bytes)) }
    }

    /// `f32[2,3]@17`, `i32[2]:5,6`, `f32[4]`.
    pub fn parse(form: &str) -> Option<Self> {
        let (name, rest) = form.split_once('[')?;
        let (dims, contents) = rest.split_once(']')?;
        let shape: Vec<usize> = match dims {
            "" => vec![],
            dims => dims.split(',').map(|dim| dim.parse().ok()).collect::<Option<_>>()?,
        };
        let (dtype, count) = (dtype(name)?, shape.iter().product::<usize>());
        let bytes = match contents.split_at(contents.len().min(1)) {
            ("@", seed) => generated(dtype, seed.parse().ok()?, count),
            (":", items) => literal(dtype, items)?,
            _ => vec![0; count * dtype.size_bytes()],
        };
        (bytes.len() == count * dtype.size_bytes()).then(|| Self::new(dtype, shape, &bytes))
    }

    /// With memory of its own.
    pub fn copy(&self) -> Self {
        Self::new(self.dtype, self.shape.clone(), self.bytes())
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as many bytes; nothing writes them while the runner reads.
        unsafe { slice::from_raw_parts(self.memory.words.as_ptr().cast(), self.memory.length) }
    }

    pub fn view(&self) -> kvcache::Result<Tensor<'_>> {
        Tensor::from_bytes(self.bytes(), self.dtype, &self.shape)
    }

    /// Of a copy, which is not shared.
    pub fn view_mut(&mut self) -> kvcache::Result<TensorMut<'_>> {
        assert_eq!(Arc::strong_count(&self.memory), 1);
        // SAFETY: as many bytes, not shared.
        let bytes = unsafe { slice::from_raw_parts_mut(self.memory.words.as_ptr().cast(), self.memory.length) };
        TensorMut::from_bytes(bytes, self.dtype, &self.shape)
    }

    /// The same memory for a cache, which keeps it alive.
    pub fn adopted(&self) -> kvcache::Result<ManagedTensor> {
        let strides = self.view()?.strides();
        // SAFETY: the memory lives as long as its owner, and is read between calls only.
        unsafe {
            let (owner, data) = (self.memory.clone(), self.memory.words.as_ptr().cast());
            ManagedTensor::from_owner(owner, data, Device::CPU, self.dtype, &self.shape, &strides)
        }
    }

    pub fn hex(&self) -> String {
        format!("{}:{}", self.head(), self.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// With FNV-1a 64 of the bytes.
    pub fn hash(&self) -> String {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100000001b3);
        format!("{}#{:016x}", self.head(), self.bytes().iter().fold(0xcbf29ce484222325, step))
    }

    fn head(&self) -> String {
        let name = NAMES.iter().find(|entry| entry.1 == self.dtype).map_or("?", |entry| entry.0);
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("{name}[{}]", dims.join(","))
    }

    /// What a call returned.
    pub fn exported(tensor: &ManagedTensor) -> Option<Self> {
        let (data, dims) = (tensor.data().cast(), (tensor.shape(), tensor.strides()));
        // SAFETY: the tensor's own elements, on the CPU.
        unsafe { Self::gather(tensor.dtype()?, data, dims.0, dims.1) }
    }

    pub fn pool(view: &PoolView) -> Option<Self> {
        // SAFETY: the pool's elements; no step computes now.
        unsafe { Self::gather(view.dtype()?, view.data().cast(), view.shape(), view.strides()) }
    }

    /// # Safety
    /// All that the shape and the strides reach is readable.
    unsafe fn gather(dtype: DType, data: *const u8, shape: &[i64], strides: &[i64]) -> Option<Self> {
        let size = dtype.size_bytes();
        let mut offsets = vec![0isize];
        for (extent, stride) in shape.iter().zip(strides) {
            let along = |offset: isize| (0..*extent as isize).map(move |i| offset + i * *stride as isize);
            offsets = offsets.into_iter().flat_map(along).collect();
        }
        // SAFETY: the caller's word.
        let element = |offset: isize| unsafe { slice::from_raw_parts(data.offset(offset * size as isize), size) };
        let bytes: Vec<u8> = offsets.into_iter().flat_map(element).copied().collect();
        Some(Self::new(dtype, shape.iter().map(|extent| *extent as usize).collect(), &bytes))
    }
}

fn generated(dtype: DType, seed: u64, count: usize) -> Vec<u8> {
    let byte = |i: u64| {
        let mut z = (seed << 32).wrapping_add(i + 1).wrapping_mul(0x9E3779B97F4A7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        ((z ^ (z >> 31)) >> 56) as u8
    };
    (0..count as u64).flat_map(|i| element(dtype, byte(i))).collect()
}

fn element(dtype: DType, byte: u8) -> Vec<u8> {
    if dtype.size_bytes() == 1 {
        return vec![byte & 0xBF];
    }
    number(dtype, (f64::from(byte) - 128.0) / 128.0)
}

fn number(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(value).to_ne_bytes().into(),
        DType::BF16 => bf16::from_f64(value).to_ne_bytes().into(),
        _ => (value as f32).to_ne_bytes().into(),
    }
}

fn literal(dtype: DType, items: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    for item in items.split(',').filter(|item| !item.is_empty()) {
        match dtype {
            DType::I8 => bytes.extend(item.parse::<i8>().ok()?.to_ne_bytes()),
            DType::U8 => bytes.extend(item.parse::<u8>().ok()?.to_ne_bytes()),
            DType::I32 => bytes.extend(item.parse::<i32>().ok()?.to_ne_bytes()),
            DType::I64 => bytes.extend(item.parse::<i64>().ok()?.to_ne_bytes()),
            dtype => bytes.extend(number(dtype, item.parse().ok()?)),
        }
    }
    Some(bytes)
}
