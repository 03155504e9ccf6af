//! Page pools that the cache adopts, and caches without pools.
use crate::cache::Cache;
use crate::config::{wide, CacheConfig};
use crate::context::Context;
use crate::dlpack::ManagedTensor;
use crate::error::{check, Error, Result, Status};
use crate::sys;

/// The page pool of a layer, with any strides and innermost stride 1. Pools may interleave, but not overlap.
#[derive(Debug)]
pub enum Pools {
    /// K and V in one: `[>= pages, 2, kv heads, page size, head dim]`
    Kv(ManagedTensor),
    /// K and V apart: `[>= pages, kv heads, page size, head dim]`, and V with its own dim.
    Separate { k: ManagedTensor, v: ManagedTensor },
    /// Whole rows of a latent layer: `[>= pages, 1, page size, head dim]`
    Latent(ManagedTensor),
}

impl Cache {
    /// Creates a cache in which some layers keep K and V in the given pools: `(layer, pools)` for each. The cache owns
    /// the pools. It releases them when the cache and every view of it are gone; if the call fails, it releases them at
    /// once.
    ///
    /// ```
    /// # use kvcache::*;
    /// # fn main() -> Result<()> {
    /// # let context = Context::new(ContextConfig::new())?;
    /// let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 64, ..Layer::default() }];
    /// let config = CacheConfig { layers, capacity: Capacity::Pages(8), page_size: 16, ..CacheConfig::default() };
    /// let pool = ManagedTensor::from_vec(vec![0f32; 8 * 2 * 16 * 64], &[8, 2, 1, 16, 64])?;
    /// let cache = Cache::with_pools(&context, &config, vec![(0, Pools::Kv(pool))])?;
    /// # drop(cache);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_pools(context: &Context, config: &CacheConfig, pools: Vec<(usize, Pools)>) -> Result<Self> {
        let adjust = |layers: &mut [sys::kvc_layer_config]| {
            let num_layers = layers.len();
            for (layer, pools) in &pools {
                let Some(raw) = layers.get_mut(*layer) else {
                    let message = format!("pools for layer {layer} of {num_layers}");
                    return Err(Error::misuse(Status::OUT_OF_RANGE, message));
                };
                if !(raw.kv_storage.is_null() && raw.k_storage.is_null()) {
                    return Err(Error::misuse(Status::DUPLICATE, format!("layer {layer} has pools twice")));
                }
                match pools {
                    Pools::Kv(kv) => raw.kv_storage = kv.as_raw(),
                    Pools::Separate { k, v } => (raw.k_storage, raw.v_storage) = (k.as_raw(), v.as_raw()),
                    Pools::Latent(rows) => raw.k_storage = rows.as_raw(),
                }
            }
            Ok(())
        };
        // SAFETY: the config lives during the call, and the library owns the storages from its success on.
        let cache = config.with_raw_layers(adjust, |config| unsafe { Self::create(context, config) })?;
        for (_, pools) in pools {
            match pools {
                Pools::Kv(tensor) | Pools::Latent(tensor) => drop(tensor.into_raw()),
                Pools::Separate { k, v } => drop((k.into_raw(), v.into_raw())),
            }
        }
        Ok(cache)
    }

    /// The copies that a cache without storage leaves to the engine. Make them one after another, in this order. Call
    /// it after forks and commits, before the next [`Cache::begin`], which is else refused with ORDER; and after
    /// `begin`, before its step reads.
    ///
    /// ```
    /// # use kvcache::*;
    /// # fn main() -> Result<()> {
    /// # let context = Context::new(ContextConfig::new())?;
    /// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
    /// # let capacity = Capacity::Tokens(256);
    /// let cache = Cache::new(&context, &CacheConfig { layers, capacity, storage: Storage::None, ..CacheConfig::default() })?;
    /// let parent = cache.add()?;
    /// cache.begin(&Batch::new(&[parent], &[20]), Stream::NONE)?.end()?; // nothing to append: the pools are ours
    /// let child = cache.fork(&[parent], Stream::NONE)?[0];
    /// for copy in cache.take_copies()? {
    ///     // in each layer of copy.group: copy.count tokens from slot copy.source_slot on to copy.target_slot on
    ///     assert_eq!(copy.count, 4); // of the partial last page
    /// }
    /// cache.begin(&Batch::new(&[child], &[1]), Stream::NONE)?.end()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_copies(&self) -> Result<Vec<TokenCopy>> {
        let (mut count, item_size) = (0, size_of::<sys::kvc_copy>() as u32);
        loop {
            let mut copies: Vec<sys::kvc_copy> = Vec::with_capacity(count as usize);
            let (pointer, capacity) = (copies.as_mut_ptr(), count);
            // SAFETY: room for as many as it says.
            let result = check(|error| unsafe {
                sys::kvc_cache_take_copies(self.raw(), pointer, item_size, wide(capacity as usize), &mut count, error)
            });
            match result {
                Err(error) if error.status() == Status::BUFFER_TOO_SMALL => continue, // more came meanwhile
                Err(error) => return Err(error),
                Ok(()) if count > capacity => continue, // a capacity of 0 only asks
                // SAFETY: filled.
                Ok(()) => unsafe { copies.set_len(count as usize) },
            }
            return Ok(copies.iter().map(TokenCopy::from_raw).collect());
        }
    }
}

/// Tokens to copy in each layer of a group. A slot is page * page size + offset. Source and target each lie in one
/// page. They may overlap, with the target below the source, so copy as `memmove` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCopy {
    pub source_slot: usize,
    pub target_slot: usize,
    pub group: usize,
    /// Tokens, 1 or more.
    pub count: usize,
}

impl TokenCopy {
    fn from_raw(raw: &sys::kvc_copy) -> Self {
        Self {
            source_slot: raw.source_slot as usize,
            target_slot: raw.target_slot as usize,
            group: raw.group as usize,
            count: raw.count as usize,
        }
    }
}
