//! Steps and their tables.
use crate::script::{Done, Script, Stop};
use crate::value::Buffer;
use crate::{list, Results};
use kvcache::*;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "can_fit" => batch(s).and_then(|batch| Ok(s.cache()?.can_fit(&batch)?)).map(|()| vec![]),
        "begin" => begin(s),
        "graph_create" => graph_create(s),
        "graph_close" => s.graph().and_then(|graph| Ok(graph.close()?)).map(|()| vec![]),
        "info" => info(s),
        "describe" => s.step().and_then(|step| Ok(step.describe()?)).map(|_| vec![]),
        "append" => append(s),
        "attend" => attend(s),
        "select" => select(s),
        "load_state" => load_state(s),
        "store_state" => store_state(s),
        "tables" => step_tables(s),
        "cancel" => s.step().and_then(|step| Ok(step.canceller().cancel()?)).map(|()| vec![]),
        "end" => end(s),
        "abort" => abort(s),
        _ => return None,
    };
    Some(done)
}

fn batch(s: &Script) -> Done<Batch> {
    let mut batch = Batch::new(&s.sequences("seqs")?, &s.list::<usize>("tokens")?);
    if s.has("layers") {
        let layers: Vec<usize> = s.list("layers")?;
        batch = batch.layers(layers[0]..layers[1]);
    }
    if s.has("parents") {
        batch = batch.tree_parents(&s.list::<i32>("parents")?);
    }
    if s.has("spans") {
        batch = batch.span_ids(&s.list::<i32>("spans")?);
    }
    if let Some(group) = s.optional("encoder_group")? {
        batch = batch.encoder_group(group);
    }
    if s.has("graph") {
        batch = batch.graph(s.graph()?);
    }
    Ok(batch)
}

fn begin(s: &mut Script) -> Done<Results> {
    let step = s.cache()?.begin(&batch(s)?, Stream::NONE)?;
    let number = s.number("step")?;
    s.replays.remove(&number);
    s.replays.extend(step.graph().map(|graph| (number, graph.clone())));
    s.steps.insert(number, step);
    Ok(vec![])
}

fn graph_create(s: &mut Script) -> Done<Results> {
    let config = GraphConfig {
        max_sequences: s.number("max_sequences")?,
        max_tokens: s.number("max_tokens")?,
        max_pages_per_row: s.number("max_pages_per_row")?,
    };
    let graph = Graph::new(s.cache()?, &config)?;
    s.graphs.insert(s.number("graph")?, graph);
    Ok(vec![])
}

fn info(s: &Script) -> Done<Results> {
    let step = s.step()?;
    Ok(vec![("positions", list(step.positions()?)), ("last_rows", list(step.last_rows()?))])
}

fn view(buffer: &Option<Buffer>) -> Done<Option<Tensor<'_>>> {
    Ok(buffer.as_ref().map(Buffer::view).transpose()?)
}

fn append(s: &Script) -> Done<Results> {
    let (k, v, rope) = (s.needed("k")?, s.tensor("v")?, s.tensor("rope_cos_sin")?);
    let (k_scale, v_scale) = (s.tensor("k_scale")?, s.tensor("v_scale")?);
    let append = Append {
        k: k.view()?,
        v: view(&v)?,
        rope_cos_sin: view(&rope)?,
        k_scale: view(&k_scale)?,
        v_scale: view(&v_scale)?,
        as_stored: s.has("as_stored"),
    };
    let layer = s.number("layer")?;
    match s.replay()? {
        Some(graph) => graph.append(layer, &append)?,
        None => s.step()?.append(layer, &append)?,
    }
    Ok(vec![])
}

fn attend(s: &mut Script) -> Done<Results> {
    let (q, k, v) = (s.needed("q")?, s.tensor("k")?, s.tensor("v")?);
    let (mut out, mut lse) = (s.output("out")?.ok_or(Stop::Skip)?, s.output("lse")?);
    let (alibi, sinks, rope) = (s.tensor("alibi")?, s.tensor("sinks")?, s.tensor("rope_cos_sin")?);
    let (w_uk, w_uv, indices) = (s.tensor("w_uk")?, s.tensor("w_uv")?, s.tensor("indices")?);
    let (rel_bias, key_bias, mask) = (s.tensor("rel_bias")?, s.tensor("key_bias")?, s.tensor("mask")?);
    let attend = Attend {
        q: q.view()?,
        k: view(&k)?,
        v: view(&v)?,
        out: out.view_mut()?,
        lse: lse.as_mut().map(Buffer::view_mut).transpose()?,
        softmax_scale: s.number("softmax_scale")?,
        softcap: s.number("softcap")?,
        alibi_slopes: view(&alibi)?,
        alibi_signed: s.has("alibi_signed"),
        sinks: view(&sinks)?,
        rope_cos_sin: view(&rope)?,
        w_uk: view(&w_uk)?,
        w_uv: view(&w_uv)?,
        indices: view(&indices)?,
        index_block: s.number("index_block")?,
        rel_bias: view(&rel_bias)?,
        rel_bias_zero: s.has("rel_bias_zero"),
        key_bias: view(&key_bias)?,
        mask: view(&mask)?,
        no_spans: s.has("no_spans"),
        step_window: s.has("step_window"),
        non_causal: s.has("non_causal"),
        keys: match s.word("part") {
            None => Keys::All,
            Some("past") => Keys::Past,
            Some("self") => Keys::New,
            _ => return Err(Stop::Skip),
        },
    };
    let layer = s.number("layer")?;
    match s.replay()? {
        Some(graph) => graph.attend(layer, &attend)?,
        None => s.step()?.attend(layer, &attend)?,
    }
    Ok(outputs(s, out, lse))
}

fn select(s: &mut Script) -> Done<Results> {
    let (q, weights, candidates, rope) =
        (s.needed("q")?, s.tensor("weights")?, s.tensor("candidates")?, s.tensor("rope_cos_sin")?);
    let mut out = s.output("out")?.ok_or(Stop::Skip)?;
    let select = Select {
        q: q.view()?,
        weights: view(&weights)?,
        indices: out.view_mut()?,
        candidates: view(&candidates)?,
        rope_cos_sin: view(&rope)?,
        each_head: s.has("each_head"),
        index_block: s.number("index_block")?,
        candidate_block: s.number("candidate_block")?,
        first_blocks: s.number("first_blocks")?,
        last_blocks: s.number("last_blocks")?,
    };
    let layer = s.number("layer")?;
    match s.replay()? {
        Some(graph) => graph.select(layer, &select)?,
        None => s.step()?.select(layer, &select)?,
    }
    Ok(outputs(s, out, None))
}

/// What a call wrote.
pub fn outputs(s: &mut Script, out: Buffer, lse: Option<Buffer>) -> Results {
    s.keep("out", Some(&out));
    s.keep("lse", lse.as_ref());
    let mut results = vec![("out", out.hex())];
    results.extend(lse.map(|lse| ("lse", lse.hex())));
    results
}

fn load_state(s: &mut Script) -> Done<Results> {
    let mut out = s.output("out")?.ok_or(Stop::Skip)?;
    let (layer, state) = (s.number("layer")?, s.number("state")?);
    let view = &mut out.view_mut()?;
    match (s.replay()?, s.optional("token")?) {
        (Some(graph), None) => graph.load_state(layer, state, view)?,
        (Some(graph), Some(token)) => graph.load_state_before(layer, state, token, view)?,
        (None, None) => s.step()?.load_state(layer, state, view)?,
        (None, Some(token)) => s.step()?.load_state_before(layer, state, token, view)?,
    }
    Ok(outputs(s, out, None))
}

fn store_state(s: &Script) -> Done<Results> {
    let (layer, state, value) = (s.number("layer")?, s.number("state")?, s.needed("value")?);
    let view = &value.view()?;
    match (s.replay()?, s.optional("token")?) {
        (Some(graph), None) => graph.store_state(layer, state, view)?,
        (Some(graph), Some(token)) => graph.store_state_after(layer, state, token, view)?,
        (None, None) => s.step()?.store_state(layer, state, view)?,
        (None, Some(token)) => s.step()?.store_state_after(layer, state, token, view)?,
    }
    Ok(vec![])
}

fn end(s: &mut Script) -> Done<Results> {
    let number = s.number("step")?;
    let step = s.steps.remove(&number).ok_or(Stop::Skip)?;
    if let Err(error) = step.end() {
        s.ended.push(number);
        return Err(error.into());
    }
    Ok(vec![])
}

fn abort(s: &mut Script) -> Done<Results> {
    let number = s.number("step")?;
    if let Some(at) = s.ended.iter().position(|ended| *ended == number) {
        s.ended.remove(at); // a failed end consumed it
        return Ok(vec![]);
    }
    s.steps.remove(&number).ok_or(Stop::Skip)?.abort()?;
    Ok(vec![])
}

fn step_tables(s: &mut Script) -> Done<Results> {
    let (number, group) = (s.number("step")?, s.number("group")?);
    let (slots, pad_value) = (s.has("slots"), s.optional("pad")?);
    let options = TablesOptions { part: part(s)?, slots, pad_value, arrays: arrays(s) };
    let step: &mut Step = s.steps.get_mut(&number).ok_or(Stop::Skip)?;
    step.release_tables();
    let tables = step.tables(group, options)?;
    table_results(&tables)
}

pub fn part(s: &Script) -> Done<Part> {
    match s.word("part") {
        None | Some("whole") => Ok(Part::Whole),
        Some("prefix") => Ok(Part::Prefix),
        Some("branches") => Ok(Part::Branches),
        Some("encoder") => Ok(Part::Encoder),
        _ => Err(Stop::Skip),
    }
}

pub fn arrays(s: &Script) -> Arrays {
    s.word("arrays").map_or(Arrays::default(), |words| {
        let has = |array| words.split(',').any(|word| word == array);
        Arrays { dense: has("dense"), csr: has("csr"), tokens: has("tokens") }
    })
}

pub fn table_results(tables: &Tables<'_>) -> Done<Results> {
    let mut results = vec![
        ("causal", i32::from(tables.causal).to_string()),
        ("num_rows", tables.num_rows.to_string()),
        ("num_queries", tables.num_queries.to_string()),
        ("page_size", tables.page_size.to_string()),
        ("max_seqlen_q", tables.max_seqlen_q.to_string()),
        ("max_seqlen_k", tables.max_seqlen_k.to_string()),
        ("max_pages", tables.max_pages.to_string()),
        ("num_pages", tables.num_pages.to_string()),
        ("num_keys", tables.num_keys.to_string()),
    ];
    if let Some(table) = tables.block_table {
        let mut rows: Vec<i32> = vec![];
        for row in 0..table.shape()[0] {
            rows.extend(table.row(row)?.as_slice::<i32>()?);
        }
        results.push(("block_table", list(rows)));
    }
    let arrays = [
        ("cache_seqlens", Some(tables.cache_seqlens)),
        ("cu_seqlens_q", Some(tables.cu_seqlens_q)),
        ("cu_seqlens_k", Some(tables.cu_seqlens_k)),
        ("indptr", tables.indptr),
        ("indices", tables.indices),
        ("last_page_len", tables.last_page_len),
        ("key_starts", Some(tables.key_starts)),
        ("leftpad", Some(tables.leftpad)),
        ("batch_rows", Some(tables.batch_rows)),
        ("sink_tokens", tables.sink_tokens),
        ("hole_tokens", tables.hole_tokens),
        ("positions", tables.positions),
        ("last_rows", tables.last_rows),
    ];
    for (name, array) in arrays {
        if let Some(array) = array {
            results.push((name, list(array.as_slice::<i32>()?)));
        }
    }
    if let Some(slots) = tables.slot_mapping {
        results.push(("slot_mapping", list(slots.as_slice::<i64>()?)));
    }
    Ok(results)
}
