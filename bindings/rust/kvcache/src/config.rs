//! The config of a cache: layers, groups, capacity. The fields are those of the C header; 0 and `None` mean its
//! defaults.
use crate::error::{Error, Result, Status};
use crate::sys;
use crate::tensor::DType;
use std::ptr::null;

/// A cache: [`crate::Cache::new`] takes it.
///
/// ```
/// # use kvcache::*;
/// let config = CacheConfig {
///     layers: vec![Layer { q_heads: 4, kv_heads: 1, head_dim: 256, rope: Rope::on_append(1e4), ..Layer::default() }; 18],
///     capacity: Capacity::Tokens(65536),
///     ..CacheConfig::default()
/// };
/// ```
#[derive(Debug, Clone, Default)]
pub struct CacheConfig {
    pub layers: Vec<Layer>,
    /// Empty: one full group.
    pub groups: Vec<Group>,
    pub capacity: Capacity,
    /// Tokens a page; 0 = 16.
    pub page_size: usize,
    /// 0 = 64
    pub max_sequences: usize,
    /// Tokens of one step; 0 = 2048.
    pub max_batch_tokens: usize,
    /// 0 = 2
    pub max_open_steps: usize,
    /// Tokens that are kept before every window, so that they can be dropped. `None`: as many as `max_tree_nodes`;
    /// `Some(0)`: none.
    pub rollback_tokens: Option<usize>,
    /// Uncommitted tree nodes of a sequence; 0 = 64.
    pub max_tree_nodes: usize,
    /// Checkpoints of a sequence over recurrent state; 0 = 1.
    pub max_checkpoints: usize,
    /// The first nodes of an uncommitted tree whose recurrent states are kept, so that each of them can be committed; at
    /// most 63.
    pub max_draft_states: usize,
    /// Sequences may get streaming windows.
    pub streaming: bool,
    pub prefix_sharing: PrefixSharing,
    /// Outputs have the same bits for any batch.
    pub deterministic: bool,
    /// Tokens that were published stay findable after their sequence is removed ([`crate::Cache::publish_prefix`]).
    pub prefix_index: bool,
    /// Most pages of tokens that the prefix index holds in each group; 0 = the pages of the largest group.
    pub prefix_pages: usize,
    /// Most positions whose recurrent states the prefix index holds; 0 = `max_sequences`.
    pub prefix_checkpoints: usize,
    pub prefix_policy: PrefixPolicy,
    /// Pages are cleared before they are given to a sequence, so that none sees bytes of another one.
    pub zero_on_free: bool,
    /// Names the model: weights, quantisation, tokenizer. Without it there are no events.
    pub fingerprint: Option<[u8; 32]>,
    /// Events of the prefix index that the cache keeps for readers; 0 = none.
    pub events_capacity: usize,
    /// Pages in tiers of which events tell; 0 = events tell only of the pools.
    pub events_tier_pages: usize,
    pub storage: Storage,
    /// Ranks of tensor parallelism, each with a cache of its own for its share of the kv heads; 0 = 1. Ranks store objects of
    /// their own in tiers, even with one fingerprint. A transfer may go to caches of another `tp_size`.
    pub tp_size: usize,
    /// The rank of this cache, below `tp_size`.
    pub tp_rank: usize,
}

/// What the prefix index evicts first, among tokens of equal priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixPolicy {
    /// The least recently used. Each of the last three uses lets a prefix live longer, so that prefixes which were used once go
    /// first.
    #[default]
    Reuse,
    /// The least recently used.
    Lru,
}

/// Whether the cache has page pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// For every layer: in memory of its own, or adopted ([`crate::Cache::with_pools`]).
    #[default]
    Own,
    /// Page ids and tables only, for engines with pools and kernels of their own. [`crate::Step::tables`] gives the
    /// places of tokens, and [`crate::Cache::take_copies`] the copies to make.
    None,
}

/// Size of the pools of full and cross groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capacity {
    /// Every group sets its own number of pages.
    #[default]
    Groups,
    Tokens(usize),
    Pages(usize),
    /// All pools of all layers together.
    Bytes(usize),
}

/// Whether rows of a step that begin with the same pages are attended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixSharing {
    /// Where that is cheaper.
    #[default]
    Auto,
    Never,
    Always,
}

/// Layers that share page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub row: Row,
    pub visibility: Visibility,
    /// Pages of the group's pool; 0 = from the cache's capacity.
    pub pages: usize,
    /// r > 1: the group stores a row for each r tokens, which the caller computes (docs/reference/rows.md); 0 = 1.
    pub tokens_per_row: usize,
}

/// What a group stores for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Row {
    /// K and V.
    KeyValue,
    /// Multi-head latent attention: one row for all heads, of which V is a part.
    Latent,
    /// No keys: state tensors of fixed size.
    State,
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Visibility {
    /// Every key up to its own position.
    All,
    /// The last tokens, so many as the number says, the query's own included.
    Window(usize),
    /// The keys of its own chunk, which has so many tokens as the number says.
    Chunk(usize),
    /// All keys of an encoder sequence.
    Encoder,
}

impl Group {
    pub const fn new(row: Row, visibility: Visibility) -> Self {
        Self { row, visibility, pages: 0, tokens_per_row: 0 }
    }
    pub const fn full() -> Self {
        Self::new(Row::KeyValue, Visibility::All)
    }
    pub const fn sliding(window: usize) -> Self {
        Self::new(Row::KeyValue, Visibility::Window(window))
    }
    pub const fn chunked(chunk: usize) -> Self {
        Self::new(Row::KeyValue, Visibility::Chunk(chunk))
    }
    pub const fn cross() -> Self {
        Self::new(Row::KeyValue, Visibility::Encoder)
    }
    pub const fn recurrent() -> Self {
        Self::new(Row::State, Visibility::All)
    }
    /// With latent rows (MLA).
    pub const fn latent(self) -> Self {
        Self { row: Row::Latent, ..self }
    }
    /// With a pool of this many pages.
    pub const fn pages(self, pages: usize) -> Self {
        Self { pages, ..self }
    }

    /// With a row for each `tokens` tokens. A step takes the rows that it closes, `(length + new) / tokens - length / tokens` of
    /// each sequence.
    pub const fn tokens_per_row(self, tokens: usize) -> Self {
        Self { tokens_per_row: tokens, ..self }
    }

    fn raw(&self) -> sys::kvc_group_config {
        let row = match self.row {
            Row::KeyValue => sys::KVC_ROW_KV,
            Row::Latent => sys::KVC_ROW_LATENT,
            Row::State => sys::KVC_ROW_STATE,
        };
        let (visibility, window, chunk) = match self.visibility {
            Visibility::All => (sys::KVC_VISIBLE_ALL, 0, 0),
            Visibility::Window(window) => (sys::KVC_VISIBLE_WINDOW, window, 0),
            Visibility::Chunk(chunk) => (sys::KVC_VISIBLE_CHUNK, 0, chunk),
            Visibility::Encoder => (sys::KVC_VISIBLE_ENCODER, 0, 0),
        };
        sys::kvc_group_config {
            row: row as i32,
            visibility: visibility as i32,
            window_tokens: wide(window),
            chunk_tokens: wide(chunk),
            num_pages: wide(self.pages),
            tokens_per_row: narrow(self.tokens_per_row),
            ..Default::default()
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Layer {
    /// Index into the cache's groups.
    pub group: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// 0 = `head_dim`, of a latent layer `latent_dim`.
    pub v_head_dim: usize,
    /// Latent layers: leading dims of the row that are V too.
    pub latent_dim: usize,
    /// Of stored K and V.
    pub dtype: DType,
    pub rope: Rope,
    /// An earlier layer of the group whose K and V this one reads.
    pub kv_layer: Option<usize>,
    /// 0 = `head_dim^-0.5`.
    pub softmax_scale: f64,
    /// float8: none, one, or one a kv head; V's have the same number (latent layers: none).
    pub k_scales: Vec<f32>,
    pub v_scales: Vec<f32>,
    /// Recurrent layers: their state tensors.
    pub states: Vec<State>,
    /// K and no V, in a group of any row: index keys, which [`Step::select`](crate::Step::select) scores.
    pub keys_only: bool,
    /// Kv heads of the layer in all ranks together ([`CacheConfig::tp_size`]); 0 = `kv_heads * tp_size`, and 1 for a latent
    /// layer. Give it if it is less than `tp_size`: then `kv_heads` is 1, and `tp_size / total_kv_heads` consecutive ranks have
    /// the same head.
    pub total_kv_heads: usize,
    /// Latent layers: packed rows.
    pub row_format: RowFormat,
}

/// How a layer stores its rows. docs/reference/formats.md has the bytes of each format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFormat {
    /// All dims have the type [`Layer::dtype`].
    #[default]
    DType,
    /// The packed row of DeepSeek-V3.2, 656 bytes, as vLLM and FlashMLA store it. `head_dim` is 576, `latent_dim` is 512, and
    /// `dtype` stays at its default. Views, exports and storage of the caller are uint8.
    Fp8DsMla,
    /// The row of DeepSeek-V4, 576 bytes, with 8 bytes of scales after the rows of the page: an MLA row of 512 dims,
    /// all of which are V.
    Fp8DsV4,
    /// Float4_e2m1fn, with a power of two for each 32 dims after the rows of the page.
    Mxfp4,
    /// Float8_e4m3fn, with a power of two for each 32 dims after the rows of the page.
    Mxfp8,
    /// Float8_e4m3fn, with a float32 scale for each 128 dims after the rows of the page.
    Fp8Blocks,
    /// Float4_e2m1fn, with a float8_e4m3fn scale for each 16 dims after the rows of the page.
    Nvfp4,
    /// The row of DeepSeek-V3.2 with 352 bytes: an MLA row of 576 dims, the first 512 of which are V.
    Nvfp4DsMla,
}

/// A state tensor of a recurrent layer, of one sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Floating point of 16 or 32 bits, or integers of 32 or 64.
    pub dtype: DType,
    /// 1 to 4 dimensions.
    pub shape: Vec<usize>,
    /// Every element of the state of an empty sequence, a value of `dtype`.
    pub fill: f64,
}

/// Rotary position embedding of a layer; the default is none.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    pub mode: RopeMode,
    /// Rotated dims; 0 = all from `offset` on.
    pub dim: usize,
    pub offset: usize,
    /// Pairs are dims 2i and 2i+1; else i and i + dim/2.
    pub interleaved: bool,
    /// 0 = 10000
    pub theta: f64,
    pub scaling: Option<RopeScaling>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RopeMode {
    #[default]
    None,
    OnAppend,
    OnRead,
}

impl Rope {
    pub fn on_append(theta: f64) -> Self {
        Self { mode: RopeMode::OnAppend, theta, ..Self::default() }
    }
    pub fn on_read(theta: f64) -> Self {
        Self { mode: RopeMode::OnRead, theta, ..Self::default() }
    }
    pub fn scaled(self, scaling: RopeScaling) -> Self {
        Self { scaling: Some(scaling), ..self }
    }
}

/// "rope_scaling" of a model's config.json.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RopeScaling {
    Linear { factor: f64 },
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original_max_position: usize },
    Yarn(Yarn),
    LongRope(LongRope),
}

#[derive(Debug, Clone, Default)]
pub struct Yarn {
    pub factor: f64,
    pub original_max_position: usize,
    /// 0 = 32
    pub beta_fast: f64,
    /// 0 = 1
    pub beta_slow: f64,
    /// 0 = from the two mscales if both are given, otherwise from `factor`.
    pub attention_factor: f64,
    pub mscale: f64,
    pub mscale_all_dim: f64,
    /// The bounds of the blend are not rounded ("truncate": false).
    pub no_truncate: bool,
}

#[derive(Debug, Clone, Default)]
pub struct LongRope {
    pub factor: f64,
    pub original_max_position: usize,
    pub attention_factor: f64,
    pub short_factors: Vec<f64>,
    pub long_factors: Vec<f64>,
}

impl RopeScaling {
    fn raw(&self) -> sys::kvc_rope_scaling {
        let init = sys::kvc_rope_scaling::default();
        match self {
            RopeScaling::Linear { factor } => {
                sys::kvc_rope_scaling { kind: sys::KVC_ROPE_SCALING_LINEAR as i32, factor: *factor, ..init }
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
                sys::kvc_rope_scaling {
                    kind: sys::KVC_ROPE_SCALING_LLAMA3 as i32,
                    factor: *factor,
                    low_freq_factor: *low_freq_factor,
                    high_freq_factor: *high_freq_factor,
                    original_max_position: wide(*original_max_position),
                    ..init
                }
            }
            RopeScaling::Yarn(yarn) => sys::kvc_rope_scaling {
                kind: sys::KVC_ROPE_SCALING_YARN as i32,
                flags: if yarn.no_truncate { sys::KVC_ROPE_SCALING_NO_TRUNCATE } else { 0 },
                factor: yarn.factor,
                original_max_position: wide(yarn.original_max_position),
                beta_fast: yarn.beta_fast,
                beta_slow: yarn.beta_slow,
                attention_factor: yarn.attention_factor,
                mscale: yarn.mscale,
                mscale_all_dim: yarn.mscale_all_dim,
                ..init
            },
            RopeScaling::LongRope(long) => sys::kvc_rope_scaling {
                kind: sys::KVC_ROPE_SCALING_LONGROPE as i32,
                factor: long.factor,
                original_max_position: wide(long.original_max_position),
                attention_factor: long.attention_factor,
                num_short_factors: narrow(long.short_factors.len()),
                num_long_factors: narrow(long.long_factors.len()),
                short_factors: long.short_factors.as_ptr(),
                long_factors: long.long_factors.as_ptr(),
                ..init
            },
        }
    }
}

impl CacheConfig {
    /// Calls `function` with the config as C has it, whose pointers live so long.
    pub(crate) fn with_raw<R>(&self, function: impl FnOnce(&sys::kvc_cache_config) -> Result<R>) -> Result<R> {
        self.with_raw_layers(|_| Ok(()), function)
    }

    /// The same, after `adjust` has seen the layers.
    pub(crate) fn with_raw_layers<R>(
        &self,
        adjust: impl FnOnce(&mut [sys::kvc_layer_config]) -> Result<()>,
        function: impl FnOnce(&sys::kvc_cache_config) -> Result<R>,
    ) -> Result<R> {
        let scalings: Vec<_> =
            self.layers.iter().map(|layer| layer.rope.scaling.as_ref().map(RopeScaling::raw)).collect();
        let states = self.layers.iter().map(|layer| layer.states.iter().map(State::raw).collect());
        let states = states.collect::<Result<Vec<Vec<_>>>>()?;
        let layers = self.layers.iter().zip(&scalings).zip(&states);
        let layers = layers.map(|((layer, scaling), states)| layer.raw(scaling.as_ref(), states));
        let mut layers = layers.collect::<Result<Vec<_>>>()?;
        adjust(&mut layers)?;
        let groups: Vec<_> = self.groups.iter().map(Group::raw).collect();
        let (tokens, pages, bytes) = match self.capacity {
            Capacity::Groups => (0, 0, 0),
            Capacity::Tokens(tokens) => (tokens, 0, 0),
            Capacity::Pages(pages) => (0, pages, 0),
            Capacity::Bytes(bytes) => (0, 0, bytes),
        };
        function(&sys::kvc_cache_config {
            flags: self.flags(),
            layers: layers.as_ptr(),
            groups: if groups.is_empty() { null() } else { groups.as_ptr() },
            num_layers: narrow(layers.len()),
            num_groups: narrow(groups.len()),
            page_size: narrow(self.page_size),
            max_sequences: narrow(self.max_sequences),
            max_batch_tokens: narrow(self.max_batch_tokens),
            max_open_forwards: narrow(self.max_open_steps),
            rollback_tokens: wide(self.rollback_tokens.unwrap_or(0)),
            capacity_tokens: wide(tokens),
            capacity_pages: wide(pages),
            capacity_bytes: wide(bytes),
            max_tree_nodes: narrow(self.max_tree_nodes),
            max_checkpoints: narrow(self.max_checkpoints),
            max_draft_states: narrow(self.max_draft_states),
            storage: match self.storage {
                Storage::Own => sys::KVC_STORAGE_OWN as i32,
                Storage::None => sys::KVC_STORAGE_NONE as i32,
            },
            prefix_pages: wide(self.prefix_pages),
            prefix_checkpoints: wide(self.prefix_checkpoints),
            prefix_policy: match self.prefix_policy {
                PrefixPolicy::Reuse => sys::KVC_PREFIX_POLICY_REUSE as i32,
                PrefixPolicy::Lru => sys::KVC_PREFIX_POLICY_LRU as i32,
            },
            fingerprint: self.fingerprint.as_ref().map_or(null(), |bytes| bytes.as_ptr()),
            events_capacity: wide(self.events_capacity),
            events_tier_pages: wide(self.events_tier_pages),
            tp_size: narrow(self.tp_size),
            tp_rank: narrow(self.tp_rank),
            ..Default::default()
        })
    }

    fn flags(&self) -> u32 {
        let sharing = match self.prefix_sharing {
            PrefixSharing::Auto => 0,
            PrefixSharing::Never => sys::KVC_CACHE_NO_PREFIX_SHARING,
            PrefixSharing::Always => sys::KVC_CACHE_SHARE_ALL_PREFIXES,
        };
        let when = |condition, flag| if condition { flag } else { 0 };
        sharing
            | when(self.rollback_tokens == Some(0), sys::KVC_CACHE_NO_ROLLBACK)
            | when(self.streaming, sys::KVC_CACHE_STREAMING)
            | when(self.deterministic, sys::KVC_CACHE_DETERMINISTIC)
            | when(self.prefix_index, sys::KVC_CACHE_PREFIX_INDEX)
            | when(self.zero_on_free, sys::KVC_CACHE_ZERO_ON_FREE)
    }
}

impl State {
    fn raw(&self) -> Result<sys::kvc_state_config> {
        let mut shape = [0; 4];
        if self.shape.len() > shape.len() {
            let message = format!("a state has 1 to 4 dimensions, not the shape {:?}", self.shape);
            return Err(Error::misuse(Status::RANK, message));
        }
        shape.iter_mut().zip(&self.shape).for_each(|(to, from)| *to = wide(*from));
        Ok(sys::kvc_state_config {
            dtype: self.dtype.raw(),
            rank: self.shape.len() as i32,
            shape,
            fill: self.fill,
            ..Default::default()
        })
    }
}

impl Layer {
    fn raw(
        &self,
        scaling: Option<&sys::kvc_rope_scaling>,
        states: &[sys::kvc_state_config],
    ) -> Result<sys::kvc_layer_config> {
        let (k_scales, v_scales) = (&self.k_scales, &self.v_scales);
        if !v_scales.is_empty() && v_scales.len() != k_scales.len() {
            let message = format!("a layer has {} k_scales and {} v_scales", k_scales.len(), v_scales.len());
            return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
        }
        let pointer = |scales: &Vec<f32>| if scales.is_empty() { null() } else { scales.as_ptr() };
        let mode = match self.rope.mode {
            RopeMode::None => sys::KVC_ROPE_NONE,
            RopeMode::OnAppend => sys::KVC_ROPE_ON_APPEND,
            RopeMode::OnRead => sys::KVC_ROPE_ON_READ,
        };
        // A recurrent layer's other fields are 0, its dtype too.
        let dtype = if states.is_empty() { self.dtype.raw() } else { sys::DLDataType { code: 0, bits: 0, lanes: 0 } };
        Ok(sys::kvc_layer_config {
            group: narrow(self.group),
            num_q_heads: narrow(self.q_heads),
            num_kv_heads: narrow(self.kv_heads),
            head_dim: narrow(self.head_dim),
            v_head_dim: narrow(self.v_head_dim),
            dtype,
            rope_mode: mode as i32,
            rope_dim: narrow(self.rope.dim),
            rope_offset: narrow(self.rope.offset),
            flags: (if self.rope.interleaved { sys::KVC_LAYER_ROPE_INTERLEAVED } else { 0 })
                | if self.keys_only { sys::KVC_LAYER_KEYS_ONLY } else { 0 },
            kv_layer: self.kv_layer.map_or(0, |layer| narrow(layer.saturating_add(1))),
            rope_theta: self.rope.theta,
            rope_scaling: scaling.map_or(null(), |scaling| scaling),
            softmax_scale: self.softmax_scale,
            k_scales: pointer(k_scales),
            v_scales: pointer(v_scales),
            num_scales: narrow(k_scales.len()),
            num_states: narrow(states.len()),
            states: if states.is_empty() { null() } else { states.as_ptr() },
            latent_dim: narrow(self.latent_dim),
            total_kv_heads: narrow(self.total_kv_heads),
            row_format: match self.row_format {
                RowFormat::DType => sys::KVC_ROW_FORMAT_DTYPE,
                RowFormat::Fp8DsMla => sys::KVC_ROW_FORMAT_FP8_DS_MLA,
                RowFormat::Fp8DsV4 => sys::KVC_ROW_FORMAT_FP8_DS_V4,
                RowFormat::Mxfp4 => sys::KVC_ROW_FORMAT_MXFP4,
                RowFormat::Mxfp8 => sys::KVC_ROW_FORMAT_MXFP8,
                RowFormat::Fp8Blocks => sys::KVC_ROW_FORMAT_FP8_BLOCKS,
                RowFormat::Nvfp4 => sys::KVC_ROW_FORMAT_NVFP4,
                RowFormat::Nvfp4DsMla => sys::KVC_ROW_FORMAT_NVFP4_DS_MLA,
            } as i32,
            ..Default::default()
        })
    }
}

/// A field of the C struct. A value that does not fit becomes one above every limit of the library, which reports it.
#[inline]
pub(crate) fn narrow(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[inline]
pub(crate) fn wide(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
