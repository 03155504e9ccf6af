//! A model of nothing but attention, and attention as its definition says, in f64.
use kvcache::*;

pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const DIM: usize = 16;

pub fn context() -> Context {
    Context::new(ContextConfig::new().threads(2)).unwrap()
}

pub fn layer() -> Layer {
    Layer { q_heads: HEADS, kv_heads: KV_HEADS, head_dim: DIM, ..Layer::default() }
}

pub fn config() -> CacheConfig {
    CacheConfig {
        layers: vec![layer()],
        page_size: 4,
        max_sequences: 16,
        max_batch_tokens: 64,
        capacity: Capacity::Tokens(256),
        ..CacheConfig::default()
    }
}

pub fn cache() -> Cache {
    Cache::new(&context(), &config()).unwrap()
}

/// Numbers in [-1, 1), the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32) / (1u64 << 23) as f32 - 1.0
    }
}

/// q, k and v of some tokens of one layer.
#[derive(Clone)]
pub struct Tokens {
    pub n: usize,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
}

impl Tokens {
    pub fn random(n: usize, random: &mut Random) -> Self {
        let q = random.numbers(n * HEADS * DIM);
        Self { n, q, k: random.numbers(n * KV_HEADS * DIM), v: random.numbers(n * KV_HEADS * DIM) }
    }

    pub fn q(&self) -> Tensor<'_> {
        Tensor::new(&self.q, &[self.n, HEADS, DIM]).unwrap()
    }
    pub fn k(&self) -> Tensor<'_> {
        Tensor::new(&self.k, &[self.n, KV_HEADS, DIM]).unwrap()
    }
    pub fn v(&self) -> Tensor<'_> {
        Tensor::new(&self.v, &[self.n, KV_HEADS, DIM]).unwrap()
    }

    pub fn attend(&self, step: &Step, layer: usize) -> Result<Vec<f32>> {
        let mut out = vec![f32::NAN; self.q.len()];
        let shape = [self.n, HEADS, DIM];
        step.attend(layer, &Attend::new(self.q(), self.k(), self.v(), TensorMut::new(&mut out, &shape)?))?;
        Ok(out)
    }
}

/// What a sequence holds.
#[derive(Clone, Default)]
pub struct History {
    pub k: Vec<f32>,
    pub v: Vec<f32>,
}

impl History {
    pub fn length(&self) -> usize {
        self.k.len() / (KV_HEADS * DIM)
    }

    pub fn push(&mut self, tokens: &Tokens, range: std::ops::Range<usize>) {
        let range = range.start * KV_HEADS * DIM..range.end * KV_HEADS * DIM;
        self.k.extend(&tokens.k[range.clone()]);
        self.v.extend(&tokens.v[range]);
    }

    pub fn truncate(&mut self, length: usize) {
        self.k.truncate(length * KV_HEADS * DIM);
        self.v.truncate(length * KV_HEADS * DIM);
    }

    /// Attention of one query `[HEADS, DIM]` at `position` over the keys of `seen`.
    pub fn attention(&self, q: &[f32], seen: impl Iterator<Item = usize> + Clone) -> Vec<f32> {
        let dot = |head: usize, key: usize| -> f64 {
            let (q, k) =
                (&q[head * DIM..][..DIM], &self.k[(key * KV_HEADS + head / (HEADS / KV_HEADS)) * DIM..][..DIM]);
            q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() / (DIM as f64).sqrt()
        };
        let mut out = Vec::new();
        for head in 0..HEADS {
            let weights: Vec<f64> = seen.clone().map(|key| dot(head, key).exp()).collect();
            let total: f64 = weights.iter().sum();
            for dim in 0..DIM {
                let value = |key: usize| f64::from(self.v[(key * KV_HEADS + head / (HEADS / KV_HEADS)) * DIM + dim]);
                out.push(
                    (seen.clone().zip(&weights).map(|(key, weight)| weight * value(key)).sum::<f64>() / total) as f32,
                );
            }
        }
        out
    }
}

pub fn assert_close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 2e-5, "element {i}: {got}, expected {expected}");
        // NaN fails too
    }
}

/// Appends tokens to each sequence in one step, and compares what attention gives with the definition.
pub fn run_step(cache: &Cache, rows: &mut [(Seq, &mut History, usize)], window: Option<usize>, random: &mut Random) {
    let batch = Batch::new(
        &rows.iter().map(|row| row.0).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.2).collect::<Vec<_>>(),
    );
    let tokens = Tokens::random(rows.iter().map(|row| row.2).sum(), random);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    let out = tokens.attend(&step, 0).unwrap();
    step.end().unwrap();
    let mut first = 0;
    for (sequence, history, n) in rows {
        let begin = history.length();
        history.push(&tokens, first..first + *n);
        for i in 0..*n {
            let (row, position) = ((first + i) * HEADS * DIM, begin + i);
            let seen = window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1;
            let expected = history.attention(&tokens.q[row..row + HEADS * DIM], seen);
            assert_close(&out[row..row + HEADS * DIM], &expected);
        }
        first += *n;
        assert_eq!(cache.length(*sequence).unwrap(), history.length());
    }
}
