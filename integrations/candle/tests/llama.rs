//! Logits of a small random Llama against candle's own model, which has the same weights.
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{
    Cache as StockCache, Config, Llama as Stock, Llama3RopeConfig, Llama3RopeType,
};
use kvcache::{Batch, Cache, CacheConfig, Capacity, Context, ContextConfig, Seq, Stream};
use kvcache_candle::Llama;
use std::cell::Cell;
use std::collections::HashMap;

const VOCABULARY: usize = 97;

fn config(scaled: bool, tied: bool) -> Config {
    let scaling = Llama3RopeConfig {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32,
        rope_type: Llama3RopeType::Llama3,
    };
    Config {
        hidden_size: 64,
        intermediate_size: 96,
        vocab_size: VOCABULARY,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: scaled.then_some(scaling),
        max_position_embeddings: 256,
        tie_word_embeddings: tied,
    }
}

/// Weights so large that attention is far from uniform. They are the same in each run.
fn weights(config: &Config) -> Result<HashMap<String, Tensor>> {
    let (hidden, wide, kv) = (config.hidden_size, config.intermediate_size, config.num_key_value_heads * 16);
    let state = Cell::new(88_172_645_463_325_252u64);
    let uniform = || {
        let x = state.get() ^ (state.get() << 13); // xorshift64
        let x = x ^ (x >> 7);
        state.set(x ^ (x << 17));
        (state.get() >> 40) as f32 / (1 << 24) as f32
    };
    let random = |rows: usize, columns: usize| {
        let scale = 7.0 / (columns as f32).sqrt(); // a standard deviation of 2 / sqrt(columns)
        let values = (0..rows * columns).map(|_| (uniform() - 0.5) * scale).collect();
        Tensor::from_vec(values, (rows, columns), &Device::Cpu)
    };
    let norm = || Tensor::from_vec((0..hidden).map(|_| 0.5 + uniform()).collect(), hidden, &Device::Cpu);
    let mut all = HashMap::from([
        ("model.embed_tokens.weight".to_string(), random(VOCABULARY, hidden)?),
        ("lm_head.weight".to_string(), random(VOCABULARY, hidden)?),
        ("model.norm.weight".to_string(), norm()?),
    ]);
    for i in 0..config.num_hidden_layers {
        for (name, rows, columns) in [
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", wide, hidden),
            ("mlp.up_proj", wide, hidden),
            ("mlp.down_proj", hidden, wide),
        ] {
            all.insert(format!("model.layers.{i}.{name}.weight"), random(rows, columns)?);
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            all.insert(format!("model.layers.{i}.{name}.weight"), norm()?);
        }
    }
    Ok(all)
}

fn both(config: &Config, dtype: DType) -> Result<(Llama, Stock)> {
    let weights = weights(config)?;
    let vb = VarBuilder::from_tensors(weights, dtype, &Device::Cpu);
    Ok((Llama::load(vb.clone(), config)?, Stock::load(vb, config)?))
}

fn cache_of(model: &Llama) -> Cache {
    let config = CacheConfig { layers: model.layers(), capacity: Capacity::Tokens(1024), ..CacheConfig::default() };
    Cache::new(&Context::new(ContextConfig::new()).unwrap(), &config).unwrap()
}

fn drawn(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i + seed).wrapping_mul(2_654_435_761) >> 7).map(|x| x % VOCABULARY as u32).collect()
}

fn step(model: &Llama, cache: &Cache, rows: &[(Seq, &[u32])]) -> Result<Tensor> {
    let sequences: Vec<_> = rows.iter().map(|row| row.0).collect();
    let lengths: Vec<_> = rows.iter().map(|row| row.1.len()).collect();
    let tokens = rows.iter().flat_map(|row| row.1).copied().collect::<Vec<_>>();
    let step = cache.begin(&Batch::new(&sequences, &lengths), Stream::NONE).unwrap();
    let logits = model.forward(&step, &tokens)?;
    step.end().unwrap();
    Ok(logits)
}

/// The largest difference of two rows of logits, over the largest of candle's own.
fn difference(ours: &Tensor, row: usize, stock: &Tensor) -> Result<f32> {
    let stock = stock.get(0)?;
    let difference = (ours.get(row)? - &stock)?.abs()?.max_all()?.to_scalar::<f32>()?;
    Ok(difference / stock.abs()?.max_all()?.to_scalar::<f32>()?)
}

/// candle's logits after the tokens, which it computes at once.
fn stock_logits(stock: &Stock, config: &Config, dtype: DType, tokens: &[u32]) -> Result<Tensor> {
    let mut cache = StockCache::new(true, dtype, config, &Device::Cpu)?;
    stock.forward(&Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?, 0, &mut cache)
}

#[test]
fn logits_are_candle_s() -> Result<()> {
    for (scaled, tied, dtype, tolerance) in [
        (false, false, DType::F32, 2e-5),
        (true, true, DType::F32, 2e-5),
        (false, false, DType::F16, 2e-2),
        (true, false, DType::BF16, 1e-1),
    ] {
        let config = config(scaled, tied);
        let (model, stock) = both(&config, dtype)?;
        let cache = cache_of(&model);
        let texts = [drawn(1, 45), drawn(2, 7), drawn(3, 90)];
        let sequences = [(); 3].map(|()| cache.add().unwrap());
        let mut cached = [0; 3];
        // Rows of different lengths in each step: parts of prompts, and single tokens.
        for lengths in [[20, 6, 60], [24, 1, 29], [1, 0, 1]] {
            let mut rows = Vec::new();
            for i in 0..3 {
                if lengths[i] > 0 {
                    rows.push((sequences[i], &texts[i][cached[i]..][..lengths[i]]));
                    cached[i] += lengths[i];
                }
            }
            let logits = step(&model, &cache, &rows)?;
            assert_eq!(logits.dims(), [rows.len(), VOCABULARY]);
            for (row, i) in (0..3).filter(|&i| lengths[i] > 0).enumerate() {
                let expected = stock_logits(&stock, &config, dtype, &texts[i][..cached[i]])?;
                let found = difference(&logits, row, &expected)?;
                assert!(found < tolerance, "{dtype:?}, sequence {i} at {}: {found}", cached[i]);
            }
        }
    }
    Ok(())
}

#[test]
fn forks_continue_as_candle_does() -> Result<()> {
    let config = config(false, true);
    let (model, stock) = both(&config, DType::F32)?;
    let cache = cache_of(&model);
    let prompt = drawn(5, 37);
    let parent = cache.add().unwrap();
    step(&model, &cache, &[(parent, &prompt)])?;
    let forks = cache.fork(&[parent; 2], Stream::NONE).unwrap();
    let ends = [drawn(6, 3), drawn(7, 5)];
    let logits = step(&model, &cache, &[(forks[0], &ends[0]), (forks[1], &ends[1])])?;
    for (row, end) in ends.iter().enumerate() {
        let expected = stock_logits(&stock, &config, DType::F32, &[&prompt[..], end].concat())?;
        let found = difference(&logits, row, &expected)?;
        assert!(found < 2e-5, "fork {row}: {found}");
    }
    Ok(())
}

#[test]
fn what_is_refused() -> Result<()> {
    let mut wrong = config(false, false);
    let weights = weights(&wrong)?;
    let load = |config: &Config, dtype| {
        let vb = VarBuilder::from_tensors(weights.clone(), dtype, &Device::Cpu);
        Llama::load(vb, config).map(|_| ()).unwrap_err().to_string()
    };
    assert!(load(&wrong, DType::F64).contains("F64"));
    wrong.num_attention_heads = 5;
    assert!(load(&wrong, DType::F32).contains("hidden_size is 64, not a multiple of 5"));
    wrong = config(false, false);
    wrong.num_hidden_layers = 4;
    assert!(load(&wrong, DType::F32).contains("model.layers.3"));

    let (model, _) = both(&config(false, false), DType::F32)?;
    let cache = cache_of(&model);
    let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[3]), Stream::NONE).unwrap();
    let error = model.forward(&step, &[1, 2]).unwrap_err().to_string();
    assert!(error.contains("2") && error.contains("3"), "{error}");
    assert!(model.forward(&step, &[1, 2, VOCABULARY as u32]).is_err());
    assert!(model.forward(&step, &[1, 2, 3]).is_ok());
    Ok(())
}
