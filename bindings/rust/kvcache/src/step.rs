//! One step of the model over a batch.
use crate::cache::{Cache, Seq, Stream};
use crate::config::narrow;
use crate::context::{text, Context};
use crate::error::{check, Error, Result, Status};
use crate::graph::Graph;
use crate::sys;
use crate::tables::Given;
use crate::tensor::{pointer, Tensor, TensorMut};
use std::cell::RefCell;
use std::ptr::{null, null_mut};
use std::slice;

/// The sequences of a step, and how many new tokens each of them gets.
///
/// ```
/// # use kvcache::*;
/// let mut batch = Batch::new(&[Seq(1), Seq(2)], &[5, 1]);
/// batch.push(Seq(3), 1); // rows may be added, and a batch used again
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    sequences: Vec<Seq>,
    append_lengths: Vec<i32>,
    layers: Option<(usize, usize)>,
    tree_parents: Vec<i32>,
    span_ids: Vec<i32>,
    encoder_group: Option<usize>,
    graph: Option<Graph>,
}

impl Batch {
    /// A row for each sequence: `append_lengths[i]` new tokens of `sequences[i]`.
    pub fn new(sequences: &[Seq], append_lengths: &[usize]) -> Self {
        Self {
            sequences: sequences.into(),
            append_lengths: append_lengths.iter().map(|length| narrow(*length)).collect(),
            ..Self::default()
        }
    }

    pub fn push(&mut self, sequence: Seq, append_length: usize) {
        self.sequences.push(sequence);
        self.append_lengths.push(narrow(append_length));
    }

    /// Removes the rows, and keeps their memory.
    pub fn clear(&mut self) {
        self.sequences.clear();
        self.append_lengths.clear();
        self.tree_parents.clear();
        self.span_ids.clear();
    }

    /// The step covers only these layers.
    pub fn layers(mut self, layers: std::ops::Range<usize>) -> Self {
        self.layers = Some((layers.start, layers.end));
        self
    }

    /// Token trees: for each new token of the batch its parent node, [`Batch::ROOT`], or [`Batch::NO_NODE`].
    pub fn tree_parents(mut self, parents: &[i32]) -> Self {
        self.tree_parents = parents.into();
        self
    }

    /// The node follows the sequence's last committed token.
    pub const ROOT: i32 = sys::KVC_TREE_ROOT;
    /// The token's row appends plain tokens.
    pub const NO_NODE: i32 = sys::KVC_TREE_NONE;

    /// Adjacent tokens with the same id above 0 see each other, also later ones (an image within a text).
    pub fn span_ids(mut self, ids: &[i32]) -> Self {
        self.span_ids = ids.into();
        self
    }

    /// The tokens belong to the encoder sequences of a cross group.
    pub fn encoder_group(mut self, group: usize) -> Self {
        self.encoder_group = Some(group);
        self
    }

    /// The step is opened in the graph, and uses its memory. BUSY if a step is open there; BATCH_TOO_LARGE beyond its
    /// capacity.
    pub fn graph(mut self, graph: &Graph) -> Self {
        self.graph = Some(graph.clone());
        self
    }

    pub(crate) fn in_graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    /// As the C struct has it. The struct borrows `self`.
    pub(crate) fn raw(&self) -> Result<sys::kvc_batch> {
        if self.sequences.len() != self.append_lengths.len() {
            let (sequences, lengths) = (self.sequences.len(), self.append_lengths.len());
            let message = format!("Batch: {sequences} sequences, but {lengths} append_lengths");
            return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
        }
        for (name, array) in [("tree_parents", &self.tree_parents), ("span_ids", &self.span_ids)] {
            let tokens: i64 = self.append_lengths.iter().map(|length| i64::from((*length).max(0))).sum();
            if !array.is_empty() && (array.len() as i64) < tokens {
                let message = format!("Batch: {tokens} new tokens, but {} {name}", array.len());
                return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
            }
        }
        let array = |array: &Vec<i32>| if array.is_empty() { null() } else { array.as_ptr() };
        Ok(sys::kvc_batch {
            num_sequences: narrow(self.sequences.len()),
            sequences: self.sequences.as_ptr().cast(),
            append_lengths: self.append_lengths.as_ptr(),
            layer_begin: self.layers.map_or(0, |layers| narrow(layers.0)),
            layer_end: self.layers.map_or(0, |layers| narrow(layers.1)),
            tree_parents: array(&self.tree_parents),
            span_ids: array(&self.span_ids),
            encoder_group: self.encoder_group.map_or(0, |group| narrow(group.saturating_add(1))),
            graph: self.graph.as_ref().map_or(0, Graph::as_raw),
            ..Default::default()
        })
    }
}

/// An open step; it keeps its cache alive. One thread at a time may use it (`Send`, not `Sync`), and a [`Canceller`] stops
/// it from others.
///
/// Only [`Step::end`] keeps the tokens. A step that is dropped without it is aborted: its tokens and pages are given back, and
/// no error says so. [`Cache::step`] runs a closure over a step and calls `end` itself.
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<kvcache::Step>();
/// ```
#[derive(Debug)]
#[must_use = "only `end` keeps a step's tokens; a dropped step is aborted"]
pub struct Step {
    cache: Cache,
    forward: sys::kvc_forward,
    graph: Option<Graph>,                  // whose memory it has
    pub(crate) given: RefCell<Vec<Given>>, // which makes it not Sync
}

impl Step {
    pub(crate) fn new(cache: Cache, forward: sys::kvc_forward, graph: Option<Graph>) -> Self {
        Self { cache, forward, graph, given: RefCell::default() }
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The graph in which the step is open.
    pub fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    /// The C id, for calls of `kvcache::sys` that this crate lacks. `self` owns it.
    pub fn as_raw(&self) -> sys::kvc_forward {
        self.forward
    }

    /// Stores a layer's new K and V.
    pub fn append(&self, layer: usize, append: &Append<'_>) -> Result<()> {
        append.call(&self.cache, self.forward, layer)
    }

    /// Stores a layer's new K and V, and computes attention over all that is stored.
    #[inline]
    pub fn attend(&self, layer: usize, attend: &Attend<'_>) -> Result<()> {
        attend.call(&self.cache, self.forward, layer)
    }

    /// Chooses, for each query, the tokens or blocks with the highest scores among those that it sees. The layer has
    /// `keys_only`, and was appended in this step. Lists ascend, and -1 fills what is left of them.
    pub fn select(&self, layer: usize, select: &Select<'_>) -> Result<()> {
        select.call(&self.cache, self.forward, layer)
    }

    /// Copies the states that the batch's sequences had before the step into `tensor`: `[rows, shape...]`.
    pub fn load_state(&self, layer: usize, state: usize, tensor: &mut TensorMut<'_>) -> Result<()> {
        load_state(&self.cache, self.forward, layer, state, -1, tensor)
    }

    /// Copies the states before token `token` of each row, below `max_draft_states`. Before a tree node that is the state
    /// after its parent. Rows without it are not written.
    pub fn load_state_before(
        &self,
        layer: usize,
        state: usize,
        token: usize,
        tensor: &mut TensorMut<'_>,
    ) -> Result<()> {
        load_state(&self.cache, self.forward, layer, state, narrow(token), tensor)
    }

    /// Makes `tensor` the states of the sequences after the step.
    pub fn store_state(&self, layer: usize, state: usize, tensor: &Tensor<'_>) -> Result<()> {
        store_state(&self.cache, self.forward, layer, state, -1, tensor)
    }

    /// Makes `tensor` the states after token `token` of each row, below `max_draft_states`. They are kept after a row's
    /// last token, and after tree nodes below `max_draft_states`, which can then be committed. Other rows are not read.
    pub fn store_state_after(&self, layer: usize, state: usize, token: usize, tensor: &Tensor<'_>) -> Result<()> {
        store_state(&self.cache, self.forward, layer, state, narrow(token), tensor)
    }

    /// Position of each new token in its sequence.
    pub fn positions(&self) -> Result<Vec<i32>> {
        let info = self.info()?;
        // SAFETY: [num_tokens], valid while the step is open. A copy, since an error of a device may close it.
        Ok(unsafe { array(info.positions_host, info.num_tokens as usize) })
    }

    /// Index of each row's last token among the batch's tokens; -1 if the row has none.
    pub fn last_rows(&self) -> Result<Vec<i32>> {
        let info = self.info()?;
        // SAFETY: as `positions`.
        Ok(unsafe { array(info.last_rows_host, info.num_sequences as usize) })
    }

    fn info(&self) -> Result<sys::kvc_forward_info> {
        let mut info = sys::kvc_forward_info::default();
        // SAFETY: filled by the library.
        check(|error| unsafe { sys::kvc_forward_get_info(self.cache.raw(), self.forward, &mut info, error) })?;
        Ok(info)
    }

    /// Describes the plan of the step, as one JSON object.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the buffer has its capacity.
        text(|buffer, capacity, length, error| unsafe {
            sys::kvc_forward_describe(self.cache.raw(), self.forward, buffer, capacity, length, error)
        })
    }

    pub fn canceller(&self) -> Canceller {
        Canceller { cache: self.cache.clone(), forward: self.forward }
    }

    /// Keeps the step's tokens. If it fails (a layer was not appended, or the step was cancelled), the step is aborted.
    pub fn end(self) -> Result<()> {
        // SAFETY: an open step of this cache.
        check(|error| unsafe { sys::kvc_forward_end(self.cache.raw(), self.forward, error) })?;
        self.forget();
        Ok(())
    }

    /// Aborts the step, as dropping it does, and returns the error if that fails.
    pub fn abort(self) -> Result<()> {
        // SAFETY: an open step of this cache.
        check(|error| unsafe { sys::kvc_forward_abort(self.cache.raw(), self.forward, error) })?;
        self.forget();
        Ok(())
    }

    /// The library has closed the step: releases only the cache.
    fn forget(mut self) {
        self.forward = 0;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.forward != 0 {
            // SAFETY: our step. It may be gone (an error of a device closes it): then this does nothing.
            let abort = || unsafe { sys::kvc_forward_abort(self.cache.raw(), self.forward, null_mut()) };
            while abort() == Status::BUSY.0 {
                // A call on its graph computes on another thread.
                // SAFETY: as above.
                unsafe { sys::kvc_forward_cancel(self.cache.raw(), self.forward, null_mut()) };
                std::thread::yield_now();
            }
        }
    }
}

/// Cancels a step from another thread. For a step in a graph, it cancels the step that is open there at that time.
#[derive(Debug, Clone)]
pub struct Canceller {
    cache: Cache,
    forward: sys::kvc_forward,
}

impl Canceller {
    /// Cancels the step, and returns at once. Later calls of the step return `CANCELLED`, and a running attend does
    /// soon. The step can then only be dropped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: an id that may be gone: an error.
        check(|error| unsafe { sys::kvc_forward_cancel(self.cache.raw(), self.forward, error) })
    }
}

/// New K and V of a layer. T is the number of the batch's new tokens.
#[derive(Debug, Clone)]
pub struct Append<'a> {
    /// `[T, kv heads, head dim]` of f32, f16 or bf16
    pub k: Tensor<'a>,
    /// `[T, kv heads, v head dim]`. `None`: a latent layer whose `k` has whole rows.
    pub v: Option<Tensor<'a>>,
    /// `[T, 2, rope dim / 2]` f32: cos and sin, for positions that only the caller has.
    pub rope_cos_sin: Option<Tensor<'a>>,
    /// `[T, kv heads]` f32: scales of stored bytes of i8 and u4.
    pub k_scale: Option<Tensor<'a>>,
    pub v_scale: Option<Tensor<'a>>,
    /// `k` is already rotated, and both may be stored bytes.
    pub as_stored: bool,
}

impl<'a> Append<'a> {
    pub fn new(k: Tensor<'a>, v: Tensor<'a>) -> Self {
        Self { v: Some(v), ..Self::latent(k) }
    }

    /// Whole rows of a latent layer: `[T, 1, head dim]`.
    pub fn latent(k: Tensor<'a>) -> Self {
        Self { k, v: None, rope_cos_sin: None, k_scale: None, v_scale: None, as_stored: false }
    }

    pub(crate) fn call(&self, cache: &Cache, forward: sys::kvc_forward, layer: usize) -> Result<()> {
        let Append { k, v, rope_cos_sin, k_scale, v_scale, as_stored } = self;
        let (k, v, rope) = (k.raw(), v.as_ref().map(Tensor::raw), rope_cos_sin.as_ref().map(Tensor::raw));
        let (k_scale, v_scale) = (k_scale.as_ref().map(Tensor::raw), v_scale.as_ref().map(Tensor::raw));
        let args = sys::kvc_append_args {
            flags: if *as_stored { sys::KVC_APPEND_AS_STORED } else { 0 },
            k: &k,
            v: pointer(&v),
            rope_cos_sin: pointer(&rope),
            k_scale: pointer(&k_scale),
            v_scale: pointer(&v_scale),
            ..Default::default()
        };
        // SAFETY: tensors that borrow their memory; the library checks their shapes.
        check(|error| unsafe { sys::kvc_forward_append(cache.raw(), forward, narrow(layer), &args, error) })
    }
}

/// One layer's attention. Set fields after `new` or `stored`, or by `Attend { softcap: 50.0, ..Attend::new(q, k, v, out) }`.
#[derive(Debug)]
pub struct Attend<'a> {
    /// `[T, q heads, head dim]` of f32, f16 or bf16
    pub q: Tensor<'a>,
    /// As [`Append::k`]; `None`: the layer was already appended.
    pub k: Option<Tensor<'a>>,
    pub v: Option<Tensor<'a>>,
    /// `[T, q heads, v head dim]` of any of the three types
    pub out: TensorMut<'a>,
    /// `[T, q heads]` f32: log-sum-exp of the scores.
    pub lse: Option<TensorMut<'a>>,
    /// 0 = the layer's.
    pub softmax_scale: f64,
    /// 0 = none.
    pub softcap: f64,
    /// `[q heads]` f32: slope * |p_q - p_k| is subtracted from scores.
    pub alibi_slopes: Option<Tensor<'a>>,
    /// slope * (p_q - p_k) is subtracted from scores.
    pub alibi_signed: bool,
    /// `[q heads]` f32: a logit of each head that takes part in the softmax without a value.
    pub sinks: Option<Tensor<'a>>,
    pub rope_cos_sin: Option<Tensor<'a>>,
    /// Latent layers: up-projections of K and V, `[q heads, dim, latent dim]`.
    pub w_uk: Option<Tensor<'a>>,
    pub w_uv: Option<Tensor<'a>>,
    /// `[T, 1 or kv heads, entries]` i32: a query attends only to the tokens that its list names, and of these to those that
    /// it sees without a list. Negative entries are padding.
    pub indices: Option<Tensor<'a>>,
    /// b: an entry i of `indices` names the tokens `[i * b, (i + 1) * b)`; 0 = 1.
    pub index_block: usize,
    /// `[q heads, E]` or `[T, q heads, E]` f32: the head's entry at p_q - p_k, or the nearest one, is added to scores.
    pub rel_bias: Option<Tensor<'a>>,
    /// Where `rel_bias` has no entry, 0 is added.
    pub rel_bias_zero: bool,
    /// `[sequences, keys, 1 or kv heads]` f32: the entry of the row and key is added to scores. Keys are numbered as in
    /// `indices`.
    pub key_bias: Option<Tensor<'a>>,
    /// `[T, keys]` or `[T, 1 or kv heads, keys]` u8: 0 hides a key that the query would see.
    pub mask: Option<Tensor<'a>>,
    /// This layer ignores the step's spans.
    pub no_spans: bool,
    /// The window, or chunk, of every query begins where that of the row's first new token does.
    pub step_window: bool,
    /// A query sees every key of its row, also those of later tokens.
    pub non_causal: bool,
    pub keys: Keys,
}

/// Which keys an attend reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keys {
    #[default]
    All,
    /// Of earlier steps only.
    Past,
    /// Of this step only.
    New,
}

impl<'a> Attend<'a> {
    /// Stores `k` and `v`, and attends with `q`.
    #[inline]
    pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, out: TensorMut<'a>) -> Self {
        Self { k: Some(k), v: Some(v), ..Self::stored(q, out) }
    }

    /// Attends over stored keys: after [`Step::append`], in a layer that reads another layer's keys, or in a cross
    /// layer.
    #[inline]
    pub fn stored(q: Tensor<'a>, out: TensorMut<'a>) -> Self {
        Self {
            q,
            k: None,
            v: None,
            out,
            lse: None,
            softmax_scale: 0.0,
            softcap: 0.0,
            alibi_slopes: None,
            alibi_signed: false,
            sinks: None,
            rope_cos_sin: None,
            w_uk: None,
            w_uv: None,
            indices: None,
            index_block: 0,
            rel_bias: None,
            rel_bias_zero: false,
            key_bias: None,
            mask: None,
            no_spans: false,
            step_window: false,
            non_causal: false,
            keys: Keys::All,
        }
    }

    #[inline]
    pub(crate) fn call(&self, cache: &Cache, forward: sys::kvc_forward, layer: usize) -> Result<()> {
        let raw = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::raw);
        let (q, out, lse) = (self.q.raw(), self.out.raw(), self.lse.as_ref().map(TensorMut::raw));
        let (k, v, rope) = (raw(&self.k), raw(&self.v), raw(&self.rope_cos_sin));
        let (slopes, sinks) = (raw(&self.alibi_slopes), raw(&self.sinks));
        let (w_uk, w_uv, indices) = (raw(&self.w_uk), raw(&self.w_uv), raw(&self.indices));
        let (rel_bias, key_bias, mask) = (raw(&self.rel_bias), raw(&self.key_bias), raw(&self.mask));
        let args = sys::kvc_attend_args {
            flags: self.flags(),
            q: &q,
            k: pointer(&k),
            v: pointer(&v),
            out: &out,
            lse: pointer(&lse),
            softmax_scale: self.softmax_scale,
            softcap: self.softcap,
            alibi_slopes: pointer(&slopes),
            sinks: pointer(&sinks),
            rope_cos_sin: pointer(&rope),
            w_uk: pointer(&w_uk),
            w_uv: pointer(&w_uv),
            indices: pointer(&indices),
            index_block: narrow(self.index_block),
            rel_bias: pointer(&rel_bias),
            key_bias: pointer(&key_bias),
            mask: pointer(&mask),
            ..Default::default()
        };
        // SAFETY: tensors that borrow their memory, those that are written exclusively; the library checks their shapes.
        check(|error| unsafe { sys::kvc_forward_attend(cache.raw(), forward, narrow(layer), &args, error) })
    }

    fn flags(&self) -> u32 {
        let keys = match self.keys {
            Keys::All => 0,
            Keys::Past => sys::KVC_ATTEND_PAST,
            Keys::New => sys::KVC_ATTEND_SELF,
        };
        let when = |on, flag| if on { flag } else { 0 };
        keys | when(self.non_causal, sys::KVC_ATTEND_NON_CAUSAL)
            | when(self.alibi_signed, sys::KVC_ATTEND_ALIBI_SIGNED)
            | when(self.rel_bias_zero, sys::KVC_ATTEND_REL_BIAS_ZERO)
            | when(self.no_spans, sys::KVC_ATTEND_NO_SPANS)
            | when(self.step_window, sys::KVC_ATTEND_STEP_WINDOW)
    }
}

/// A selection of keys. Set fields after `new`.
#[derive(Debug)]
pub struct Select<'a> {
    /// `[T, q heads, head dim]` of f32, f16 or bf16
    pub q: Tensor<'a>,
    /// `[T, q heads]` f32, of any sign; `None`: all 1, and with `each_head`.
    pub weights: Option<Tensor<'a>>,
    /// `[T, lists, entries]` i32, written; lists is 1, or q heads with `each_head`.
    pub indices: TensorMut<'a>,
    /// `[T, 1 or lists, entries]` i32, as [`Attend::indices`]: only tokens that it names are scored.
    pub candidates: Option<Tensor<'a>>,
    pub rope_cos_sin: Option<Tensor<'a>>,
    /// A list for each head, by q.k; else one by the sum over heads of weight * max(0, q.k).
    pub each_head: bool,
    /// b: an entry i of `indices` names the tokens `[i * b, (i + 1) * b)`; 0 = 1.
    pub index_block: usize,
    /// The same for `candidates`.
    pub candidate_block: usize,
    /// So many first entries of the sequence are always chosen.
    pub first_blocks: usize,
    /// The same for the entry of the query's own token and those before it.
    pub last_blocks: usize,
}

impl<'a> Select<'a> {
    pub fn new(q: Tensor<'a>, indices: TensorMut<'a>) -> Self {
        Self {
            q,
            weights: None,
            indices,
            candidates: None,
            rope_cos_sin: None,
            each_head: false,
            index_block: 0,
            candidate_block: 0,
            first_blocks: 0,
            last_blocks: 0,
        }
    }

    pub(crate) fn call(&self, cache: &Cache, forward: sys::kvc_forward, layer: usize) -> Result<()> {
        let raw = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::raw);
        let (q, indices) = (self.q.raw(), self.indices.raw());
        let (weights, candidates, rope) = (raw(&self.weights), raw(&self.candidates), raw(&self.rope_cos_sin));
        let args = sys::kvc_select_args {
            rule: if self.each_head { sys::KVC_SELECT_EACH_HEAD } else { sys::KVC_SELECT_RELU_SUM } as i32,
            q: &q,
            weights: pointer(&weights),
            indices: &indices,
            candidates: pointer(&candidates),
            rope_cos_sin: pointer(&rope),
            index_block: narrow(self.index_block),
            candidate_block: narrow(self.candidate_block),
            first_blocks: narrow(self.first_blocks),
            last_blocks: narrow(self.last_blocks),
            ..Default::default()
        };
        // SAFETY: tensors that borrow their memory, the one that is written exclusively; the library checks their shapes.
        check(|error| unsafe { sys::kvc_forward_select(cache.raw(), forward, narrow(layer), &args, error) })
    }
}

pub(crate) fn load_state(
    cache: &Cache,
    forward: sys::kvc_forward,
    layer: usize,
    state: usize,
    token: i32,
    tensor: &mut TensorMut<'_>,
) -> Result<()> {
    let (layer, state, tensor) = (narrow(layer), narrow(state), tensor.raw());
    // SAFETY: the tensor borrows its memory exclusively.
    check(|error| unsafe { sys::kvc_forward_load_state(cache.raw(), forward, layer, state, token, &tensor, error) })
}

pub(crate) fn store_state(
    cache: &Cache,
    forward: sys::kvc_forward,
    layer: usize,
    state: usize,
    token: i32,
    tensor: &Tensor<'_>,
) -> Result<()> {
    let (layer, state, tensor) = (narrow(layer), narrow(state), tensor.raw());
    // SAFETY: the tensor borrows its memory.
    check(|error| unsafe { sys::kvc_forward_store_state(cache.raw(), forward, layer, state, token, &tensor, error) })
}

/// Merges results of attention over disjoint sets of keys, `(output [T, H, Dv], lse [T, H])` each, by their LSE.
pub fn merge_states(
    context: &Context,
    parts: &[(Tensor<'_>, Tensor<'_>)],
    out: &mut TensorMut<'_>,
    lse: Option<&mut TensorMut<'_>>,
    stream: Stream,
) -> Result<()> {
    let raw: Vec<_> = parts.iter().map(|part| (part.0.raw(), part.1.raw())).collect();
    let outputs: Vec<_> = raw.iter().map(|part| &raw const part.0).collect();
    let lses: Vec<_> = raw.iter().map(|part| &raw const part.1).collect();
    let (out, lse) = (out.raw(), lse.map(|lse| lse.raw()));
    let args = sys::kvc_merge_args {
        num_parts: narrow(parts.len()),
        outputs: outputs.as_ptr(),
        lses: lses.as_ptr(),
        out: &out,
        lse: pointer(&lse),
        ..Default::default()
    };
    // SAFETY: tensors that borrow their memory, those that are written exclusively.
    check(|error| unsafe { sys::kvc_merge_states(context.raw(), &args, stream.raw(), error) })
}

unsafe fn array(pointer: *const i32, length: usize) -> Vec<i32> {
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's word.
    unsafe { slice::from_raw_parts(pointer, length) }.to_vec()
}
