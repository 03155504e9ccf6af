//! Gemma 3 270M through libkvcache: users share one system prompt, forked, and are decoded greedily as one batch.
//!
//!     cargo run --release -- gemma.safetensors [new tokens] [--tier DIRECTORY]
//!
//! `generate.py --export` writes the file, and README.md says what is in it and what is printed. The cache keeps keys and
//! values and computes attention, the crate matrixmultiply multiplies matrices, and the rest of the model is below.
use kvcache::{
    Attend, Batch, Cache, CacheConfig, Capacity, Context, ContextConfig, DiskTierOptions, Group, Layer, LoadOptions,
    PrefixOptions, PrefixQuery, Rope, Seq, Stream, Tensor, TensorMut,
};
use safetensors::SafeTensors;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE_TOKENS: usize = 16;
const STEP_TOKENS: usize = 256; // most tokens of one step
const SLIDING: usize = 0; // the two groups of the cache
const FULL: usize = 1;

fn main() {
    if let Err(error) = run() {
        eprintln!("gemma: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (arguments, tier) = match &arguments[1..] {
        [others @ .., flag, directory] if flag == "--tier" => (others, Some(directory.as_str())),
        others => (others, None),
    };
    let (path, limit) = match arguments {
        [path] => (path, 24),
        [path, tokens] => {
            (path, tokens.parse().ok().filter(|n| *n > 0).ok_or("the number of new tokens is not positive")?)
        }
        _ => return Err("usage: gemma FILE.safetensors [NEW TOKENS] [--tier DIRECTORY]".into()),
    };
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    // SAFETY: no process writes the file while this runs.
    let bytes = unsafe { memmap2::Mmap::map(&file)? };
    let file = File::new(&bytes).map_err(|error| format!("{path}: {error}"))?;
    let model = Model::new(&file)?;
    let users = (0..file.number("users")?)
        .map(|user| file.ints(&format!("prompts.user.{user}")))
        .collect::<Result<Vec<_>>>()?;
    generate(&model, &file, file.ints("prompts.system")?, &users, limit, tier)
}

// ---- Decoding --------------------------------------------------------------------------------------------------------

/// Greedy decoding of all users; the lines that README.md describes.
fn generate(
    model: &Model,
    file: &File,
    system: &[i32],
    users: &[&[i32]],
    limit: usize,
    tier: Option<&str>,
) -> Result<()> {
    let context = Context::new(ContextConfig::new())?;
    let lengths = users.iter().map(|user| system.len() + user.len() + limit).chain([system.len()]);
    let mut config = model.cache_config(lengths, users.len() + 1);
    if tier.is_some() {
        (config.prefix_index, config.fingerprint) = (true, Some(file.fingerprint()?));
    }
    let cache = Cache::new(&context, &config)?;
    let stop_ids = file.ints("stop_ids")?;

    let shared = match tier {
        Some(directory) => read_with_tier(model, &cache, system, directory)?,
        None => {
            let shared = cache.add()?;
            for chunk in system.chunks(STEP_TOKENS) {
                model.step(&cache, &[shared], &[chunk])?;
            }
            shared
        }
    };
    let begin = Instant::now();
    let sequences = cache.fork(&vec![shared; users.len()], Stream::NONE)?; // every whole page is shared
    let mut outputs = vec![Vec::new(); users.len()];
    let mut active: Vec<usize> = (0..users.len()).collect();
    let mut inputs: Vec<&[i32]> = users.to_vec(); // of each active user
    let mut times = Vec::new();
    while !active.is_empty() {
        let began = Instant::now();
        let batch: Vec<Seq> = active.iter().map(|user| sequences[*user]).collect();
        let tokens = model.next_tokens(&model.step(&cache, &batch, &inputs)?);
        for (user, token) in active.iter().zip(tokens) {
            outputs[*user].push(token);
        }
        active.retain(|user| outputs[*user].len() < limit && !stop_ids.contains(outputs[*user].last().unwrap()));
        inputs = active.iter().map(|user| &outputs[*user][outputs[*user].len() - 1..]).collect();
        times.push(began.elapsed());
    }
    let seconds = begin.elapsed().as_secs_f64();

    for (user, (prompt, output)) in users.iter().zip(&outputs).enumerate() {
        let ids: Vec<String> = output.iter().map(i32::to_string).collect();
        println!("prompt {}: {}", user + 1, file.text(prompt)?);
        println!("ids {}: {}", user + 1, ids.join(" "));
        println!("text {}: {}", user + 1, file.text(output)?);
    }
    let saved = saved_bytes(&cache, &[&[shared], &sequences[..]].concat())?;
    println!("sharing: {saved} bytes saved ({} forks of a system prompt of {} tokens)", users.len(), system.len());
    let count: usize = outputs.iter().map(Vec::len).sum();
    let speed = count as f64 / seconds;
    println!("speed: {speed:.1} tokens/s ({count} tokens of {} users in {seconds:.2} s)", users.len());
    if times.len() > 1 {
        let step = times[1..].iter().sum::<Duration>().as_secs_f64() / (times.len() - 1) as f64;
        let calls = seconds_of_calls(&context, model.layers.len(), users.len())?;
        println!(
            "binding: at most {:.3} % of a decode step (its calls over tiny heads take {:.3} ms, the step {:.1} ms)",
            100.0 * calls / step,
            1e3 * calls,
            1e3 * step
        );
    }
    Ok(())
}

/// Reads the system prompt: what an earlier run left in the tier is loaded. When it returns, the tier has the prompt.
fn read_with_tier(model: &Model, cache: &Cache, system: &[i32], directory: &str) -> Result<Seq> {
    cache.add_disk_tier(directory, &DiskTierOptions::default())?;
    let query = PrefixQuery { allow_all: true, ..PrefixQuery::new(system) };
    if let (Some(job), _) = cache.load_prefix(&query, &LoadOptions::default())? {
        job.wait()?;
    }
    let (shared, hit) = cache.attach_prefix(&query, Stream::NONE)?;
    let mut held = hit.tokens;
    for chunk in system[hit.tokens..].chunks(STEP_TOKENS) {
        model.step(cache, &[shared], &[chunk])?;
        held += chunk.len(); // and published now: the sliding layers still have its pages
        cache.publish_prefix(shared, &PrefixQuery::new(&system[..held]), &PrefixOptions::default())?;
    }
    while cache.tier_traffic()?.pages_waiting > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (n, found) = (system.len(), hit.tokens);
    println!("tier: {found} of {n} tokens of the system prompt loaded, {} computed", n - found);
    Ok(shared)
}

/// What the sequences would hold in addition if each had its own copy of every page.
fn saved_bytes(cache: &Cache, sequences: &[Seq]) -> Result<usize> {
    let mut saved = 0;
    for group in [SLIDING, FULL] {
        let tables =
            sequences.iter().map(|sequence| cache.pages(*sequence, group)).collect::<kvcache::Result<Vec<_>>>()?;
        let pages: Vec<u32> = tables.into_iter().flatten().flatten().collect(); // without those that left the window
        let stats = cache.stats(Some(group))?;
        let distinct = pages.iter().collect::<HashSet<_>>().len();
        saved += (pages.len() - distinct) * (stats.storage_bytes / stats.pages_total.max(1)) as usize;
    }
    Ok(saved)
}

/// A decode step's calls over heads so small that attention costs next to nothing: an upper bound of what the binding takes,
/// since the library's own time is in it.
fn seconds_of_calls(context: &Context, layers: usize, rows: usize) -> Result<f64> {
    const STEPS: usize = 200;
    let layer = Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() };
    let capacity = Capacity::Tokens(2 * rows * STEPS);
    let config = CacheConfig { layers: vec![layer; layers], capacity, max_sequences: rows, ..CacheConfig::default() };
    let cache = Cache::new(context, &config)?;
    let (batch, ones) = (Batch::new(&cache.add_many(rows)?, &vec![1; rows]), vec![1f32; rows * 16]);
    let (mut out, shape) = (vec![0f32; rows * 16], [rows, 1, 16]);
    let mut begin = Instant::now();
    for number in 0..=STEPS {
        if number == 1 {
            begin = Instant::now(); // the first one warms up
        }
        let step = cache.begin(&batch, Stream::NONE)?;
        for layer in 0..layers {
            let q = Tensor::new(&ones, &shape)?;
            step.attend(layer, &Attend::new(q, q, q, TensorMut::new(&mut out, &shape)?))?;
        }
        assert_eq!(step.last_rows()?.len(), rows);
        step.end()?;
    }
    Ok(begin.elapsed().as_secs_f64() / STEPS as f64)
}

// ---- The model -------------------------------------------------------------------------------------------------------

struct Model<'a> {
    embedding: usize,
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: usize,
    full_every: usize,
    full_theta: f64,
    sliding_theta: f64,
    softmax_scale: f64,
    embedding_scale: f32,
    epsilon: f32,
    /// `[vocabulary, embedding]`: also the output matrix
    embeddings: &'a [f32],
    output_norm: &'a [f32],
    layers: Vec<Weights<'a>>,
}

/// One layer's. Matrices are `[outputs, inputs]`.
struct Weights<'a> {
    qkv: &'a [f32],
    attention_output: &'a [f32],
    gate_up: &'a [f32],
    down: &'a [f32],
    q_norm: &'a [f32],
    k_norm: &'a [f32],
    before_attention: &'a [f32],
    after_attention: &'a [f32],
    before_ffn: &'a [f32],
    after_ffn: &'a [f32],
}

impl<'a> Model<'a> {
    fn new(file: &File<'a>) -> Result<Self> {
        let layer = |number| {
            let weight = |name| file.floats(&format!("blk.{number}.{name}.weight"));
            Ok(Weights {
                qkv: weight("attn_qkv")?,
                attention_output: weight("attn_output")?,
                gate_up: weight("ffn_gate_up")?,
                down: weight("ffn_down")?,
                q_norm: weight("attn_q_norm")?,
                k_norm: weight("attn_k_norm")?,
                before_attention: weight("attn_norm")?,
                after_attention: weight("post_attention_norm")?,
                before_ffn: weight("ffn_norm")?,
                after_ffn: weight("post_ffw_norm")?,
            })
        };
        Ok(Model {
            embedding: file.number("embedding")?,
            q_heads: file.number("q_heads")?,
            kv_heads: file.number("kv_heads")?,
            head_dim: file.number("head_dim")?,
            window: file.number("window_tokens")?,
            full_every: file.number("full_attention_every")?,
            full_theta: file.number("full_rope_theta")?,
            sliding_theta: file.number("sliding_rope_theta")?,
            softmax_scale: file.number("attention_scale")?,
            embedding_scale: file.number("embedding_scale")?,
            epsilon: file.number("norm_epsilon")?,
            embeddings: file.floats("token_embd.weight")?,
            output_norm: file.floats("output_norm.weight")?,
            layers: (0..file.number("layers")?).map(layer).collect::<Result<_>>()?,
        })
    }

    /// A cache with room for sequences of these lengths.
    fn cache_config(&self, lengths: impl Iterator<Item = usize>, max_sequences: usize) -> CacheConfig {
        let layer = |number: usize| {
            let full = number % self.full_every == self.full_every - 1;
            Layer {
                group: if full { FULL } else { SLIDING },
                q_heads: self.q_heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim,
                rope: Rope::on_append(if full { self.full_theta } else { self.sliding_theta }),
                softmax_scale: self.softmax_scale,
                ..Layer::default()
            }
        };
        let pages = lengths.map(|length| length.div_ceil(PAGE_TOKENS)).sum::<usize>() + 1;
        CacheConfig {
            layers: (0..self.layers.len()).map(layer).collect(),
            groups: vec![Group::sliding(self.window), Group::full()],
            page_size: PAGE_TOKENS,
            max_sequences,
            max_batch_tokens: STEP_TOKENS,
            capacity: Capacity::Tokens(pages * PAGE_TOKENS),
            ..CacheConfig::default()
        }
    }

    /// Appends `tokens[i]` to `sequences[i]`; the last token's hidden state of each, `[sequences, embedding]`.
    fn step(&self, cache: &Cache, sequences: &[Seq], tokens: &[&[i32]]) -> Result<Vec<f32>> {
        let lengths: Vec<usize> = tokens.iter().map(|tokens| tokens.len()).collect();
        let step = cache.begin(&Batch::new(sequences, &lengths), Stream::NONE)?;
        let mut x = Vec::new();
        for token in tokens.concat() {
            let row = &self.embeddings[token as usize * self.embedding..][..self.embedding];
            x.extend(row.iter().map(|x| x * self.embedding_scale));
        }
        for (number, weights) in self.layers.iter().enumerate() {
            self.layer(weights, &mut x, |q, k, v, out| Ok(step.attend(number, &Attend::new(q, k, v, out))?))?;
        }
        let last_rows = step.last_rows()?;
        step.end()?;
        Ok(last_rows.iter().flat_map(|row| &x[*row as usize * self.embedding..][..self.embedding]).copied().collect())
    }

    /// Attention, then a gated feed-forward part, each with a norm before and after. x: `[T, embedding]`.
    fn layer(
        &self,
        weights: &Weights,
        x: &mut [f32],
        attend: impl FnOnce(Tensor, Tensor, Tensor, TensorMut) -> Result<()>,
    ) -> Result<()> {
        let (rows, dim) = (x.len() / self.embedding, self.head_dim);
        let (q_width, kv_width) = (self.q_heads * dim, self.kv_heads * dim);
        let width = q_width + 2 * kv_width;
        let mut qkv = multiply(&self.norm(x, weights.before_attention), weights.qkv, self.embedding);
        for row in qkv.chunks_mut(width) {
            self.norm_in_place(&mut row[..q_width], weights.q_norm);
            self.norm_in_place(&mut row[q_width..q_width + kv_width], weights.k_norm);
        }
        let mut seen = vec![0f32; rows * q_width];
        let part = |begin: usize, heads| Tensor::strided(&qkv[begin..], &[rows, heads, dim], &[width, dim, 1]);
        attend(
            part(0, self.q_heads)?, // the cache rotates q and k
            part(q_width, self.kv_heads)?,
            part(q_width + kv_width, self.kv_heads)?,
            TensorMut::new(&mut seen, &[rows, self.q_heads, dim])?,
        )?;
        add(x, &self.norm(&multiply(&seen, weights.attention_output, q_width), weights.after_attention));

        let gate_up = multiply(&self.norm(x, weights.before_ffn), weights.gate_up, self.embedding);
        let inner_width = gate_up.len() / rows / 2;
        let gated = gate_up.chunks(2 * inner_width).flat_map(|row| {
            let (gate, up) = row.split_at(inner_width);
            gate.iter().zip(up).map(|(gate, up)| gelu(*gate) * up)
        });
        let inner: Vec<f32> = gated.collect();
        add(x, &self.norm(&multiply(&inner, weights.down, inner_width), weights.after_ffn));
        Ok(())
    }

    /// The most likely token of each row of hidden states.
    fn next_tokens(&self, hidden: &[f32]) -> Vec<i32> {
        let logits = multiply(&self.norm(hidden, self.output_norm), self.embeddings, self.embedding);
        let best = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        logits.chunks(self.embeddings.len() / self.embedding).map(|row| best(row) as i32).collect()
    }

    fn norm(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut x = x.to_vec();
        self.norm_in_place(&mut x, weight);
        x
    }

    /// RMS norm of each row as long as `weight`.
    fn norm_in_place(&self, x: &mut [f32], weight: &[f32]) {
        for row in x.chunks_mut(weight.len()) {
            let mean_square = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32;
            let scale = 1.0 / (mean_square + self.epsilon).sqrt();
            row.iter_mut().zip(weight).for_each(|(x, weight)| *x *= scale * weight);
        }
    }
}

fn add(x: &mut [f32], other: &[f32]) {
    x.iter_mut().zip(other).for_each(|(x, other)| *x += other);
}

fn gelu(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// x `[rows, inputs]` times the transpose of w `[outputs, inputs]`.
fn multiply(x: &[f32], w: &[f32], inputs: usize) -> Vec<f32> {
    let (rows, outputs) = (x.len() / inputs, w.len() / inputs);
    let mut out = vec![0f32; rows * outputs];
    let (row, column) = (inputs as isize, outputs as isize); // strides
                                                             // SAFETY: reads rows * inputs of x and outputs * inputs of w, writes rows * outputs of out.
    unsafe {
        matrixmultiply::sgemm(
            rows,
            inputs,
            outputs,
            1.0,
            x.as_ptr(),
            row,
            1,
            w.as_ptr(),
            1,
            row,
            0.0,
            out.as_mut_ptr(),
            column,
            1,
        );
    }
    out
}

// ---- The file --------------------------------------------------------------------------------------------------------

struct File<'a> {
    metadata: HashMap<String, String>,
    tensors: SafeTensors<'a>,
}

impl<'a> File<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let metadata = SafeTensors::read_metadata(bytes)?.1.metadata().clone().unwrap_or_default();
        if metadata.get("format").map(String::as_str) != Some("kvcache-gemma-1") {
            return Err("not a file of generate.py --export".into());
        }
        Ok(File { metadata, tensors: SafeTensors::deserialize(bytes)? })
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let text = self.metadata.get(name).ok_or_else(|| format!("the metadata lacks {name}"))?;
        text.parse().map_err(|_| format!("the metadata's {name} is {text:?}").into())
    }

    /// 32 bytes that name the weights.
    fn fingerprint(&self) -> Result<[u8; 32]> {
        let text = self.metadata.get("fingerprint").map_or("", String::as_str);
        let digits = |i: usize| text.get(2 * i..2 * i + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len().div_ceil(2)).map(digits).collect();
        let named = bytes.and_then(|bytes| bytes.try_into().ok());
        named.ok_or_else(|| format!("the metadata's fingerprint is {text:?}").into())
    }

    fn floats(&self, name: &str) -> Result<&'a [f32]> {
        let bytes = self.tensors.tensor(name)?.data();
        bytemuck::try_cast_slice(bytes).map_err(|error| format!("{name}: {error}").into())
    }

    fn ints(&self, name: &str) -> Result<&'a [i32]> {
        let bytes = self.tensors.tensor(name)?.data();
        bytemuck::try_cast_slice(bytes).map_err(|error| format!("{name}: {error}").into())
    }

    /// The tokens' text on one line.
    fn text(&self, tokens: &[i32]) -> Result<String> {
        let (offsets, bytes) = (self.ints("vocabulary.offsets")?, self.tensors.tensor("vocabulary.bytes")?.data());
        let piece = |token: &i32| &bytes[offsets[*token as usize] as usize..offsets[*token as usize + 1] as usize];
        let joined: Vec<u8> = tokens.iter().flat_map(piece).copied().collect();
        Ok(String::from_utf8_lossy(&joined).replace('\n', " ").trim_matches(' ').into())
    }
}
