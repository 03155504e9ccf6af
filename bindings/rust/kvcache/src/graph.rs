//! Graphs: steps whose calls are recorded once, and replayed.
use crate::cache::Cache;
use crate::config::narrow;
use crate::error::{check, Result};
use crate::step::{load_state, store_state, Append, Attend, Select};
use crate::sys;
use crate::tensor::{Tensor, TensorMut};
use std::ptr::null_mut;
use std::sync::Arc;

/// The largest step of a graph; 0 means the cache's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphConfig {
    pub max_sequences: usize,
    pub max_tokens: usize,
    /// Columns of block tables; 0 = the pages of the group.
    pub max_pages_per_row: usize,
}

/// Memory for one open step, at addresses that stay the same from step to step, for programs that are recorded once and
/// replayed. [`Batch::graph`](crate::Batch::graph) opens a step in it, which is a usual [`Step`](crate::Step). A
/// recorded program holds the graph. A call on the graph is a call on the step that is open in it at that time.
///
/// ```
/// # use kvcache::*;
/// /// A model of one layer, recorded once: a graph, and buffers that stay where they are.
/// struct Program {
///     graph: Graph,
///     q: Vec<f32>,
///     k: Vec<f32>,
///     v: Vec<f32>,
///     out: Vec<f32>,
/// }
///
/// impl Program {
///     fn replay(&mut self) -> Result<()> {
///         let shape = [4, 1, 16]; // max_tokens rows; those from the step's last token on are neither read nor written
///         let (q, k, v) = (&self.q, &self.k, &self.v);
///         let (q, k, v) = (Tensor::new(q, &shape)?, Tensor::new(k, &shape)?, Tensor::new(v, &shape)?);
///         self.graph.attend(0, &Attend::new(q, k, v, TensorMut::new(&mut self.out, &shape)?))
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # let context = Context::new(ContextConfig::new())?;
/// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
/// # let cache = Cache::new(&context, &CacheConfig { layers, capacity: Capacity::Tokens(256), ..CacheConfig::default() })?;
/// let graph = Graph::new(&cache, &GraphConfig { max_tokens: 4, ..GraphConfig::default() })?; // once
/// let numbers = vec![0.5f32; 4 * 16];
/// let (k, v, out) = (numbers.clone(), numbers.clone(), numbers.clone());
/// let mut program = Program { graph: graph.clone(), q: numbers, k, v, out };
///
/// let sequences = cache.add_many(3)?;
/// for batch in [Batch::new(&sequences[..1], &[4]), Batch::new(&sequences, &[1, 2, 1])] {
///     let step = cache.begin(&batch.graph(&graph), Stream::NONE)?;
///     program.replay()?;
///     step.end()?;
/// }
/// assert_eq!(cache.lengths(&sequences)?, [5, 2, 1]);
/// assert_eq!(program.replay().unwrap_err().status(), Status::STALE); // no step is open: it touched nothing
/// # Ok(())
/// # }
/// ```
///
/// Tables of its steps ([`Step::tables`](crate::Step::tables)) have the shapes of its capacity, and their arrays have
/// fixed addresses. Entries that a step does not use are inert. One graph serves programs of every size up to its
/// capacity.
///
/// A clone is a handle of the same graph. The last handle, or its last step, frees the graph; so does [`Graph::close`].
/// The graph keeps its cache alive. Any thread may call it, and gets BUSY while another call is in the step. If an
/// error of the device has closed a step, drop the step before the next one begins in its graph.
#[derive(Debug, Clone)]
pub struct Graph(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    cache: Cache,
    id: sys::kvc_forward,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: a graph of this cache, or an id that is gone: then this does nothing. No step is open in it, since each
        // has a Graph.
        unsafe { sys::kvc_graph_destroy(self.cache.raw(), self.id, null_mut()) };
    }
}

impl Graph {
    /// Makes the memory that its steps need. It does not count towards `max_open_steps`. At most 64 (TOO_MANY_FORWARDS).
    pub fn new(cache: &Cache, config: &GraphConfig) -> Result<Self> {
        let config = sys::kvc_graph_config {
            max_sequences: narrow(config.max_sequences),
            max_tokens: narrow(config.max_tokens),
            max_pages_per_row: narrow(config.max_pages_per_row),
            ..Default::default()
        };
        let mut id = 0;
        // SAFETY: the config lives during the call.
        check(|error| unsafe { sys::kvc_graph_create(cache.raw(), &config, &mut id, error) })?;
        Ok(Self(Arc::new(Owned { cache: cache.clone(), id })))
    }

    pub fn cache(&self) -> &Cache {
        &self.0.cache
    }

    /// The C id, for calls of `kvcache::sys` that this crate lacks. `self` owns it. Every step in the graph has this
    /// id.
    pub fn as_raw(&self) -> sys::kvc_forward {
        self.0.id
    }

    /// [`Step::append`](crate::Step::append) of the step that is open in the graph. STALE if none is open.
    pub fn append(&self, layer: usize, append: &Append<'_>) -> Result<()> {
        append.call(&self.0.cache, self.0.id, layer)
    }

    /// [`Step::attend`](crate::Step::attend) of the step that is open in the graph. STALE if none is open.
    #[inline]
    pub fn attend(&self, layer: usize, attend: &Attend<'_>) -> Result<()> {
        attend.call(&self.0.cache, self.0.id, layer)
    }

    /// [`Step::select`](crate::Step::select) of the step that is open in the graph. STALE if none is open.
    pub fn select(&self, layer: usize, select: &Select<'_>) -> Result<()> {
        select.call(&self.0.cache, self.0.id, layer)
    }

    /// [`Step::load_state`](crate::Step::load_state) of the step that is open in the graph. STALE if none is open.
    pub fn load_state(&self, layer: usize, state: usize, tensor: &mut TensorMut<'_>) -> Result<()> {
        load_state(&self.0.cache, self.0.id, layer, state, -1, tensor)
    }

    /// [`Step::load_state_before`](crate::Step::load_state_before) of the step that is open in the graph.
    pub fn load_state_before(
        &self,
        layer: usize,
        state: usize,
        token: usize,
        tensor: &mut TensorMut<'_>,
    ) -> Result<()> {
        load_state(&self.0.cache, self.0.id, layer, state, narrow(token), tensor)
    }

    /// [`Step::store_state`](crate::Step::store_state) of the step that is open in the graph. STALE if none is open.
    pub fn store_state(&self, layer: usize, state: usize, tensor: &Tensor<'_>) -> Result<()> {
        store_state(&self.0.cache, self.0.id, layer, state, -1, tensor)
    }

    /// [`Step::store_state_after`](crate::Step::store_state_after) of the step that is open in the graph.
    pub fn store_state_after(&self, layer: usize, state: usize, token: usize, tensor: &Tensor<'_>) -> Result<()> {
        store_state(&self.0.cache, self.0.id, layer, state, narrow(token), tensor)
    }

    /// Frees the graph now, even if clones exist. Later calls on it return STALE_ID. BUSY while a step is open in it.
    pub fn close(&self) -> Result<()> {
        // SAFETY: an id that may be gone: an error. Whatever an open step lent stays: BUSY.
        check(|error| unsafe { sys::kvc_graph_destroy(self.0.cache.raw(), self.0.id, error) })
    }
}
