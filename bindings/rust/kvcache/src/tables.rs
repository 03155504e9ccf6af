//! Tables of a step for attention kernels of the caller's own.
use crate::config::narrow;
use crate::error::{check, Error, Result, Status};
use crate::step::Step;
use crate::sys;
use crate::tensor::Tensor;

/// Tables of one step, in memory of the library. Rows of a table are rows of the batch, in their order, unless rows are
/// cut (chunks) or branch; `batch_rows` gives the batch row of each. Arrays are i32 and compact unless a field says
/// otherwise: `tables.cache_seqlens.as_slice::<i32>()`. [`crate::flash_attn_with_kvcache`] takes them unchanged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tables<'a> {
    /// True: the queries of a row are its last keys, and each sees the keys up to itself. False: each sees all keys of
    /// the row.
    pub causal: bool,
    /// R, rows of the table.
    pub num_rows: usize,
    /// T, queries of all rows.
    pub num_queries: usize,
    /// The page size of `block_table` and of the CSR arrays: the group's, or 1.
    pub page_size: usize,
    /// The most queries of a row.
    pub max_seqlen_q: usize,
    /// The largest of `cache_seqlens`.
    pub max_seqlen_k: usize,
    /// Columns of `block_table`.
    pub max_pages: usize,
    /// Entries of `indices` that are used.
    pub num_pages: usize,
    /// The last of `cu_seqlens_k`.
    pub num_keys: usize,
    /// For a plan, the number of the build; for a step in a graph, a number of the graph; else 0.
    pub generation: u64,
    /// `[R]`: tokens in the row's pages up to its last key, `leftpad` and hole included.
    pub cache_seqlens: Tensor<'a>,
    /// `[R + 1]`: the row's queries are tokens `[cu_seqlens_q[r], cu_seqlens_q[r + 1])` of the step.
    pub cu_seqlens_q: Tensor<'a>,
    /// `[R + 1]`: running sums of the rows' numbers of keys.
    pub cu_seqlens_k: Tensor<'a>,
    /// `[R]`: position of the row's first key after any sinks; 0 if keys are listed one by one.
    pub key_starts: Tensor<'a>,
    /// `[R]`: tokens of the row's first page before its first key.
    pub leftpad: Tensor<'a>,
    /// `[R]`: row of the batch; -1 = unused (graph mode).
    pub batch_rows: Tensor<'a>,
    /// `[R, max_pages]`, rows by their stride: page ids, then padding. A row: `block_table.row(r)?.as_slice::<i32>()`.
    pub block_table: Option<Tensor<'a>>,
    /// `[R + 1]`: the row's pages are `indices[indptr[r]..indptr[r + 1]]`.
    pub indptr: Option<Tensor<'a>>,
    pub indices: Option<Tensor<'a>>,
    /// `[R]`: tokens in the row's last page; 0 of a row without pages.
    pub last_page_len: Option<Tensor<'a>>,
    /// `[R]`, only if a row streams: the number of first tokens that every query of the row sees ...
    pub sink_tokens: Option<Tensor<'a>>,
    /// ... and of the tokens after them that no query sees.
    pub hole_tokens: Option<Tensor<'a>>,
    /// i64 `[T]`: slot of each new token; -1 = padding.
    pub slot_mapping: Option<Tensor<'a>>,
    /// `[T]`: position of each new token, by depth in trees.
    pub positions: Option<Tensor<'a>>,
    /// `[rows of the batch]`: index of the row's last token; -1 = none.
    pub last_rows: Option<Tensor<'a>>,
    /// i64 `[1]`, for a plan or a graph: the generation that kernels of a captured graph compare; 0 = stale.
    pub generation_word: Option<Tensor<'a>>,
}

/// Which keys of each row a table names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Part {
    /// All.
    #[default]
    Whole = sys::KVC_TABLES_WHOLE as isize,
    /// Steps that branch: the keys that all branches share.
    Prefix = sys::KVC_TABLES_PREFIX as isize,
    /// Steps that branch: the keys of each branch, one row for each token, with its visible ancestors and itself.
    Branches = sys::KVC_TABLES_BRANCHES as isize,
    /// Plans with `encoder_lens`: the encoder's keys.
    Encoder = sys::KVC_TABLES_ENCODER as isize,
}

/// How the tables of a step are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TablesOptions {
    pub part: Part,
    /// Tables of page size 1: slots in place of pages, and no leftpad.
    pub slots: bool,
    /// The padding of `block_table` after a row's pages; `None`: -1, in a graph 0.
    pub pad_value: Option<i32>,
    pub arrays: Arrays,
}

/// Which arrays of a table are made. The default is all. None of the three counts as all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrays {
    /// `block_table`
    pub dense: bool,
    /// `indptr`, `indices`, `last_page_len`
    pub csr: bool,
    /// `slot_mapping`, `positions`, `last_rows`
    pub tokens: bool,
}

impl Default for Arrays {
    fn default() -> Self {
        Self { dense: true, csr: true, tokens: true }
    }
}

impl Arrays {
    pub(crate) fn raw(self) -> u32 {
        let when = |condition, flag| if condition { flag } else { 0 };
        when(self.dense, sys::KVC_TABLES_DENSE)
            | when(self.csr, sys::KVC_TABLES_CSR)
            | when(self.tokens, sys::KVC_TABLES_TOKENS)
    }
}

/// Tables that a step has returned. They may still be borrowed, so the step must not make them again.
#[derive(Debug)]
pub(crate) struct Given {
    group: usize,
    options: TablesOptions,
    raw: sys::kvc_tables,
}

// SAFETY: addresses within the step, which moves with it.
unsafe impl Send for Given {}

impl Step {
    /// Tables of the step in one group, the new tokens included.
    ///
    /// ```
    /// # use kvcache::*;
    /// # fn main() -> Result<()> {
    /// # let context = Context::new(ContextConfig::new())?;
    /// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
    /// # let capacity = Capacity::Tokens(256);
    /// let config = CacheConfig { layers, capacity, storage: Storage::None, ..CacheConfig::default() }; // pools of our own
    /// let cache = Cache::new(&context, &config)?;
    /// let sequence = cache.add()?;
    /// let step = cache.begin(&Batch::new(&[sequence], &[20]), Stream::NONE)?;
    /// let tables = step.tables(0, TablesOptions::default())?;
    /// assert_eq!(tables.cache_seqlens.as_slice::<i32>()?, [20]);
    /// let pages = tables.block_table.unwrap().row(0)?.as_slice::<i32>()?; // 16 tokens, then 4
    /// let slots = tables.slot_mapping.unwrap().as_slice::<i64>()?; // where our kernel stores them
    /// assert_eq!((pages.len(), slots[16]), (2, i64::from(pages[1]) * 16));
    /// step.end()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The tables do not change while the step is open. So a second call for the same group, part and kind (`slots`)
    /// cannot request other padding or arrays (INVALID_ARGUMENT) before [`Step::release_tables`]. In a graph it never
    /// can: each of its tables keeps the arrays and the padding of the first request.
    pub fn tables(&self, group: usize, options: TablesOptions) -> Result<Tables<'_>> {
        let mut given = self.given.borrow_mut();
        let same = |tables: &&Given| {
            (tables.group, tables.options.part, tables.options.slots) == (group, options.part, options.slots)
        };
        if let Some(tables) = given.iter().find(same) {
            if tables.options != options {
                let message = format!("the step gave out other tables of group {group}: {:?}", tables.options);
                return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
            }
            // SAFETY: below.
            return Ok(unsafe { Tables::from_raw(&tables.raw) });
        }
        let flags = if options.slots { sys::KVC_TABLES_SLOTS } else { 0 }
            | options.pad_value.map_or(0, |_| sys::KVC_TABLES_PAD_VALUE);
        let mut raw = sys::kvc_tables {
            flags,
            part: options.part as i32,
            pad_value: options.pad_value.unwrap_or(0),
            arrays: options.arrays.raw(),
            ..Default::default()
        };
        // SAFETY: filled by the library.
        check(|error| unsafe {
            sys::kvc_forward_tables(self.cache().raw(), self.as_raw(), narrow(group), &mut raw, error)
        })?;
        // SAFETY: of this open step, which only `end`, `abort` and `drop` close: on the CPU, where alone the library makes
        // tables, no error does. Nothing writes them again, since no second call requests the same.
        let tables = unsafe { Tables::from_raw(&raw) };
        given.push(Given { group, options, raw });
        Ok(tables)
    }

    /// Says that nothing borrows the step's tables any more. They may then be made with other options.
    pub fn release_tables(&mut self) {
        self.given.get_mut().clear();
    }
}

impl Tables<'_> {
    /// # Safety
    /// Filled by the library, and neither written nor released for the lifetime that is asked for.
    pub(crate) unsafe fn from_raw(raw: &sys::kvc_tables) -> Self {
        // SAFETY: the caller's word.
        let optional = |tensor: &sys::DLTensor| unsafe { Tensor::from_dl(tensor) };
        let always = |tensor: &sys::DLTensor| optional(tensor).expect("an array that every table has");
        Tables {
            causal: raw.causal != 0,
            num_rows: raw.num_rows as usize,
            num_queries: raw.num_queries as usize,
            page_size: raw.page_size as usize,
            max_seqlen_q: raw.max_seqlen_q as usize,
            max_seqlen_k: raw.max_seqlen_k as usize,
            max_pages: raw.max_pages as usize,
            num_pages: raw.num_pages as usize,
            num_keys: raw.num_keys as usize,
            generation: raw.generation,
            cache_seqlens: always(&raw.cache_seqlens),
            cu_seqlens_q: always(&raw.cu_seqlens_q),
            cu_seqlens_k: always(&raw.cu_seqlens_k),
            key_starts: always(&raw.key_starts),
            leftpad: always(&raw.leftpad),
            batch_rows: always(&raw.batch_rows),
            block_table: optional(&raw.block_table),
            indptr: optional(&raw.indptr),
            indices: optional(&raw.indices),
            last_page_len: optional(&raw.last_page_len),
            sink_tokens: optional(&raw.sink_tokens),
            hole_tokens: optional(&raw.hole_tokens),
            slot_mapping: optional(&raw.slot_mapping),
            positions: optional(&raw.positions),
            last_rows: optional(&raw.last_rows),
            generation_word: optional(&raw.generation_word),
        }
    }
}
