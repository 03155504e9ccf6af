//! A stand-in for a model, without weights: two layers, and tokens that are the bytes of a text.
//!
//! Every number is a hash of a token, so the programs in all five languages compute the same.
use kvcache::{
    Attend, Cache, CacheConfig, Context, ContextConfig, Group, Layer, Result, Rope, Step, Tensor, TensorMut,
};

pub const LAYERS: usize = 2;
pub const Q_HEADS: usize = 2;
pub const KV_HEADS: usize = 1;
pub const HEAD_DIM: usize = 16;
/// Numbers of a token between two layers.
pub const WIDTH: usize = Q_HEADS * HEAD_DIM;
/// Keys that a query of the first layer sees.
pub const WINDOW: usize = 32;
/// The groups: layers that see the same keys share page tables.
pub const SLIDING: usize = 0;
pub const FULL: usize = 1;

/// Starts the config of a cache for this model: layers and groups. The program adds the capacity.
pub fn config() -> CacheConfig {
    let layer = |group| Layer {
        group,
        q_heads: Q_HEADS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        rope: Rope::on_append(1e4),
        ..Layer::default()
    };
    CacheConfig {
        layers: vec![layer(SLIDING), layer(FULL)],
        groups: vec![Group::sliding(WINDOW), Group::full()],
        ..CacheConfig::default()
    }
}

/// Makes a cache on the CPU, with all cores of this process.
pub fn new_cache(config: &CacheConfig) -> Result<Cache> {
    Cache::new(&Context::new(ContextConfig::new())?, config)
}

pub fn encode(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}

pub fn decode(tokens: &[i32]) -> String {
    tokens.iter().map(|token| *token as u8 as char).collect()
}

fn number(token: i32, i: usize) -> f32 {
    let mut x = (token as u32 * WIDTH as u32 + i as u32 + 1).wrapping_mul(2654435761);
    x ^= x >> 15;
    x = x.wrapping_mul(2246822519);
    ((x >> 24) as f32 - 128.0) / 64.0
}

/// Gives each token a vector of `WIDTH` numbers from -2 to 2.
pub fn embed(tokens: &[i32]) -> Vec<f32> {
    tokens.iter().flat_map(|token| (0..WIDTH).map(|i| number(*token, i))).collect()
}

/// Gives q, k and v of a layer. A real model multiplies by weights here.
pub fn project(hidden: &[f32]) -> [Vec<f32>; 3] {
    let rows = || hidden.chunks_exact(WIDTH);
    [
        hidden.to_vec(),
        rows().flat_map(|row| &row[..HEAD_DIM]).copied().collect(),
        rows().flat_map(|row| &row[HEAD_DIM..]).copied().collect(),
    ]
}

/// Adds the output of attention to `hidden`.
pub fn add(hidden: &mut [f32], out: &[f32]) {
    hidden.iter_mut().zip(out).for_each(|(x, y)| *x += y);
}

/// Gives, for each row, the letter that comes next.
pub fn predict(hidden: &[f32]) -> Vec<i32> {
    let score = |row: &[f32], letter: i32| -> f64 {
        row.iter().enumerate().map(|(i, x)| f64::from(*x) * f64::from(number(256 + letter, i))).sum()
    };
    let best = |row| {
        (97..=122).map(|letter| (score(row, letter), letter)).fold((f64::MIN, 0), |a, b| if b.0 > a.0 { b } else { a })
    };
    hidden.chunks_exact(WIDTH).map(|row| best(row).1).collect()
}

/// Runs the layers in an open step. Gives, for each of the step's tokens, the one that comes next.
pub fn run(step: &Step, tokens: &[i32]) -> Result<Vec<i32>> {
    let mut hidden = embed(tokens);
    let mut out = vec![0f32; hidden.len()];
    let (queries, keys) = ([tokens.len(), Q_HEADS, HEAD_DIM], [tokens.len(), KV_HEADS, HEAD_DIM]);
    for layer in 0..LAYERS {
        let [q, k, v] = project(&hidden);
        let (q, k, v) = (Tensor::new(&q, &queries)?, Tensor::new(&k, &keys)?, Tensor::new(&v, &keys)?);
        step.attend(layer, &Attend::new(q, k, v, TensorMut::new(&mut out, &queries)?))?;
        add(&mut hidden, &out);
    }
    Ok(predict(&hidden))
}
