//! The cache and its sequences.
use crate::config::{narrow, wide, CacheConfig};
use crate::context::Context;
use crate::dlpack::{ManagedTensor, PoolView};
use crate::error::{check, Result};
use crate::step::{Batch, Step};
use crate::sys;
use std::ffi::c_void;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

/// Id of a sequence. Using the id of a sequence that is gone, or that is in another cache, is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// A row of a batch whose tokens are padding.
    pub const INERT: Seq = Seq(0);
}

/// A device's stream.
#[derive(Debug, Clone, Copy)]
pub struct Stream(*mut c_void);

impl Stream {
    /// The CPU has no streams.
    pub const NONE: Stream = Stream(null_mut());

    /// # Safety
    /// A stream of the cache's device. It must live until its work is done. Memory that a call on it borrows must stay
    /// valid and unchanged until the stream has done the call's work, which can be later than the end of the borrow.
    pub const unsafe fn from_raw(stream: *mut c_void) -> Self {
        Stream(stream)
    }

    #[inline]
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// Page pools for every layer of a model, and the sequences in them. A clone is a handle of the same cache. The last
/// handle, step or graph of the cache releases it. Sequences live until they are removed; dropping an id does nothing.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    raw: NonNull<sys::kvc_cache>,
    context: Context, // its callbacks outlive the cache
    page_size: usize,
}

// SAFETY: the header: any thread may call any function of a cache; what changes it is serialised inside.
unsafe impl Send for Owned {}
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created by us, once; no call is inside, since each borrows a Cache or a Step.
        unsafe { sys::kvc_cache_destroy(self.raw.as_ptr()) }
    }
}

impl Cache {
    /// Reserves the pools of every layer and all bookkeeping; nothing grows later.
    pub fn new(context: &Context, config: &CacheConfig) -> Result<Self> {
        config.with_raw(|config| {
            // SAFETY: the config lives during the call, and has no storages.
            unsafe { Self::create(context, config) }
        })
    }

    /// # Safety
    /// Creates a cache from a config of `kvcache::sys`.
    pub(crate) unsafe fn create(context: &Context, config: &sys::kvc_cache_config) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the caller's word.
        check(|error| unsafe { sys::kvc_cache_create(context.raw(), config, &mut raw, error) })?;
        let raw = NonNull::new(raw).expect("a created cache");
        let page_size = if config.page_size == 0 { 16 } else { config.page_size as usize };
        Ok(Self(Arc::new(Owned { raw, context: context.clone(), page_size })))
    }

    /// What `new` would allocate for a group, or for the whole cache (`None`).
    pub fn estimate(context: &Context, config: &CacheConfig, group: Option<usize>) -> Result<sys::kvc_estimate> {
        let mut estimate = sys::kvc_estimate::default();
        let group = group.map_or(-1, narrow);
        // SAFETY: the config lives during the call.
        config.with_raw(|config| {
            check(|error| unsafe { sys::kvc_cache_estimate(context.raw(), config, group, &mut estimate, error) })
        })?;
        Ok(estimate)
    }

    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Removes every sequence, everything that the prefix index holds, and every pin.
    pub fn clear(&self) -> Result<()> {
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_clear(self.raw(), error) })
    }

    /// Adds an empty sequence; takes no page.
    pub fn add(&self) -> Result<Seq> {
        let mut sequence = 0;
        // SAFETY: one element.
        check(|error| unsafe { sys::kvc_seq_add(self.raw(), 1, &mut sequence, error) })?;
        Ok(Seq(sequence))
    }

    /// Adds `n` sequences, or none.
    pub fn add_many(&self, n: usize) -> Result<Vec<Seq>> {
        let mut sequences = vec![Seq(0); self.bounded(n)];
        let pointer = sequences.as_mut_ptr().cast();
        // SAFETY: `bounded` elements; a larger n is refused before anything is written.
        check(|error| unsafe { sys::kvc_seq_add(self.raw(), wide(n), pointer, error) })?;
        Ok(sequences)
    }

    /// A count that the library may accept, so that a wrong one is its error and no failed allocation.
    fn bounded(&self, n: usize) -> usize {
        n.min(1 << 20) // above max_sequences of any cache
    }

    /// Frees every page that no other sequence shares. Sequences in an open step keep their pages until it closes.
    pub fn remove(&self, sequences: &[Seq]) -> Result<()> {
        let n = wide(sequences.len());
        // SAFETY: [n].
        check(|error| unsafe { sys::kvc_seq_remove(self.raw(), n, ids(sequences), error) })
    }

    /// A child of each parent, which shares every whole page and copies a partial last one.
    pub fn fork(&self, parents: &[Seq], stream: Stream) -> Result<Vec<Seq>> {
        self.fork_all(parents, None, stream)
    }

    /// Children that hold the first tokens of their parents: `positions[i]` tokens of `parents[i]`.
    pub fn fork_at(&self, parents: &[(Seq, usize)], stream: Stream) -> Result<Vec<Seq>> {
        let (sequences, positions) = unzip(parents);
        self.fork_all(&sequences, Some(&positions), stream)
    }

    fn fork_all(&self, parents: &[Seq], positions: Option<&[i64]>, stream: Stream) -> Result<Vec<Seq>> {
        let mut children = vec![Seq(0); parents.len()];
        let (n, positions) = (wide(parents.len()), positions.map_or(null(), <[i64]>::as_ptr));
        // SAFETY: three times [n].
        check(|error| unsafe {
            let to = children.as_mut_ptr().cast();
            sys::kvc_seq_fork(self.raw(), n, ids(parents), positions, to, stream.raw(), error)
        })?;
        Ok(children)
    }

    /// Drops each sequence's tokens from a length on, and every uncommitted tree node.
    pub fn truncate(&self, sequences: &[(Seq, usize)]) -> Result<()> {
        let (sequences, lengths) = unzip(sequences);
        // SAFETY: twice [n].
        check(|error| unsafe {
            sys::kvc_seq_truncate(self.raw(), wide(lengths.len()), ids(&sequences), lengths.as_ptr(), error)
        })
    }

    /// Keeps the path from a root of each tree to a node as tokens and drops the tree's other nodes; `None` drops all.
    pub fn commit(&self, leaves: &[(Seq, Option<usize>)], stream: Stream) -> Result<()> {
        let sequences: Vec<_> = leaves.iter().map(|leaf| leaf.0).collect();
        let leaves: Vec<_> = leaves.iter().map(|leaf| leaf.1.map_or(-1, narrow)).collect();
        // SAFETY: twice [n].
        check(|error| unsafe {
            let n = wide(leaves.len());
            sys::kvc_seq_commit(self.raw(), n, ids(&sequences), leaves.as_ptr(), stream.raw(), error)
        })
    }

    /// Length in tokens, without those of open steps and uncommitted tree nodes.
    pub fn length(&self, sequence: Seq) -> Result<usize> {
        let mut length = 0;
        // SAFETY: one element each.
        check(|error| unsafe { sys::kvc_seq_lengths(self.raw(), 1, &sequence.0, &mut length, error) })?;
        Ok(length as usize)
    }

    pub fn lengths(&self, sequences: &[Seq]) -> Result<Vec<usize>> {
        self.numbers(sequences, |n, sequences, lengths, error| {
            // SAFETY: twice [n].
            unsafe { sys::kvc_seq_lengths(self.raw(), n, sequences, lengths, error) }
        })
    }

    /// How many tokens each sequence, alone, could append in one step now. For a sequence with a tree: how many nodes.
    pub fn max_append(&self, sequences: &[Seq]) -> Result<Vec<usize>> {
        self.numbers(sequences, |n, sequences, tokens, error| {
            // SAFETY: twice [n].
            unsafe { sys::kvc_seq_max_append(self.raw(), n, sequences, tokens, error) }
        })
    }

    /// How many pages of a group the removal of each sequence, alone, would make available: those that no other sequence,
    /// pin, save or load holds. A page that the prefix index holds too counts, because it can be evicted then.
    pub fn exclusive_pages(&self, group: usize, sequences: &[Seq]) -> Result<Vec<usize>> {
        self.numbers(sequences, |n, sequences, pages, error| {
            // SAFETY: twice [n].
            unsafe { sys::kvc_seq_exclusive_pages(self.raw(), narrow(group), n, sequences, pages, error) }
        })
    }

    /// Lengths of encoder sequences in a cross group.
    pub fn encoder_lengths(&self, group: usize, sequences: &[Seq]) -> Result<Vec<usize>> {
        self.numbers(sequences, |n, sequences, lengths, error| {
            // SAFETY: twice [n].
            unsafe { sys::kvc_seq_encoder_lengths(self.raw(), narrow(group), n, sequences, lengths, error) }
        })
    }

    /// Numbers of uncommitted tree nodes.
    pub fn tree_nodes(&self, sequences: &[Seq]) -> Result<Vec<usize>> {
        let mut nodes = vec![0; sequences.len()];
        // SAFETY: twice [n].
        check(|error| unsafe {
            sys::kvc_seq_tree_nodes(self.raw(), wide(sequences.len()), ids(sequences), nodes.as_mut_ptr(), error)
        })?;
        Ok(nodes.into_iter().map(|nodes| nodes as usize).collect())
    }

    fn numbers(
        &self,
        sequences: &[Seq],
        fill: impl FnOnce(i64, *const u64, *mut i64, *mut sys::kvc_error) -> sys::kvc_status,
    ) -> Result<Vec<usize>> {
        let mut numbers = vec![0i64; sequences.len()];
        check(|error| fill(wide(sequences.len()), ids(sequences), numbers.as_mut_ptr(), error))?;
        Ok(numbers.into_iter().map(|number| number as usize).collect())
    }

    /// Page ids in one group; `None` where a page was freed, because it left a window.
    pub fn pages(&self, sequence: Seq, group: usize) -> Result<Vec<Option<u32>>> {
        let mut count = 0;
        loop {
            let mut pages = vec![0i32; count as usize];
            // SAFETY: as many as it says.
            let result = check(|error| unsafe {
                let capacity = wide(pages.len());
                sys::kvc_seq_pages(
                    self.raw(),
                    sequence.0,
                    narrow(group),
                    pages.as_mut_ptr(),
                    capacity,
                    &mut count,
                    error,
                )
            });
            match result {
                Err(error) if error.status() == crate::Status::BUFFER_TOO_SMALL => continue, // it grew meanwhile
                Err(error) => return Err(error),
                Ok(()) if count as usize > pages.len() => continue, // a capacity of 0 only asks
                Ok(()) => pages.truncate(count as usize),
            }
            return Ok(pages.into_iter().map(|page| u32::try_from(page).ok()).collect());
        }
    }

    /// The positions nearest to `position`, at or before it and at or after it, where fork and truncate work.
    pub fn nearest_positions(&self, sequence: Seq, position: usize) -> Result<(usize, Option<usize>)> {
        let (mut before, mut after) = (0, 0);
        // SAFETY: two numbers.
        check(|error| unsafe {
            sys::kvc_seq_nearest_position(self.raw(), sequence.0, wide(position), &mut before, &mut after, error)
        })?;
        Ok((before as usize, usize::try_from(after).ok()))
    }

    /// Keeps the recurrent states that the sequences have now, so that fork and truncate work at their present lengths.
    pub fn checkpoint(&self, sequences: &[Seq]) -> Result<()> {
        // SAFETY: [n].
        check(|error| unsafe { sys::kvc_seq_checkpoint(self.raw(), wide(sequences.len()), ids(sequences), error) })
    }

    /// Chooses longrope's factor set.
    pub fn set_rope(&self, sequences: &[Seq], set: RopeSet) -> Result<()> {
        let n = wide(sequences.len());
        // SAFETY: [n].
        check(|error| unsafe { sys::kvc_seq_set_rope(self.raw(), n, ids(sequences), set as i32, error) })
    }

    /// Gives the sequences a streaming window, or ends it (`None`).
    pub fn set_streaming(&self, sequences: &[Seq], window: Option<StreamingWindow>) -> Result<()> {
        let window = window.unwrap_or(StreamingWindow { sinks: 0, window: 0, prefix_is_sink: false });
        let sinks = vec![wide(window.sinks); sequences.len()];
        let windows = vec![wide(window.window); sequences.len()];
        let flags = if window.prefix_is_sink { sys::KVC_STREAMING_PREFIX_IS_SINK } else { 0 };
        let n = wide(sequences.len());
        // SAFETY: three times [n].
        check(|error| unsafe {
            sys::kvc_seq_set_streaming(self.raw(), n, ids(sequences), sinks.as_ptr(), windows.as_ptr(), flags, error)
        })
    }

    /// The sequence's sinks and window, in tokens; `None` if it does not stream.
    pub fn streaming(&self, sequence: Seq) -> Result<Option<(usize, usize)>> {
        let (mut sinks, mut window) = (0, 0);
        // SAFETY: one element each.
        check(|error| unsafe {
            sys::kvc_seq_get_streaming(self.raw(), 1, &sequence.0, &mut sinks, &mut window, error)
        })?;
        Ok((window != 0).then_some((sinks as usize, window as usize)))
    }

    /// Whether [`Cache::begin`] would succeed now. It returns the same error, and changes nothing.
    pub fn can_fit(&self, batch: &Batch) -> Result<()> {
        let batch = batch.raw()?;
        // SAFETY: the batch lives during the call.
        check(|error| unsafe { sys::kvc_cache_can_fit(self.raw(), &batch, error) })
    }

    /// Begins a step: reserves every page for its new tokens, or changes nothing.
    #[inline]
    pub fn begin(&self, batch: &Batch, stream: Stream) -> Result<Step> {
        let raw = batch.raw()?;
        let mut forward = 0;
        // SAFETY: the batch lives during the call.
        check(|error| unsafe { sys::kvc_forward_begin(self.raw(), &raw, stream.raw(), &mut forward, error) })?;
        Ok(Step::new(self.clone(), forward, batch.in_graph().cloned()))
    }

    /// Begins a step, runs `body` over it, and ends it. If `body` fails, or panics, the step is aborted.
    ///
    /// ```no_run
    /// # use kvcache::*;
    /// # fn run(cache: &Cache, batch: &Batch, attend: &Attend<'_>) -> Result<Vec<i32>> {
    /// cache.step(batch, Stream::NONE, |step| {
    ///     step.attend(0, attend)?;
    ///     step.last_rows()
    /// })
    /// # }
    /// ```
    pub fn step<T>(&self, batch: &Batch, stream: Stream, body: impl FnOnce(&Step) -> Result<T>) -> Result<T> {
        let step = self.begin(batch, stream)?;
        let value = body(&step)?;
        step.end()?;
        Ok(value)
    }

    /// Counts of one group or of the whole cache (`None`). For dashboards: it walks the page tables.
    pub fn stats(&self, group: Option<usize>) -> Result<sys::kvc_stats> {
        let mut stats = sys::kvc_stats::default();
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_stats(self.raw(), group.map_or(-1, narrow), &mut stats, error) })?;
        Ok(stats)
    }

    /// The cache at this moment, as one JSON object: the pages of each group, the sequences and which pages they share, the
    /// prefix index, tiers and open steps. No tokens. For dashboards: it walks the page tables.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the buffer has its capacity.
        crate::context::text(|buffer, capacity, length, error| unsafe {
            sys::kvc_cache_describe(self.raw(), buffer, capacity, length, error)
        })
    }

    /// A hash of all bookkeeping: equal after equal calls on equal configs.
    pub fn digest(&self) -> Result<u64> {
        let mut digest = 0;
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_digest(self.raw(), &mut digest, error) })?;
        Ok(digest)
    }

    /// Audits the bookkeeping.
    pub fn check_invariants(&self) -> Result<()> {
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_check_invariants(self.raw(), error) })
    }

    /// A view of a layer's page pool, without a copy. Consumers of DLPack may only read it. Later work on the stream
    /// sees what the cache's earlier calls stored.
    pub fn export_pool(&self, layer: usize, pool: Pool, stream: Stream) -> Result<PoolView> {
        self.export_pool_as(layer, pool, 0, stream)
    }

    /// The same for a kernel that stores K and V by itself.
    pub fn export_pool_writable(&self, layer: usize, pool: Pool, stream: Stream) -> Result<PoolView> {
        self.export_pool_as(layer, pool, sys::KVC_POOL_WRITABLE, stream)
    }

    fn export_pool_as(&self, layer: usize, pool: Pool, flags: u32, stream: Stream) -> Result<PoolView> {
        let mut tensor = null_mut();
        // SAFETY: a live cache.
        check(|error| unsafe {
            sys::kvc_cache_export_pool(self.raw(), narrow(layer), pool as i32, flags, &mut tensor, stream.raw(), error)
        })?;
        // SAFETY: returned to us. What writes it later is why a PoolView has no slice.
        let tensor = unsafe { ManagedTensor::from_raw(tensor) };
        Ok(PoolView(tensor.expect("an exported pool")))
    }

    /// The C handle, for calls of `kvcache::sys` that this crate lacks. `self` owns it.
    pub fn as_raw(&self) -> *mut sys::kvc_cache {
        self.raw()
    }

    pub(crate) fn tokens_of_page(&self) -> usize {
        self.0.page_size
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::kvc_cache {
        self.0.raw.as_ptr()
    }
}

/// A factor set of longrope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeSet {
    Short = sys::KVC_ROPE_SET_SHORT as isize,
    Long = sys::KVC_ROPE_SET_LONG as isize,
}

/// A streaming window: a query sees `window` tokens, of which `sinks` are the sequence's first ones and the others its
/// newest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamingWindow {
    pub sinks: usize,
    pub window: usize,
    /// The tokens that the sequence holds now become sinks too.
    pub prefix_is_sink: bool,
}

/// A part of a layer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// K and V together: `[pages, 2, kv heads, page size, head dim]`.
    Kv = sys::KVC_POOL_KV as isize,
    /// `[pages, kv heads, page size, head dim]`
    K = sys::KVC_POOL_K as isize,
    V = sys::KVC_POOL_V as isize,
    KScale = sys::KVC_POOL_K_SCALE as isize,
    VScale = sys::KVC_POOL_V_SCALE as isize,
}

#[inline]
fn ids(sequences: &[Seq]) -> *const u64 {
    sequences.as_ptr().cast() // Seq is a u64
}

fn unzip(pairs: &[(Seq, usize)]) -> (Vec<Seq>, Vec<i64>) {
    pairs.iter().map(|(sequence, number)| (*sequence, wide(*number))).unzip()
}
