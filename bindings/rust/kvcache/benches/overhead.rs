//! What this crate adds to a call: each line times the C function as it is and the same through the safe layer.
//! `cargo bench --bench overhead` prints nanoseconds, the fastest of several rounds.
use kvcache::{
    sys, Attend, Batch, Cache, CacheConfig, Capacity, Context, ContextConfig, Layer, Seq, Step, Stream, Tensor,
    TensorMut,
};
use std::hint::black_box;
use std::time::Instant;

const LAYERS: usize = 512;
const HEADS: usize = 4;
const DIM: usize = 64;

fn main() {
    let context = Context::new(ContextConfig::new().threads(1)).unwrap();
    let layer = Layer { q_heads: HEADS, kv_heads: 1, head_dim: DIM, ..Layer::default() };
    let capacity = Capacity::Tokens(256);
    let config = CacheConfig { layers: vec![layer; LAYERS], capacity, ..CacheConfig::default() };
    let cache = Cache::new(&context, &config).unwrap();
    let sequence = cache.add().unwrap();

    println!("{:<32} {:>8} {:>8} {:>8}", "ns a call", "C", "Rust", "added");
    // SAFETY: C's own calls, with arguments that live long enough.
    unsafe {
        let (raw, mut length) = (cache.as_raw(), 0);
        let mut error = sys::kvc_error::default();
        let c = fastest(|| {
            black_box(sys::kvc_seq_lengths(raw, 1, &sequence.0, &mut length, &mut error));
        });
        report(
            "seq_lengths of one sequence",
            c,
            fastest(|| {
                black_box(cache.length(black_box(sequence)).unwrap());
            }),
        );

        let mut buffers = Buffers::new();
        let c = steps(&cache, sequence, |step| buffers.attend_c(&cache, step.as_raw()));
        let rust = steps(&cache, sequence, |step| buffers.attend_rust(step));
        report("forward_attend of one decode row", c, rust);
    }
}

fn report(name: &str, c: f64, rust: f64) {
    println!("{name:<32} {c:>8.1} {rust:>8.1} {:>8.1}", rust - c);
}

fn fastest(mut call: impl FnMut()) -> f64 {
    const CALLS: usize = 10_000;
    let rounds = (0..50).map(|_| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / CALLS as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

/// Time of a layer's attend: a step takes one call of each layer.
fn steps(cache: &Cache, sequence: Seq, mut layers: impl FnMut(&Step)) -> f64 {
    let batch = Batch::new(&[sequence], &[1]);
    let rounds = (0..200).map(|_| {
        let step = cache.begin(&batch, Stream::NONE).unwrap();
        let begin = Instant::now();
        layers(&step);
        begin.elapsed().as_nanos() as f64 / LAYERS as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

struct Buffers {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    out: Vec<f32>,
}

impl Buffers {
    fn new() -> Self {
        Self { q: vec![0.1; HEADS * DIM], k: vec![0.2; DIM], v: vec![0.3; DIM], out: vec![0.0; HEADS * DIM] }
    }

    /// As a C program would: descriptions that stand once, a call a layer.
    unsafe fn attend_c(&mut self, cache: &Cache, forward: sys::kvc_forward) {
        let (q_shape, kv_shape) = ([1, HEADS as i64, DIM as i64], [1, 1, DIM as i64]);
        let (q_strides, kv_strides) = ([(HEADS * DIM) as i64, DIM as i64, 1], [DIM as i64, DIM as i64, 1]);
        let tensor = |data: *mut f32, shape: &[i64; 3], strides: &[i64; 3]| sys::DLTensor {
            data: data.cast(),
            device: sys::DLDevice { device_type: sys::kDLCPU, device_id: 0 },
            ndim: 3,
            dtype: sys::DLDataType { code: sys::kDLFloat as u8, bits: 32, lanes: 1 },
            shape: shape.as_ptr().cast_mut(),
            strides: strides.as_ptr().cast_mut(),
            byte_offset: 0,
        };
        let q = tensor(self.q.as_mut_ptr(), &q_shape, &q_strides);
        let k = tensor(self.k.as_mut_ptr(), &kv_shape, &kv_strides);
        let v = tensor(self.v.as_mut_ptr(), &kv_shape, &kv_strides);
        let out = tensor(self.out.as_mut_ptr(), &q_shape, &q_strides);
        let args = sys::kvc_attend_args { q: &q, k: &k, v: &v, out: &out, ..Default::default() };
        let mut error = sys::kvc_error::default();
        for layer in 0..LAYERS as i32 {
            // SAFETY: everything lives in this function.
            let status = unsafe { sys::kvc_forward_attend(cache.as_raw(), forward, layer, &args, &mut error) };
            assert_eq!(status, 0);
        }
    }

    /// With tensors made anew for each layer.
    fn attend_rust(&mut self, step: &Step) {
        for layer in 0..LAYERS {
            let q = Tensor::new(&self.q, &[1, HEADS, DIM]).unwrap();
            let k = Tensor::new(&self.k, &[1, 1, DIM]).unwrap();
            let v = Tensor::new(&self.v, &[1, 1, DIM]).unwrap();
            let out = TensorMut::new(&mut self.out, &[1, HEADS, DIM]).unwrap();
            step.attend(layer, &Attend::new(q, k, v, out)).unwrap();
        }
    }
}
