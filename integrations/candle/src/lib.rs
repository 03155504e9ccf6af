//! candle's Llama models over libkvcache: the weights and layers are candle's, the KV cache and attention are the library's.
//!
//! [`Llama`] loads what `candle_transformers::models::llama::Llama` loads, with the same `Config`. Its sequences are those
//! of a [`kvcache::Cache`]: a step may have rows of any lengths, and sequences can be forked, truncated, published, and so
//! on.
use candle_core::{DType, Device, Error, Result, Tensor};
use candle_nn::{embedding, linear_no_bias, ops::silu, rms_norm, Embedding, Linear, Module, RmsNorm, VarBuilder};
use candle_transformers::models::llama::{Config, Llama3RopeType};
use kvcache::{Layer, Rope, RopeScaling, Step};

struct Block {
    before_attention: RmsNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    output: Linear,
    before_mlp: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// A Llama model, also Mistral's and others of the same form.
pub struct Llama {
    layer: Layer,
    embeddings: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
}

impl Llama {
    /// Reads the weights under the names of Hugging Face's checkpoints. Errors: a device other than the CPU, heads that do
    /// not divide the hidden size, a dtype other than f32, f16 and bf16, and what candle says of missing weights.
    pub fn load(vb: VarBuilder, config: &Config) -> Result<Self> {
        let (hidden, heads, kv_heads) = (config.hidden_size, config.num_attention_heads, config.num_key_value_heads);
        if !matches!(vb.device(), Device::Cpu) {
            return Err(Error::msg(format!("the weights are on {:?}, not on the CPU", vb.device().location())));
        }
        if heads == 0 || hidden % heads != 0 {
            return Err(Error::msg(format!("hidden_size is {hidden}, not a multiple of {heads} num_attention_heads")));
        }
        let dim = hidden / heads;
        let layer = Layer {
            q_heads: heads,
            kv_heads,
            head_dim: dim,
            dtype: dtype_of(vb.dtype())?,
            rope: rope_of(config),
            ..Layer::default()
        };
        let embeddings = embedding(config.vocab_size, hidden, vb.pp("model.embed_tokens"))?;
        let head = if config.tie_word_embeddings {
            Linear::new(embeddings.embeddings().clone(), None)
        } else {
            linear_no_bias(hidden, config.vocab_size, vb.pp("lm_head"))?
        };
        let block = |i: usize| {
            let vb = vb.pp(format!("model.layers.{i}"));
            let norm = |name: &str| rms_norm(hidden, config.rms_norm_eps, vb.pp(name));
            let attention = |name: &str, input, output| linear_no_bias(input, output, vb.pp("self_attn").pp(name));
            let mlp = |name: &str, input, output| linear_no_bias(input, output, vb.pp("mlp").pp(name));
            Ok(Block {
                before_attention: norm("input_layernorm")?,
                q: attention("q_proj", hidden, hidden)?,
                k: attention("k_proj", hidden, kv_heads * dim)?,
                v: attention("v_proj", hidden, kv_heads * dim)?,
                output: attention("o_proj", hidden, hidden)?,
                before_mlp: norm("post_attention_layernorm")?,
                gate: mlp("gate_proj", hidden, config.intermediate_size)?,
                up: mlp("up_proj", hidden, config.intermediate_size)?,
                down: mlp("down_proj", config.intermediate_size, hidden)?,
            })
        };
        Ok(Self {
            layer,
            embeddings,
            blocks: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            norm: rms_norm(hidden, config.rms_norm_eps, vb.pp("model.norm"))?,
            head,
        })
    }

    /// The layers of the model, for [`kvcache::CacheConfig`]. K and V are stored in the dtype of the weights, and rotated by
    /// the library. Another dtype, such as float8, can be set in each.
    pub fn layers(&self) -> Vec<Layer> {
        vec![self.layer.clone(); self.blocks.len()]
    }

    /// Computes all layers over the new tokens of a step, those of its first sequence first. Returns the logits after the
    /// last token of each sequence, `[sequences, vocabulary]` in f32. The step is still open: end it to keep the tokens. An
    /// error of the library is wrapped as a [`kvcache::Error`].
    pub fn forward(&self, step: &Step, tokens: &[u32]) -> Result<Tensor> {
        let Layer { q_heads, kv_heads, head_dim, .. } = self.layer;
        let rows = tokens.len();
        let mut x = self.embeddings.forward(&Tensor::new(tokens, &Device::Cpu)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            let normed = block.before_attention.forward(&x)?;
            let heads = |linear: &Linear, count| linear.forward(&normed)?.reshape((rows, count, head_dim));
            let (k, v) = (heads(&block.k, kv_heads)?, heads(&block.v, kv_heads)?);
            let seen = step.attend_candle(i, &heads(&block.q, q_heads)?, Some((&k, &v))).map_err(Error::wrap)?;
            x = (x + block.output.forward(&seen.flatten_from(1)?)?)?;
            let normed = block.before_mlp.forward(&x)?;
            let inner = (silu(&block.gate.forward(&normed)?)? * block.up.forward(&normed)?)?;
            x = (x + block.down.forward(&inner)?)?;
        }
        let last: Vec<u32> = step.last_rows().map_err(Error::wrap)?.iter().map(|&row| row as u32).collect();
        let x = x.index_select(&Tensor::new(last, &Device::Cpu)?, 0)?;
        self.head.forward(&self.norm.forward(&x)?)?.to_dtype(DType::F32)
    }
}

fn dtype_of(dtype: DType) -> Result<kvcache::DType> {
    match dtype {
        DType::F32 => Ok(kvcache::DType::F32),
        DType::F16 => Ok(kvcache::DType::F16),
        DType::BF16 => Ok(kvcache::DType::BF16),
        other => Err(Error::msg(format!("weights of {other:?} are none of f32, f16 and bf16"))),
    }
}

fn rope_of(config: &Config) -> Rope {
    let rope = Rope::on_append(f64::from(config.rope_theta));
    match &config.rope_scaling {
        Some(scaling) if matches!(scaling.rope_type, Llama3RopeType::Llama3) => rope.scaled(RopeScaling::Llama3 {
            factor: f64::from(scaling.factor),
            low_freq_factor: f64::from(scaling.low_freq_factor),
            high_freq_factor: f64::from(scaling.high_freq_factor),
            original_max_position: scaling.original_max_position_embeddings,
        }),
        _ => rope,
    }
}
