//! Tables for other kernels: what attention kernels of the caller's own want to know of a step.
use crate::config::narrow;
use crate::error::{check, Error, Result, Status};
use crate::step::Step;
use crate::sys;
use crate::tensor::Tensor;

/// Tables of one step, in memory of the library. Rows of a table are rows of the batch, in their order, unless a row is cut
/// (chunks) or branches; `batch_rows` says whose each is. i32 and compact but where it says otherwise:
/// `tables.cache_seqlens.as_slice::<i32>()`. They go into [`crate::flash_attn_with_kvcache`] as they are.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tables<'a> {
    /// A row's queries are the last of its keys, and each sees those up to itself; else all of them.
    pub causal: bool,
    /// R, rows of the table.
    pub num_rows: usize,
    /// Of all rows: T.
    pub num_queries: usize,
    /// Of `block_table` and the CSR arrays: the group's, or 1.
    pub page_size: usize,
    /// Most queries of a row.
    pub max_seqlen_q: usize,
    /// The largest of `cache_seqlens`.
    pub max_seqlen_k: usize,
    /// Columns of `block_table`.
    pub max_pages: usize,
    /// Entries of `indices` that are used.
    pub num_pages: usize,
    /// The last of `cu_seqlens_k`.
    pub num_keys: usize,
    /// Of a plan the number of the build, of a step in a graph one of the graph's own; else 0.
    pub generation: u64,
    /// `[R]`: tokens in the row's pages up to its last key, `leftpad` and hole included.
    pub cache_seqlens: Tensor<'a>,
    /// `[R + 1]`: the row's queries are tokens `[cu_seqlens_q[r], cu_seqlens_q[r + 1])` of the step.
    pub cu_seqlens_q: Tensor<'a>,
    /// `[R + 1]`: sums of the keys that rows have.
    pub cu_seqlens_k: Tensor<'a>,
    /// `[R]`: position of the row's first key, sinks aside; 0 where keys are listed one by one.
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
    /// `[R]`, only if a row streams: the row's first tokens, that every query sees ...
    pub sink_tokens: Option<Tensor<'a>>,
    /// ... and the tokens after them that no query sees.
    pub hole_tokens: Option<Tensor<'a>>,
    /// i64 `[T]`: slot of each new token; -1 = padding.
    pub slot_mapping: Option<Tensor<'a>>,
    /// `[T]`: position of each new token, by depth in trees.
    pub positions: Option<Tensor<'a>>,
    /// `[rows of the batch]`: index of the row's last token; -1 = none.
    pub last_rows: Option<Tensor<'a>>,
    /// i64 `[1]`, of a plan or a graph: what kernels of a captured graph compare; 0 = stale.
    pub generation_word: Option<Tensor<'a>>,
}

/// Which keys of each row a table names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Part {
    /// All.
    #[default]
    Whole = sys::KVC_TABLES_WHOLE as isize,
    /// Steps that branch: keys that all branches share.
    Prefix = sys::KVC_TABLES_PREFIX as isize,
    /// And each branch's own: a row a token, with its visible ancestors and itself.
    Branches = sys::KVC_TABLES_BRANCHES as isize,
    /// Plans with `encoder_lens`: the encoder's keys.
    Encoder = sys::KVC_TABLES_ENCODER as isize,
}

/// How the tables of a step are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TablesOptions {
    pub part: Part,
    /// Tables of page size 1: slots where pages were, and no leftpad.
    pub slots: bool,
    /// What `block_table` has after a row's pages; `None`: -1, in a graph 0.
    pub pad_value: Option<i32>,
    pub arrays: Arrays,
}

/// Which of a table's arrays are made; the default is all, and none of the three counts as all.
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

/// Tables that a step has given out: it may not make them anew, since they may be borrowed still.
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
    /// They stay as they are while the step is open. So, of one group, part and kind (`slots`), other padding and arrays
    /// cannot be asked for (INVALID_ARGUMENT) until [`Step::release_tables`], and in a graph never: each table of it keeps
    /// the arrays and the padding that were asked for first.
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

    /// Nothing borrows the step's tables any more: they may be made in other ways.
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
