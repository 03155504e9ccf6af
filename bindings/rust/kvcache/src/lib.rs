#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations, unsafe_op_in_unsafe_fn)]

mod cache;
#[cfg(feature = "candle")]
pub mod candle;
mod config;
mod context;
mod dlpack;
mod error;
mod events;
mod export;
mod graph;
mod keys;
mod names;
mod plan;
mod pools;
mod prefix;
mod save;
mod stateless;
mod step;
mod tables;
mod tensor;
mod tiers;
mod transfers;

pub use cache::{Cache, Pool, RopeSet, Seq, Stream, StreamingWindow};
pub use config::{
    CacheConfig, Capacity, Group, Layer, LongRope, PrefixPolicy, PrefixSharing, Rope, RopeMode, RopeScaling, Row,
    RowFormat, State, Storage, Visibility, Yarn,
};
pub use context::{Context, ContextConfig, LogLevel};
pub use dlpack::{ManagedTensor, PoolView};
pub use error::{Error, Failure, Result, Status};
pub use events::{Event, EventMessage, EventRange, MessageFormat, StoredPage};
pub use export::{ExportParts, Exported, Import};
pub use graph::{Graph, GraphConfig};
pub use half::{bf16, f16};
pub use keys::{page_keys, MediaSpan, PageKey, PageKeys};
pub use kvcache_sys as sys;
pub use plan::{GraphCapacity, Plan, PlanConfig, PlanMode, PlanStep, PlanTable};
pub use pools::{Pools, TokenCopy};
pub use prefix::{PrefixHit, PrefixOptions, PrefixPin, PrefixPublished, PrefixQuery};
pub use save::SaveOptions;
pub use stateless::{append_slots, flash_attn_with_kvcache, AppendSlots, FlashAttn, FlashCache, Rotary};
pub use step::{merge_states, Append, Attend, Batch, Canceller, Keys, Select, Step};
/// What a cache would need.
pub use sys::kvc_estimate as Estimate;
/// Counts of a cache or a group.
pub use sys::kvc_stats as Stats;
pub use tables::{Arrays, Part, Tables, TablesOptions};
pub use tensor::{DType, Device, Element, Tensor, TensorMut, MAX_RANK};
pub use tiers::{
    DiskTierOptions, HostTierOptions, LoadJob, LoadOptions, PendingLoad, PendingOptions, TierReads, TierStore,
    TierSync, TierTraffic,
};
pub use transfers::{ReceiveOptions, Transfer, TransferProgress};

/// Version of the loaded library, "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: takes nothing.
    error::static_text(unsafe { sys::kvc_version() })
}

/// What the library was built with, as one JSON object.
pub fn build_info() -> &'static str {
    // SAFETY: takes nothing.
    error::static_text(unsafe { sys::kvc_build_info() })
}

// The threading rules of the header, which a change must not break in silence. (That a Step is not Sync: its page.)
const _: () = {
    const fn send<T: Send>() {}
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Context>();
    send_and_sync::<Cache>();
    send_and_sync::<Canceller>();
    send_and_sync::<Graph>();
    send_and_sync::<LoadJob>();
    send_and_sync::<Transfer>();
    send_and_sync::<Batch>();
    send_and_sync::<ManagedTensor>();
    send_and_sync::<Tensor<'_>>();
    send_and_sync::<Error>();
    send::<TensorMut<'_>>();
    send::<Attend<'_>>();
    send::<Step>();
    send::<Plan>();
    send_and_sync::<Tables<'_>>();
};
