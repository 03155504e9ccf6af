//! Calls without a cache, and plans.
use crate::script::{Done, Script, Stop};
use crate::steps::{arrays, outputs, part, table_results};
use crate::value::Buffer;
use crate::Results;
use kvcache::*;
use std::collections::HashMap;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "flash_attn" => flash_attn(s),
        "append_slots" => append(s),
        "page_keys" => keys(s),
        "plan_create" => plan_create(s),
        "plan_build" => plan_build(s),
        "plan_tables" => plan_tables(s),
        "plan_check" => plan(s).and_then(|plan| Ok(plan.check(s.number("generation")?)?)).map(|()| vec![]),
        "plan_close" => s.number("plan").map(|number| s.plans.remove(&number)).map(|_| vec![]),
        _ => return None,
    };
    Some(done)
}

/// The tensors that a line names.
struct Inputs(HashMap<&'static str, Buffer>);

impl Inputs {
    fn read(s: &Script, keys: &[&'static str]) -> Done<Self> {
        let mut inputs = HashMap::new();
        for key in keys {
            inputs.extend(s.tensor(key)?.map(|buffer| (*key, buffer)));
        }
        Ok(Self(inputs))
    }

    fn get(&self, key: &str) -> Done<Option<Tensor<'_>>> {
        Ok(self.0.get(key).map(Buffer::view).transpose()?)
    }

    fn needed(&self, key: &str) -> Done<Tensor<'_>> {
        self.get(key)?.ok_or(Stop::Skip)
    }

    fn rotary(&self) -> Done<Option<(Tensor<'_>, Tensor<'_>)>> {
        match (self.get("rotary_cos")?, self.get("rotary_sin")?) {
            (Some(cos), Some(sin)) => Ok(Some((cos, sin))),
            (None, None) => Ok(None),
            _ => Err(Stop::Skip),
        }
    }
}

fn flash_attn(s: &mut Script) -> Done<Results> {
    const KEYS: [&str; 22] = [
        "q",
        "k_cache",
        "v_cache",
        "k",
        "v",
        "qv",
        "cache_seqlens",
        "seqused_k",
        "cache_batch_idx",
        "cache_leftpad",
        "block_table",
        "cu_seqlens_q",
        "cu_seqlens_k_new",
        "rotary_cos",
        "rotary_sin",
        "rotary_seqlens",
        "q_descale",
        "k_descale",
        "v_descale",
        "alibi",
        "sinks",
        "indices",
    ];
    let given = Inputs::read(s, &KEYS)?;
    let (mut out, mut lse) = (s.output("out")?.ok_or(Stop::Skip)?, s.output("lse")?);
    let (mut k_cache, mut v_cache) = (s.output("k_cache")?, s.output("v_cache")?);
    let cache = match (given.get("k")?, given.get("v")?) {
        (Some(new_k), Some(new_v)) => FlashCache::Append {
            k: k_cache.as_mut().ok_or(Stop::Skip)?.view_mut()?,
            v: v_cache.as_mut().ok_or(Stop::Skip)?.view_mut()?,
            new_k,
            new_v,
        },
        (None, None) => FlashCache::Stored { k: given.needed("k_cache")?, v: given.needed("v_cache")? },
        _ => return Err(Stop::Skip),
    };
    let call = FlashAttn {
        q: given.needed("q")?,
        cache,
        out: out.view_mut()?,
        softmax_lse: lse.as_mut().map(Buffer::view_mut).transpose()?,
        qv: given.get("qv")?,
        cache_seqlens: match (given.get("cache_seqlens")?, given.get("seqused_k")?) {
            (Some(_), Some(_)) => return Err(Stop::Skip), // one name for both here
            (first, second) => first.or(second),
        },
        cache_batch_idx: given.get("cache_batch_idx")?,
        cache_leftpad: given.get("cache_leftpad")?,
        block_table: given.get("block_table")?,
        cu_seqlens_q: given.get("cu_seqlens_q")?,
        cu_seqlens_k_new: given.get("cu_seqlens_k_new")?,
        rotary: given.rotary()?,
        rotary_interleaved: s.has("rotary_interleaved"),
        rotary_seqlens: given.get("rotary_seqlens")?,
        q_descale: given.get("q_descale")?,
        k_descale: given.get("k_descale")?,
        v_descale: given.get("v_descale")?,
        alibi_slopes: given.get("alibi")?,
        alibi_signed: s.has("alibi_signed"),
        sinks: given.get("sinks")?,
        indices: given.get("indices")?,
        softmax_scale: s.number("softmax_scale")?,
        softcap: s.number("softcap")?,
        causal: s.has("causal"),
        window_left: s.optional("window_left")?,
        window_right: s.optional("window_right")?,
        attention_chunk: s.number("chunk")?,
        num_splits: s.number("num_splits")?,
    };
    flash_attn_with_kvcache(s.context()?, &call, Stream::NONE)?;
    s.keep("k_cache", k_cache.as_ref());
    s.keep("v_cache", v_cache.as_ref());
    Ok(outputs(s, out, lse))
}

fn append(s: &mut Script) -> Done<Results> {
    let keys = ["k", "v", "slots", "k_scale", "v_scale", "rotary_cos", "rotary_sin", "positions"];
    let given = Inputs::read(s, &keys)?;
    let (mut k_cache, mut v_cache) = (s.output("k_cache")?.ok_or(Stop::Skip)?, s.output("v_cache")?);
    let interleaved = s.has("rotary_interleaved");
    let rotary = match (given.rotary()?, given.get("positions")?) {
        (Some((cos, sin)), Some(positions)) => Some(Rotary { cos, sin, positions, interleaved }),
        (None, None) => None,
        _ => return Err(Stop::Skip),
    };
    let call = AppendSlots {
        k: given.needed("k")?,
        v: given.needed("v")?,
        k_cache: k_cache.view_mut()?,
        v_cache: v_cache.as_mut().map(Buffer::view_mut).transpose()?,
        slot_mapping: given.needed("slots")?,
        k_scale: given.get("k_scale")?,
        v_scale: given.get("v_scale")?,
        rotary,
    };
    append_slots(s.context()?, &call, Stream::NONE)?;
    s.keep("k_cache", Some(&k_cache));
    s.keep("v_cache", v_cache.as_ref());
    Ok(vec![])
}

pub fn bytes(s: &Script, key: &str) -> Done<Vec<u8>> {
    let digits = s.word(key).unwrap_or_default();
    let pairs = (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16));
    pairs.map(|byte| byte.map_err(|_| Stop::Skip)).collect()
}

pub fn key(s: &Script, name: &str) -> Done<Option<PageKey>> {
    Ok(if s.has(name) { Some(bytes(s, name)?.try_into().map_err(|_| Stop::Skip)?) } else { None })
}

pub fn media(s: &Script) -> Done<Vec<MediaSpan>> {
    let (begins, lengths): (Vec<usize>, Vec<usize>) = (s.list("media_begins")?, s.list("media_tokens")?);
    let hashes = bytes(s, "media_hashes")?;
    let hashes = hashes.chunks_exact(32).map(|hash| hash.try_into().unwrap_or_default());
    let spans = begins.into_iter().zip(lengths).zip(hashes);
    Ok(spans.map(|((begin, tokens), hash)| MediaSpan { begin, tokens, hash }).collect())
}

fn keys(s: &Script) -> Done<Results> {
    let media = media(s)?;
    let (tokens, fingerprint, parent) = (s.list("tokens")?, key(s, "fingerprint")?, key(s, "parent")?);
    let found = page_keys(&PageKeys {
        tokens: &tokens,
        page_size: s.number("page_size")?,
        fingerprint: fingerprint.as_ref(),
        adapter: &bytes(s, "adapter")?,
        salt: &bytes(s, "salt")?,
        salt_begin: s.number("salt_begin")?,
        parent: parent.as_ref(),
        begin: s.number("begin")?,
        media: &media,
    })?;
    Ok(vec![("keys", found.concat().iter().map(|byte| format!("{byte:02x}")).collect())])
}

fn plan(s: &Script) -> Done<&Plan> {
    s.plans.get(&s.number("plan")?).ok_or(Stop::Skip)
}

fn plan_create(s: &mut Script) -> Done<Results> {
    let mode = match s.word("mode") {
        Some("decode") => PlanMode::Decode,
        Some("extend") => PlanMode::Extend,
        Some("verify") => PlanMode::Verify { num_draft_tokens: s.number("num_draft_tokens")? },
        Some("draft_decode") => PlanMode::DraftDecode { num_steps: s.number("num_steps")?, top_k: s.number("top_k")? },
        _ => return Err(Stop::Skip),
    };
    let (verify, draft) = (s.word("mode") == Some("verify"), s.word("mode") == Some("draft_decode"));
    if (!verify && s.has("num_draft_tokens")) || (!draft && (s.has("num_steps") || s.has("top_k"))) {
        return Err(Stop::Skip); // a mode has its own numbers
    }
    let graph = GraphCapacity {
        max_rows: s.number("max_rows")?,
        max_tokens: s.number("max_tokens")?,
        max_pages_per_row: s.number("max_pages_per_row")?,
    };
    if !s.has("graph") && graph != GraphCapacity::default() {
        return Err(Stop::Skip);
    }
    let config = PlanConfig {
        mode,
        page_size: s.number("page_size")?,
        slots: s.has("slots"),
        pad_value: s.optional("pad")?,
        lengths_with_new: s.has("lengths_with_new"),
        arrays: arrays(s),
        graph: s.has("graph").then_some(graph),
        window: s.number("window")?,
        chunk: s.number("chunk")?,
        num_pool_pages: s.number("num_pool_pages")?,
    };
    let plan = Plan::new(s.context()?, &config)?;
    s.plans.insert(s.number("plan")?, plan);
    Ok(vec![])
}

fn plan_build(s: &mut Script) -> Done<Results> {
    let keys = ["seq_lens", "append_lengths", "rows", "block_table", "req_to_token", "encoder_lens", "tree_parents"];
    let given = Inputs::read(s, &keys)?;
    let step = PlanStep {
        seq_lens: given.needed("seq_lens")?,
        table: match (given.get("block_table")?, given.get("req_to_token")?) {
            (Some(pages), None) => PlanTable::Pages(pages),
            (None, Some(slots)) => PlanTable::Slots(slots),
            _ => return Err(Stop::Skip),
        },
        append_lengths: given.get("append_lengths")?,
        rows: given.get("rows")?,
        encoder_lens: given.get("encoder_lens")?,
        tree_parents: given.get("tree_parents")?,
        rows_grew: s.has("rows_grew"),
    };
    let number = s.number("plan")?;
    let plan: &mut Plan = s.plans.get_mut(&number).ok_or(Stop::Skip)?;
    Ok(vec![("generation", plan.build(&step, Stream::NONE)?.to_string())])
}

fn plan_tables(s: &Script) -> Done<Results> {
    let tables = plan(s)?.tables(s.number("step")?, part(s)?)?;
    let mut results = table_results(&tables)?;
    results.push(("generation", tables.generation.to_string()));
    Ok(results)
}
