//! Attention over a cache of the caller's own: no [`crate::Cache`], only a context.
use crate::cache::Stream;
use crate::config::narrow;
use crate::context::Context;
use crate::error::{check, Result};
use crate::sys;
use crate::tensor::{pointer, Tensor, TensorMut};

/// One call of [`flash_attn_with_kvcache`]. Set fields after `new` or `append`, or by
/// `FlashAttn { causal: true, ..FlashAttn::new(q, k_cache, v_cache, out) }`.
///
/// B is the number of rows (sequences), Sq and Sn are queries and new tokens of a row, Tq and Tn those of all rows.
/// Index tensors are i32 or i64 with any stride; with stride 0 one value serves all rows.
#[derive(Debug)]
pub struct FlashAttn<'a> {
    /// `[B, Sq, q heads, head dim]`, or with `cu_seqlens_q` `[>= Tq, q heads, head dim]`: f32, f16, bf16, or float8
    pub q: Tensor<'a>,
    pub cache: FlashCache<'a>,
    /// As `q`, with v's dims: f32, f16 or bf16
    pub out: TensorMut<'a>,
    /// `[B, q heads, Sq]`, or with `cu_seqlens_q` `[q heads, >= Tq]` f32: log-sum-exp of the scores.
    pub softmax_lse: Option<TensorMut<'a>>,
    /// As `q`, with v's dims: scores are q.k + qv.v (absorbed latent attention).
    pub qv: Option<Tensor<'a>>,
    /// `[B]`, or without dimensions: tokens in each row's cache, without the new ones. `None`: the cache is full.
    pub cache_seqlens: Option<Tensor<'a>>,
    /// `[B]`: the row of the cache (or of `block_table`) that each row has; `None`: row i has row i.
    pub cache_batch_idx: Option<Tensor<'a>>,
    /// `[B]`: first valid key of each row.
    pub cache_leftpad: Option<Tensor<'a>>,
    /// `[rows, pages of a row]`: page ids in order. `None`: the cache is not paged.
    pub block_table: Option<Tensor<'a>>,
    /// `[B + 1]`: row b's queries are `[cu_seqlens_q[b], cu_seqlens_q[b + 1])`.
    pub cu_seqlens_q: Option<Tensor<'a>>,
    /// `[B + 1]`: the same of new keys.
    pub cu_seqlens_k_new: Option<Tensor<'a>>,
    /// `(cos, sin)`, each `[positions, rotary dim / 2]`; only with new keys.
    pub rotary: Option<(Tensor<'a>, Tensor<'a>)>,
    /// Rotated pairs are dims 2i and 2i+1; else i and i + rotary dim / 2.
    pub rotary_interleaved: bool,
    /// `[B]`: the positions from which queries and keys are rotated, in place of `cache_seqlens`.
    pub rotary_seqlens: Option<Tensor<'a>>,
    /// `[B, kv heads]` f32: factors of float8 values.
    pub q_descale: Option<Tensor<'a>>,
    pub k_descale: Option<Tensor<'a>>,
    pub v_descale: Option<Tensor<'a>>,
    /// `[q heads]` or `[B, q heads]` f32: slope * |p_q - p_k| is subtracted from scores.
    pub alibi_slopes: Option<Tensor<'a>>,
    /// Scores get - slope * (p_q - p_k).
    pub alibi_signed: bool,
    /// `[q heads]` f32, f16 or bf16: a logit of each head that takes part in the softmax without a value.
    pub sinks: Option<Tensor<'a>>,
    /// `[B, Sq, 1 or kv heads, entries]`, or with `cu_seqlens_q` `[>= Tq, 1 or kv heads, entries]` i32: a query attends to these
    /// slots of the cache alone, page * page size + offset; negative: padding. Without lengths, tables, windows and new keys.
    pub indices: Option<Tensor<'a>>,
    /// 0 = head dim^-0.5.
    pub softmax_scale: f64,
    /// 0 = none.
    pub softcap: f64,
    /// A query sees no later key.
    pub causal: bool,
    /// A query at p sees keys from p - `window_left` on ...
    pub window_left: Option<usize>,
    /// ... and up to p + `window_right`, included.
    pub window_right: Option<usize>,
    /// A query sees the keys of its own chunk of this many tokens; 0 = all.
    pub attention_chunk: usize,
    /// Parts into which the keys of each row are cut; 0 = the library decides.
    pub num_splits: usize,
}

/// The caller's K and V: `[pages, page size, kv heads, dims]`, or `[cache rows, capacity, kv heads, dims]` without a block
/// table. A cache in another order is a strided view.
#[allow(clippy::large_enum_variant)] // made for one call
#[derive(Debug)]
pub enum FlashCache<'a> {
    /// Read.
    Stored { k: Tensor<'a>, v: Tensor<'a> },
    /// Written: `new_k` and `new_v` (`[B, Sn, kv heads, dims]`, or `[>= Tn, kv heads, dims]`) are stored after each
    /// row's tokens, before attention is computed.
    Append { k: TensorMut<'a>, v: TensorMut<'a>, new_k: Tensor<'a>, new_v: Tensor<'a> },
}

impl<'a> FlashAttn<'a> {
    /// Attends over the tokens in the cache.
    pub fn new(q: Tensor<'a>, k_cache: Tensor<'a>, v_cache: Tensor<'a>, out: TensorMut<'a>) -> Self {
        Self::over(q, FlashCache::Stored { k: k_cache, v: v_cache }, out)
    }

    /// Stores `k` and `v` first.
    pub fn append(
        q: Tensor<'a>,
        (k_cache, v_cache): (TensorMut<'a>, TensorMut<'a>),
        (k, v): (Tensor<'a>, Tensor<'a>),
        out: TensorMut<'a>,
    ) -> Self {
        Self::over(q, FlashCache::Append { k: k_cache, v: v_cache, new_k: k, new_v: v }, out)
    }

    fn over(q: Tensor<'a>, cache: FlashCache<'a>, out: TensorMut<'a>) -> Self {
        Self {
            q,
            cache,
            out,
            softmax_lse: None,
            qv: None,
            cache_seqlens: None,
            cache_batch_idx: None,
            cache_leftpad: None,
            block_table: None,
            cu_seqlens_q: None,
            cu_seqlens_k_new: None,
            rotary: None,
            rotary_interleaved: false,
            rotary_seqlens: None,
            q_descale: None,
            k_descale: None,
            v_descale: None,
            alibi_slopes: None,
            alibi_signed: false,
            sinks: None,
            indices: None,
            softmax_scale: 0.0,
            softcap: 0.0,
            causal: false,
            window_left: None,
            window_right: None,
            attention_chunk: 0,
            num_splits: 0,
        }
    }

    fn flags(&self) -> u32 {
        let when = |condition, flag| if condition { flag } else { 0 };
        when(self.causal, sys::KVC_FLASH_ATTN_CAUSAL)
            | when(self.rotary_interleaved, sys::KVC_FLASH_ATTN_ROTARY_INTERLEAVED)
            | when(self.window_left.is_some(), sys::KVC_FLASH_ATTN_WINDOW_LEFT)
            | when(self.window_right.is_some(), sys::KVC_FLASH_ATTN_WINDOW_RIGHT)
            | when(self.alibi_signed, sys::KVC_FLASH_ATTN_ALIBI_SIGNED)
    }
}

/// Appends new K and V to the caller's cache, if they are given, and computes attention over it: the contract of
/// `flash_attn_with_kvcache` of FlashAttention 2 and 3. A decode step over a paged cache:
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// let context = Context::new(ContextConfig::new())?;
/// let (pages, page_size, heads, dim) = (4, 16, 2, 64);
/// let shape = [pages, page_size, 1, dim];
/// let (mut k_cache, mut v_cache) = (vec![0f32; pages * page_size * dim], vec![0f32; pages * page_size * dim]);
/// let (q, k, v) = (vec![0.1f32; heads * dim], vec![0.2f32; dim], vec![0.3f32; dim]);
/// let mut out = vec![0f32; heads * dim];
/// let (lengths, table) = ([0], [3, 1]); // one row, still empty, of two pages
///
/// let call = FlashAttn {
///     cache_seqlens: Some(Tensor::new(&lengths, &[1])?),
///     block_table: Some(Tensor::new(&table, &[1, 2])?),
///     causal: true,
///     ..FlashAttn::append(
///         Tensor::new(&q, &[1, 1, heads, dim])?,
///         (TensorMut::new(&mut k_cache, &shape)?, TensorMut::new(&mut v_cache, &shape)?),
///         (Tensor::new(&k, &[1, 1, 1, dim])?, Tensor::new(&v, &[1, 1, 1, dim])?),
///         TensorMut::new(&mut out, &[1, 1, heads, dim])?,
///     )
/// };
/// flash_attn_with_kvcache(&context, &call, Stream::NONE)?;
/// assert!(out.iter().all(|x| (x - 0.3).abs() < 1e-6)); // one key: its value
/// assert_eq!(v_cache[3 * page_size * dim], 0.3); // stored at the first slot of page 3
/// # Ok(())
/// # }
/// ```
pub fn flash_attn_with_kvcache(context: &Context, call: &FlashAttn<'_>, stream: Stream) -> Result<()> {
    let raw = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::raw);
    let (k_cache, v_cache, k, v) = match &call.cache {
        FlashCache::Stored { k, v } => (k.raw(), v.raw(), None, None),
        FlashCache::Append { k, v, new_k, new_v } => (k.raw(), v.raw(), Some(new_k.raw()), Some(new_v.raw())),
    };
    let (q, qv, out, lse) =
        (call.q.raw(), raw(&call.qv), call.out.raw(), call.softmax_lse.as_ref().map(TensorMut::raw));
    let (lengths, batch_idx) = (raw(&call.cache_seqlens), raw(&call.cache_batch_idx));
    let (leftpad, table) = (raw(&call.cache_leftpad), raw(&call.block_table));
    let (cu_q, cu_k) = (raw(&call.cu_seqlens_q), raw(&call.cu_seqlens_k_new));
    let (cos, sin) = call.rotary.as_ref().map(|(cos, sin)| (cos.raw(), sin.raw())).unzip();
    let rotary_seqlens = raw(&call.rotary_seqlens);
    let (q_descale, k_descale, v_descale) = (raw(&call.q_descale), raw(&call.k_descale), raw(&call.v_descale));
    let (slopes, sinks, indices) = (raw(&call.alibi_slopes), raw(&call.sinks), raw(&call.indices));
    let args = sys::kvc_flash_attn_args {
        flags: call.flags(),
        q: &q,
        k_cache: &k_cache,
        v_cache: &v_cache,
        k: pointer(&k),
        v: pointer(&v),
        qv: pointer(&qv),
        out: &out,
        softmax_lse: pointer(&lse),
        cache_seqlens: pointer(&lengths),
        cache_batch_idx: pointer(&batch_idx),
        cache_leftpad: pointer(&leftpad),
        block_table: pointer(&table),
        cu_seqlens_q: pointer(&cu_q),
        cu_seqlens_k_new: pointer(&cu_k),
        rotary_cos: pointer(&cos),
        rotary_sin: pointer(&sin),
        rotary_seqlens: pointer(&rotary_seqlens),
        q_descale: pointer(&q_descale),
        k_descale: pointer(&k_descale),
        v_descale: pointer(&v_descale),
        alibi_slopes: pointer(&slopes),
        sinks: pointer(&sinks),
        indices: pointer(&indices),
        softmax_scale: call.softmax_scale,
        softcap: call.softcap,
        window_left: narrow(call.window_left.unwrap_or(0)),
        window_right: narrow(call.window_right.unwrap_or(0)),
        attention_chunk: narrow(call.attention_chunk),
        num_splits: narrow(call.num_splits),
        ..Default::default()
    };
    // SAFETY: tensors that borrow their memory, those that are written exclusively; the library checks their shapes, and
    // that every page, row and length of the index tensors stays within them.
    check(|error| unsafe { sys::kvc_flash_attn_with_kvcache(context.raw(), &args, stream.raw(), error) })
}

/// One call of [`append_slots`]: T new rows, which is the length of `slot_mapping`.
#[derive(Debug)]
pub struct AppendSlots<'a> {
    /// `[>= T, kv heads, head dim]`: f32, f16, bf16, or of the cache's dtype. Latent: the rotary parts.
    pub k: Tensor<'a>,
    /// `[>= T, kv heads, v head dim]`. Latent: the latent parts.
    pub v: Tensor<'a>,
    /// `[pages, page size, kv heads, head dim]`
    pub k_cache: TensorMut<'a>,
    /// `None`: the latent form, `k_cache` has rows `[latent | rotary]`.
    pub v_cache: Option<TensorMut<'a>>,
    /// `[T]` i32 or i64: the slot of each row, page * page size + offset; negative: the row is not stored.
    pub slot_mapping: Tensor<'a>,
    /// `[1]` or `[kv heads]` f32, with a float8 cache: k is stored as k / `k_scale`.
    pub k_scale: Option<Tensor<'a>>,
    pub v_scale: Option<Tensor<'a>>,
    /// Rotates the first dims of k.
    pub rotary: Option<Rotary<'a>>,
}

/// Rotation of new keys.
#[derive(Debug, Clone, Copy)]
pub struct Rotary<'a> {
    /// `[positions, rotary dim / 2]`
    pub cos: Tensor<'a>,
    pub sin: Tensor<'a>,
    /// `[T]` i32 or i64: the row of `cos` and `sin` of each token.
    pub positions: Tensor<'a>,
    /// Rotated pairs are dims 2i and 2i+1; else i and i + rotary dim / 2.
    pub interleaved: bool,
}

impl<'a> AppendSlots<'a> {
    pub fn new(
        (k, v): (Tensor<'a>, Tensor<'a>),
        (k_cache, v_cache): (TensorMut<'a>, TensorMut<'a>),
        slot_mapping: Tensor<'a>,
    ) -> Self {
        Self { v_cache: Some(v_cache), ..Self::latent((k, v), k_cache, slot_mapping) }
    }

    /// Rows `[latent | rotary]` in one cache: `v` has the latent parts, `k` the rotary parts.
    pub fn latent((k, v): (Tensor<'a>, Tensor<'a>), cache: TensorMut<'a>, slot_mapping: Tensor<'a>) -> Self {
        Self { k, v, k_cache: cache, v_cache: None, slot_mapping, k_scale: None, v_scale: None, rotary: None }
    }
}

/// Stores rows of K and V at given slots of the caller's own paged cache. If two rows have the same slot, either may
/// stay.
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// let context = Context::new(ContextConfig::new())?;
/// let (mut k_cache, mut v_cache) = (vec![0f32; 2 * 4 * 8], vec![0f32; 2 * 4 * 8]); // two pages of four tokens
/// let (k, v) = (vec![1f32; 2 * 8], vec![2f32; 2 * 8]);
/// let call = AppendSlots::new(
///     (Tensor::new(&k, &[2, 1, 8])?, Tensor::new(&v, &[2, 1, 8])?),
///     (TensorMut::new(&mut k_cache, &[2, 4, 1, 8])?, TensorMut::new(&mut v_cache, &[2, 4, 1, 8])?),
///     Tensor::new(&[5i64, -1], &[2])?, // the first row to page 1, offset 1; the second is padding
/// );
/// append_slots(&context, &call, Stream::NONE)?;
/// assert_eq!(v_cache.iter().sum::<f32>(), 16.0);
/// assert_eq!(v_cache[5 * 8], 2.0);
/// # Ok(())
/// # }
/// ```
pub fn append_slots(context: &Context, call: &AppendSlots<'_>, stream: Stream) -> Result<()> {
    let raw = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::raw);
    let (k, v, slots) = (call.k.raw(), call.v.raw(), call.slot_mapping.raw());
    let (k_cache, v_cache) = (call.k_cache.raw(), call.v_cache.as_ref().map(TensorMut::raw));
    let (k_scale, v_scale) = (raw(&call.k_scale), raw(&call.v_scale));
    let cos = call.rotary.as_ref().map(|rotary| rotary.cos.raw());
    let sin = call.rotary.as_ref().map(|rotary| rotary.sin.raw());
    let positions = call.rotary.as_ref().map(|rotary| rotary.positions.raw());
    let interleaved = call.rotary.as_ref().is_some_and(|rotary| rotary.interleaved);
    let args = sys::kvc_append_slots_args {
        flags: if interleaved { sys::KVC_APPEND_SLOTS_ROTARY_INTERLEAVED } else { 0 },
        k: &k,
        v: &v,
        k_cache: &k_cache,
        v_cache: pointer(&v_cache),
        slot_mapping: &slots,
        k_scale: pointer(&k_scale),
        v_scale: pointer(&v_scale),
        rotary_cos: pointer(&cos),
        rotary_sin: pointer(&sin),
        positions: pointer(&positions),
        ..Default::default()
    };
    // SAFETY: as flash_attn_with_kvcache.
    check(|error| unsafe { sys::kvc_append_slots(context.raw(), &args, stream.raw(), error) })
}
