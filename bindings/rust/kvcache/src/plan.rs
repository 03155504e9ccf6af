//! Plans: tables for a server with its own allocator.
use crate::cache::Stream;
use crate::config::{narrow, wide};
use crate::context::Context;
use crate::error::{check, Result};
use crate::sys;
use crate::tables::{Arrays, Part, Tables};
use crate::tensor::{pointer, Tensor};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

/// A kind of step: [`Plan::new`] takes it. 0 and `None` mean the header's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanConfig {
    pub mode: PlanMode,
    /// Tokens a page; 0 = 16.
    pub page_size: usize,
    /// Tables of page size 1: slots in place of pages, and no leftpad.
    pub slots: bool,
    /// The padding of `block_table` after a row's pages; `None`: -1, in a graph 0.
    pub pad_value: Option<i32>,
    /// `seq_lens` count the step's new tokens (not in `DraftDecode`); a row of 0 is inert.
    pub lengths_with_new: bool,
    pub arrays: Arrays,
    /// Arrays of this capacity, whose addresses never change.
    pub graph: Option<GraphCapacity>,
    /// Queries see this many keys, themselves included; 0 = all.
    pub window: usize,
    /// Queries see their chunk up to themselves; 0 = all.
    pub chunk: usize,
    /// Pages of the server's pool, against which tables are checked; 0 = unknown.
    pub num_pool_pages: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PlanMode {
    /// One new token a row.
    #[default]
    Decode,
    /// `append_lengths[i]` new tokens: prefill with or without a cached prefix, rows that decode beside it, draft
    /// extend.
    Extend,
    /// This many new tokens a row: a chain, or a tree by `tree_parents`.
    Verify { num_draft_tokens: usize },
    /// Step s adds token s to each of `top_k` branches (0 = 1): all steps in one build.
    DraftDecode { num_steps: usize, top_k: usize },
}

/// The largest batch of a plan that is recorded in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphCapacity {
    pub max_rows: usize,
    /// `Extend`: new tokens of a batch; else 0.
    pub max_tokens: usize,
    pub max_pages_per_row: usize,
}

/// A step's arrays, on the host: those of one dimension i32 or i64, compact; tables i32.
#[derive(Debug, Clone, Copy)]
pub struct PlanStep<'a> {
    /// `[B]`: tokens of each row before the step, without encoder tokens.
    pub seq_lens: Tensor<'a>,
    pub table: PlanTable<'a>,
    /// `Extend`: `[B]` new tokens.
    pub append_lengths: Option<Tensor<'a>>,
    /// `[B]`: rows of the table; -1 = inert. `None`: row i is row i.
    pub rows: Option<Tensor<'a>>,
    /// `[B]`: encoder tokens that are stored before the row's own.
    pub encoder_lens: Option<Tensor<'a>>,
    /// `Verify`: `[B * num_draft_tokens]`: the parent of each node within its row; -1 = root.
    pub tree_parents: Option<Tensor<'a>>,
    /// A promise that the rows are those of the last build, in the same order, and have only grown. Then only new
    /// tokens are read.
    pub rows_grew: bool,
}

/// Where the tokens of the server's rows are: `[rows, columns]`.
#[derive(Debug, Clone, Copy)]
pub enum PlanTable<'a> {
    /// Page ids.
    Pages(Tensor<'a>),
    /// `req_to_token`: the slot of each token.
    Slots(Tensor<'a>),
}

impl<'a> PlanStep<'a> {
    pub fn new(seq_lens: Tensor<'a>, table: PlanTable<'a>) -> Self {
        let none = None;
        Self {
            seq_lens,
            table,
            append_lengths: none,
            rows: none,
            encoder_lens: none,
            tree_parents: none,
            rows_grew: false,
        }
    }
}

/// Makes tables of one kind of step, and owns their arrays.
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// let context = Context::new(ContextConfig::new())?;
/// let mode = PlanMode::Verify { num_draft_tokens: 2 };
/// let mut plan = Plan::new(&context, &PlanConfig { mode, page_size: 4, ..PlanConfig::default() })?;
///
/// let (lengths, pages) = ([3, 5], [7, 8, 0, 1]); // each step: tokens of each row, pages of each row
/// let table = PlanTable::Pages(Tensor::new(&pages, &[2, 2])?);
/// plan.build(&PlanStep::new(Tensor::new(&lengths, &[2])?, table), Stream::NONE)?;
/// let tables = plan.tables(0, Part::Whole)?;
/// assert_eq!(tables.cache_seqlens.as_slice::<i32>()?, [5, 7]);
/// assert_eq!(tables.slot_mapping.unwrap().as_slice::<i64>()?, [7 * 4 + 3, 8 * 4, 1 * 4 + 1, 1 * 4 + 2]);
/// # Ok(())
/// # }
/// ```
///
/// One thread at a time may use it (`Send`, not `Sync`). Tables borrow the plan, so drop them before the next build.
///
/// ```compile_fail
/// # use kvcache::*;
/// fn stale(plan: &mut Plan, step: &PlanStep<'_>) -> Result<usize> {
///     let tables = plan.tables(0, Part::Whole)?;
///     plan.build(step, Stream::NONE)?;
///     Ok(tables.num_rows)
/// }
/// ```
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<kvcache::Plan>();
/// ```
#[derive(Debug)]
pub struct Plan {
    raw: NonNull<sys::kvc_plan>,
    _context: Context,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: the header: any thread, one at a time.
unsafe impl Send for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: created by us, once; what it lent borrows `self`.
        unsafe { sys::kvc_plan_destroy(self.raw.as_ptr()) }
    }
}

impl Plan {
    pub fn new(context: &Context, config: &PlanConfig) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the config lives during the call.
        check(|error| unsafe { sys::kvc_plan_create(context.raw(), &config.raw(), &mut raw, error) })?;
        let raw = NonNull::new(raw).expect("a created plan");
        Ok(Self { raw, _context: context.clone(), one_thread: PhantomData })
    }

    /// Makes the tables of a step, with all its draft steps and parts, and returns the number of the build. If it
    /// fails, the arrays do not change, and [`Plan::tables`] returns STALE until a build succeeds.
    pub fn build(&mut self, step: &PlanStep<'_>, stream: Stream) -> Result<u64> {
        let raw = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::raw);
        let (seq_lens, append_lengths, rows) = (step.seq_lens.raw(), raw(&step.append_lengths), raw(&step.rows));
        let (encoder_lens, tree_parents) = (raw(&step.encoder_lens), raw(&step.tree_parents));
        let (pages, slots) = match &step.table {
            PlanTable::Pages(table) => (Some(table.raw()), None),
            PlanTable::Slots(table) => (None, Some(table.raw())),
        };
        let args = sys::kvc_plan_args {
            flags: if step.rows_grew { sys::KVC_PLAN_ROWS_GREW } else { 0 },
            seq_lens: &seq_lens,
            append_lengths: pointer(&append_lengths),
            rows: pointer(&rows),
            block_table: pointer(&pages),
            req_to_token: pointer(&slots),
            encoder_lens: pointer(&encoder_lens),
            tree_parents: pointer(&tree_parents),
            ..Default::default()
        };
        let mut generation = 0;
        // SAFETY: tensors that borrow their memory; the library checks shapes and entries. Nothing borrows the plan's arrays.
        check(|error| unsafe { sys::kvc_plan_build(self.raw.as_ptr(), &args, stream.raw(), &mut generation, error) })?;
        Ok(generation)
    }

    /// The tables of the last build: for `DraftDecode` those of step `step`, else those of step 0.
    pub fn tables(&self, step: usize, part: Part) -> Result<Tables<'_>> {
        let mut raw = sys::kvc_tables { part: part as i32, ..Default::default() };
        // SAFETY: filled by the library.
        check(|error| unsafe { sys::kvc_plan_tables(self.raw.as_ptr(), narrow(step), &mut raw, error) })?;
        // SAFETY: valid until the next build, which takes the plan exclusively.
        Ok(unsafe { Tables::from_raw(&raw) })
    }

    /// Checks that the arrays hold build `generation`, before recorded calls over them are replayed. Else STALE.
    pub fn check(&self, generation: u64) -> Result<()> {
        // SAFETY: a live plan.
        check(|error| unsafe { sys::kvc_plan_check(self.raw.as_ptr(), generation, error) })
    }

    /// The C handle, for calls of `kvcache::sys` that this crate lacks. `self` owns it.
    pub fn as_raw(&self) -> *mut sys::kvc_plan {
        self.raw.as_ptr()
    }
}

impl PlanConfig {
    fn raw(&self) -> sys::kvc_plan_config {
        let when = |condition, flag| if condition { flag } else { 0 };
        let (mode, num_draft_tokens, num_steps, top_k) = match self.mode {
            PlanMode::Decode => (sys::KVC_PLAN_DECODE, 0, 0, 0),
            PlanMode::Extend => (sys::KVC_PLAN_EXTEND, 0, 0, 0),
            PlanMode::Verify { num_draft_tokens } => (sys::KVC_PLAN_VERIFY, num_draft_tokens, 0, 0),
            PlanMode::DraftDecode { num_steps, top_k } => (sys::KVC_PLAN_DRAFT_DECODE, 0, num_steps, top_k),
        };
        let graph = self.graph.unwrap_or_default();
        sys::kvc_plan_config {
            flags: when(self.graph.is_some(), sys::KVC_PLAN_GRAPH)
                | when(self.pad_value.is_some(), sys::KVC_PLAN_PAD_VALUE)
                | when(self.slots, sys::KVC_PLAN_SLOTS)
                | when(self.lengths_with_new, sys::KVC_PLAN_LENGTHS_WITH_NEW),
            mode: mode as i32,
            page_size: narrow(self.page_size),
            num_draft_tokens: narrow(num_draft_tokens),
            num_steps: narrow(num_steps),
            top_k: narrow(top_k),
            pad_value: self.pad_value.unwrap_or(0),
            arrays: self.arrays.raw(),
            max_rows: narrow(graph.max_rows),
            max_tokens: narrow(graph.max_tokens),
            max_pages_per_row: narrow(graph.max_pages_per_row),
            window_tokens: wide(self.window),
            chunk_tokens: wide(self.chunk),
            num_pool_pages: wide(self.num_pool_pages),
            ..Default::default()
        }
    }
}
