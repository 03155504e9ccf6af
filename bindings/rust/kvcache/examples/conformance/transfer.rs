//! Tensors by name, exports, imports.
use crate::script::{Done, Script, Stop};
use crate::steps::outputs;
use crate::value::Buffer;
use crate::{list, Results};
use kvcache::*;

pub fn run(s: &mut Script, name: &str) -> Option<Done<Results>> {
    let done = match name {
        "tensor" => keep_tensor(s),
        "show" => show(s),
        "merge_states" => merge(s),
        "export" => export(s),
        "import" => import(s),
        "export_pool" => export_pool(s),
        "take_copies" => take_copies(s),
        _ => return None,
    };
    Some(done)
}

fn keep_tensor(s: &mut Script) -> Done<Results> {
    let (name, buffer) = (s.word("name").ok_or(Stop::Skip)?.to_string(), s.needed("value")?);
    s.tensors.insert(name, buffer);
    Ok(vec![])
}

fn show(s: &Script) -> Done<Results> {
    let buffer = s.word("name").and_then(|name| s.tensors.get(name)).ok_or(Stop::Skip)?;
    Ok(vec![("value", if s.has("hash") { buffer.hash() } else { buffer.hex() })])
}

fn merge(s: &mut Script) -> Done<Results> {
    let (outs, lses) = (s.tensors_of("outs")?, s.tensors_of("lses")?);
    if outs.len() != lses.len() {
        return Err(Stop::Skip);
    }
    let (mut out, mut lse) = (s.output("out")?.ok_or(Stop::Skip)?, s.output("lse")?);
    let mut parts = vec![];
    for pair in outs.iter().zip(&lses) {
        let (Some(out), Some(lse)) = pair else { return Err(Stop::Skip) };
        parts.push((out.view()?, lse.view()?));
    }
    let mut lse_view = lse.as_mut().map(Buffer::view_mut).transpose()?;
    merge_states(s.context()?, &parts, &mut out.view_mut()?, lse_view.as_mut(), Stream::NONE)?;
    Ok(outputs(s, out, lse))
}

fn export(s: &mut Script) -> Done<Results> {
    let (begin, end) = (s.number::<usize>("begin")?, s.number("end")?);
    let (cache, sequence, layer) = (s.cache()?, s.sequence()?, s.number("layer")?);
    let scales = s.has("scales");
    let wanted = ExportParts { k: true, v: true, k_scale: scales, v_scale: scales };
    let made = match end {
        0 => cache.export_parts(sequence, layer, begin.., wanted, Stream::NONE)?,
        end => cache.export_parts(sequence, layer, begin..end, wanted, Stream::NONE)?,
    };
    let parts = [("k", made.k), ("v", made.v), ("k_scale", made.k_scale), ("v_scale", made.v_scale)];
    let mut results = vec![];
    for (name, part) in parts {
        let Some(part) = part else { continue };
        let buffer = Buffer::exported(&part).ok_or(Stop::Failed("a dtype without a name".into()))?;
        results.push((name, if s.has("hex") { buffer.hex() } else { buffer.hash() }));
        if let Some(as_name) = s.word(name).map(str::to_string) {
            s.tensors.insert(as_name, buffer);
        }
    }
    Ok(results)
}

fn import(s: &Script) -> Done<Results> {
    let mut arrays = vec![];
    for key in ["k", "v", "k_scale", "v_scale"] {
        arrays.push(s.tensors_of(key)?);
    }
    let mut views = vec![];
    for array in &arrays {
        let view = array.iter().map(|buffer| buffer.as_ref().map(Buffer::view).transpose());
        views.push(view.collect::<kvcache::Result<Vec<_>>>()?);
    }
    let [k, v, k_scale, v_scale] = [&views[0], &views[1], &views[2], &views[3]].map(Vec::as_slice);
    let import = Import { k, v, k_scale, v_scale, as_stored: s.has("as_stored") };
    s.cache()?.import(s.sequence()?, &import, Stream::NONE)?;
    Ok(vec![])
}

fn export_pool(s: &Script) -> Done<Results> {
    let pool = match s.word("pool") {
        Some("kv") => Pool::Kv,
        Some("k") => Pool::K,
        Some("v") => Pool::V,
        Some("k_scale") => Pool::KScale,
        Some("v_scale") => Pool::VScale,
        _ => return Err(Stop::Skip),
    };
    let (cache, layer) = (s.cache()?, s.number("layer")?);
    let view = match s.has("writable") {
        true => cache.export_pool_writable(layer, pool, Stream::NONE)?,
        false => cache.export_pool(layer, pool, Stream::NONE)?,
    };
    let buffer = Buffer::pool(&view).ok_or(Stop::Failed("a dtype without a name".into()))?;
    Ok(vec![("pool", buffer.hash()), ("readonly", u8::from(view.is_read_only()).to_string())])
}

fn take_copies(s: &Script) -> Done<Results> {
    let copies = s.cache()?.take_copies()?;
    let numbers = copies.iter().flat_map(|copy| [copy.group, copy.source_slot, copy.target_slot, copy.count]);
    Ok(vec![("copies", list(numbers))])
}
