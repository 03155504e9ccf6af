//! Library, contexts, configuration.
use crate::script::{Done, Script, Stop};
use crate::stateless::key;
use crate::value::{dtype, Buffer};
use crate::Results;
use kvcache::*;
use std::collections::HashMap;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "version" => Ok(vec![("version", version().to_string())]),
        "context_create" => context_create(s),
        "context_describe" => s.context().and_then(|context| Ok(context.describe()?)).map(|_| vec![]),
        "context_check" => s.context().and_then(|context| Ok(context.check()?)).map(|_| vec![]),
        "context_close" => s.number("context").map(|number| s.contexts.remove(&number)).map(|_| vec![]),
        "group" => group(s),
        "layer" => layer(s),
        "state" => state(s),
        "estimate" => estimate(s),
        "cache_create" => cache_create(s),
        _ => return None,
    };
    Some(done)
}

fn context_create(s: &mut Script) -> Done<Results> {
    let mut config = ContextConfig::new().threads(s.number("threads")?);
    if let Some(simd) = s.word("simd") {
        config = config.simd(simd);
    }
    assert!(build_info().contains(version()));
    let context = Context::new(config)?;
    s.contexts.insert(s.number("context")?, context);
    Ok(vec![])
}

fn group(s: &mut Script) -> Done<Results> {
    let row = match s.word("row") {
        None | Some("kv") => Row::KeyValue,
        Some("latent") => Row::Latent,
        Some("state") => Row::State,
        other => return Err(Stop::Failed(format!("no row {other:?}"))),
    };
    let visibility = match s.word("visibility") {
        None | Some("all") => Visibility::All,
        Some("window") => Visibility::Window(s.number("window")?),
        Some("chunk") => Visibility::Chunk(s.number("chunk")?),
        Some("encoder") => Visibility::Encoder,
        other => return Err(Stop::Failed(format!("no visibility {other:?}"))),
    };
    s.groups.push(Group { row, visibility, pages: s.number("pages")?, tokens_per_row: s.number("tokens_per_row")? });
    Ok(vec![])
}

fn layer(s: &mut Script) -> Done<Results> {
    let layer = if s.has("recurrent") {
        Layer { group: s.number("group")?, ..Layer::default() }
    } else {
        Layer {
            group: s.number("group")?,
            q_heads: s.optional("q_heads")?.unwrap_or(1),
            kv_heads: s.optional("kv_heads")?.unwrap_or(1),
            head_dim: s.number("head_dim")?,
            v_head_dim: s.number("v_head_dim")?,
            latent_dim: s.number("latent_dim")?,
            total_kv_heads: s.number("total_kv_heads")?,
            keys_only: s.has("keys_only"),
            row_format: match s.word("row_format") {
                None => RowFormat::DType,
                Some("fp8_ds_mla") => RowFormat::Fp8DsMla,
                Some("fp8_ds_v4") => RowFormat::Fp8DsV4,
                Some("mxfp4") => RowFormat::Mxfp4,
                Some("mxfp8") => RowFormat::Mxfp8,
                Some("fp8_blocks") => RowFormat::Fp8Blocks,
                Some("nvfp4") => RowFormat::Nvfp4,
                Some("nvfp4_ds_mla") => RowFormat::Nvfp4DsMla,
                other => return Err(Stop::Failed(format!("no row_format {other:?}"))),
            },
            dtype: type_of(s)?,
            rope: rope(s)?,
            kv_layer: s.optional("kv_layer")?,
            softmax_scale: s.number("softmax_scale")?,
            k_scales: s.list("k_scales")?,
            v_scales: s.list("v_scales")?,
            states: vec![],
        }
    };
    let storages = ["kv_storage", "k_storage", "v_storage"].into_iter();
    let storages = storages.filter_map(|key| Some((key.to_string(), s.word(key)?.to_string())));
    let storages = storages.collect();
    s.layers.push((layer, storages));
    Ok(vec![])
}

fn type_of(s: &Script) -> Done<DType> {
    dtype(s.word("dtype").unwrap_or("f32")).ok_or(Stop::Skip)
}

fn rope(s: &Script) -> Done<Rope> {
    let mode = match s.word("rope") {
        None => RopeMode::None,
        Some("on_append") => RopeMode::OnAppend,
        Some("on_read") => RopeMode::OnRead,
        Some(other) => return Err(Stop::Failed(format!("no rope {other}"))),
    };
    Ok(Rope {
        mode,
        dim: s.number("rope_dim")?,
        offset: s.number("rope_offset")?,
        interleaved: s.has("rope_interleaved"),
        theta: s.number("rope_theta")?,
        scaling: scaling(s)?,
    })
}

fn scaling(s: &Script) -> Done<Option<RopeScaling>> {
    let (factor, original_max_position) = (s.number("factor")?, s.number("original")?);
    let attention_factor = s.number("attention_factor")?;
    Ok(Some(match s.word("scaling") {
        None => return Ok(None),
        Some("linear") => RopeScaling::Linear { factor },
        Some("llama3") => RopeScaling::Llama3 {
            factor,
            low_freq_factor: s.number("low_freq")?,
            high_freq_factor: s.number("high_freq")?,
            original_max_position,
        },
        Some("yarn") => RopeScaling::Yarn(Yarn {
            factor,
            original_max_position,
            beta_fast: s.number("beta_fast")?,
            beta_slow: s.number("beta_slow")?,
            attention_factor,
            ..Yarn::default()
        }),
        Some("longrope") => RopeScaling::LongRope(LongRope {
            factor,
            original_max_position,
            attention_factor,
            short_factors: s.list("short")?,
            long_factors: s.list("long")?,
        }),
        Some(other) => return Err(Stop::Failed(format!("no scaling {other}"))),
    }))
}

fn state(s: &mut Script) -> Done<Results> {
    let state = State { dtype: type_of(s)?, shape: s.list("shape")?, fill: s.number("fill")? };
    s.layers.last_mut().ok_or(Stop::Skip)?.0.states.push(state);
    Ok(vec![])
}

fn config(s: &Script) -> Done<CacheConfig> {
    let sizes = ["capacity_tokens", "capacity_pages", "capacity_bytes"];
    let capacity = match sizes.map(|size| s.has(size)) {
        [false, false, false] => Capacity::Groups,
        [true, false, false] => Capacity::Tokens(s.number(sizes[0])?),
        [false, true, false] => Capacity::Pages(s.number(sizes[1])?),
        [false, false, true] => Capacity::Bytes(s.number(sizes[2])?),
        _ => return Err(Stop::Skip),
    };
    Ok(CacheConfig {
        layers: s.layers.iter().map(|layer| layer.0.clone()).collect(),
        groups: s.groups.clone(),
        capacity,
        page_size: s.number("page_size")?,
        max_sequences: s.number("max_sequences")?,
        max_batch_tokens: s.number("max_batch_tokens")?,
        max_open_steps: s.number("max_open_forwards")?,
        rollback_tokens: s.optional("rollback_tokens")?,
        max_tree_nodes: s.number("max_tree_nodes")?,
        max_checkpoints: s.number("max_checkpoints")?,
        max_draft_states: s.number("max_draft_states")?,
        tp_size: s.number("tp_size")?,
        tp_rank: s.number("tp_rank")?,
        streaming: s.has("streaming"),
        prefix_sharing: match s.word("sharing") {
            Some("never") => PrefixSharing::Never,
            Some("always") => PrefixSharing::Always,
            _ => PrefixSharing::Auto,
        },
        deterministic: s.has("deterministic"),
        prefix_index: s.has("prefix_index"),
        prefix_pages: s.number("prefix_pages")?,
        prefix_checkpoints: s.number("prefix_checkpoints")?,
        prefix_policy: if s.word("prefix_policy") == Some("lru") { PrefixPolicy::Lru } else { PrefixPolicy::Reuse },
        zero_on_free: s.has("zero_on_free"),
        fingerprint: key(s, "fingerprint")?,
        events_capacity: s.number("events_capacity")?,
        events_tier_pages: s.number("events_tier_pages")?,
        storage: if s.word("storage") == Some("none") { Storage::None } else { Storage::Own },
    })
}

fn estimate(s: &Script) -> Done<Results> {
    let estimate = Cache::estimate(s.context()?, &config(s)?, s.group()?)?;
    Ok(vec![
        ("num_pages", estimate.num_pages.to_string()),
        ("page_bytes", estimate.page_bytes.to_string()),
        ("token_bytes", estimate.token_bytes.to_string()),
        ("storage_bytes", estimate.storage_bytes.to_string()),
    ])
}

fn cache_create(s: &mut Script) -> Done<Results> {
    let made = create(s);
    s.layers.clear();
    s.groups.clear();
    s.caches.insert(s.number("cache")?, made?);
    Ok(vec![])
}

fn create(s: &Script) -> Done<Cache> {
    let (config, context) = (config(s)?, s.context()?);
    let mut pools = vec![];
    for (layer, (_, storages)) in s.layers.iter().enumerate() {
        if !storages.is_empty() {
            pools.push((layer, pools_of(s, storages)?));
        }
    }
    Ok(Cache::with_pools(context, &config, pools)?)
}

fn pools_of(s: &Script, storages: &HashMap<String, String>) -> Done<Pools> {
    let adopt = |form: &String| -> Done<ManagedTensor> {
        let buffer: Buffer = s.parse(form)?.ok_or(Stop::Skip)?;
        Ok(buffer.adopted()?)
    };
    let of = |key: &str| storages.get(key).map(adopt).transpose();
    match (of("kv_storage")?, of("k_storage")?, of("v_storage")?) {
        (Some(kv), None, None) => Ok(Pools::Kv(kv)),
        (None, Some(k), Some(v)) => Ok(Pools::Separate { k, v }),
        (None, Some(rows), None) => Ok(Pools::Latent(rows)),
        _ => Err(Stop::Skip),
    }
}
