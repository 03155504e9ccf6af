//! Events: what the prefix index and the tiers hold, told to routers.
use crate::cache::Cache;
use crate::config::wide;
use crate::error::{check, Error, Result, Status};
use crate::keys::PageKey;
use crate::sys;
use std::ptr::null_mut;

/// A page became findable or stopped being so, or all pages did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Stored(StoredPage),
    Removed {
        group: usize,
        key: PageKey,
        /// As in [`StoredPage`].
        tier: usize,
    },
    /// Of all groups and tiers.
    Cleared,
}

/// A whole page that can be found in a group, or in a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPage {
    pub group: usize,
    pub key: PageKey,
    /// Key of the page before it; `None` for the first page of a sequence.
    pub parent: Option<PageKey>,
    /// Of its first token in its sequence.
    pub position: usize,
    pub tokens: Vec<i32>,
    /// That alone published it; 0 = none, or several.
    pub session: u64,
    /// Its salt is not 0.
    pub salted: bool,
    /// Where it is: 0 = in the pools; i = in the tier that was added i-th, counted from 1.
    pub tier: usize,
}

/// Events that follow each other, or the pages of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRange {
    /// Of the cache: random, never 0.
    pub epoch: u64,
    /// Number of the first event. Above the number that was wanted: the ones between are lost, and a snapshot is needed.
    pub begin: u64,
    /// Number of the event after the last one: the next to read.
    pub end: u64,
    /// Number that the next event will get.
    pub newest: u64,
    pub events: Vec<Event>,
}

/// How a message of events is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageFormat {
    /// In seconds.
    pub timestamp: f64,
    pub data_parallel_rank: Option<u16>,
    /// Events as arrays, as older consumers read them; else as maps.
    pub arrays: bool,
    /// Keys as integers of 64 bits; else as 32 bytes.
    pub short_hashes: bool,
    /// Bytes of a message that [`Cache::event_message`] writes at most.
    pub max_bytes: usize,
}

impl Default for MessageFormat {
    fn default() -> Self {
        Self { timestamp: 0.0, data_parallel_rank: None, arrays: false, short_hashes: false, max_bytes: 1 << 20 }
    }
}

/// One message in the form that vLLM's consumers read, and the numbers of its events as in [`EventRange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventMessage {
    pub epoch: u64,
    pub begin: u64,
    pub end: u64,
    pub newest: u64,
    /// Events, or pages of a snapshot.
    pub count: usize,
    /// MessagePack; empty if there is no event.
    pub payload: Vec<u8>,
}

/// Which call of the header.
#[derive(Clone, Copy)]
enum Call {
    Read,
    Snapshot,
}

/// Events of the prefix index. The cache needs [`crate::CacheConfig::events_capacity`].
impl Cache {
    /// The events from number `next` on, at most so many.
    pub fn read_events(&self, next: u64, most: usize) -> Result<EventRange> {
        let there = self.events(Call::Read, next, 0)?;
        self.events(Call::Read, next, most.min((there.newest - there.begin) as usize))
    }

    /// An [`Event::Stored`] for each page that the index holds, parents first, and then for those of tiers. Read on from its
    /// `end`.
    pub fn event_snapshot(&self) -> Result<EventRange> {
        self.grown(|pages, _| self.events(Call::Snapshot, 0, pages))
    }

    /// One message with the events from number `next` on: at most 4096, and as many as fit.
    pub fn event_message(&self, next: u64, format: &MessageFormat) -> Result<EventMessage> {
        self.message(Call::Read, next, format, format.max_bytes)
    }

    /// One message that clears all blocks, and then stores each page of [`Cache::event_snapshot`].
    pub fn event_snapshot_message(&self, format: &MessageFormat) -> Result<EventMessage> {
        self.grown(|_, bytes| self.message(Call::Snapshot, 0, format, bytes))
    }

    /// Calls with the pages and bytes of a snapshot until they are enough: the index may grow meanwhile.
    fn grown<T>(&self, call: impl Fn(usize, usize) -> Result<T>) -> Result<T> {
        let mut range = sys::kvc_events_range::default();
        loop {
            // SAFETY: without a buffer the call fills the range alone.
            unsafe { self.fill(Call::Snapshot, &sys::kvc_events_args::default(), &mut range)? };
            let more = |size: i64| size as usize + size as usize / 8 + 16;
            match call(more(range.count), more(range.num_bytes)) {
                Err(error) if error.status() == Status::BUFFER_TOO_SMALL => continue,
                result => return result,
            }
        }
    }

    /// # Safety
    /// Buffers of the lengths that are said.
    unsafe fn fill(&self, call: Call, args: &sys::kvc_events_args, range: &mut sys::kvc_events_range) -> Result<()> {
        // SAFETY: the caller's word.
        check(|error| unsafe {
            match call {
                Call::Read => sys::kvc_events_read(self.raw(), args, range, error),
                Call::Snapshot => sys::kvc_events_snapshot(self.raw(), args, range, error),
            }
        })
    }

    fn events(&self, call: Call, next: u64, most: usize) -> Result<EventRange> {
        let mut range = sys::kvc_events_range::default();
        let mut events = room(most, NO_EVENT)?;
        let mut tokens = room(most.saturating_mul(self.tokens_of_page()), 0_i32)?;
        let args = sys::kvc_events_args {
            next,
            events: if most == 0 { null_mut() } else { events.as_mut_ptr() },
            tokens: tokens.as_mut_ptr(),
            capacity: wide(most),
            event_size: size_of::<sys::kvc_event>() as u32,
            ..Default::default()
        };
        // SAFETY: the arrays have `most` events, and a page of tokens for each.
        unsafe { self.fill(call, &args, &mut range)? };
        let pages = tokens.chunks_exact(self.tokens_of_page());
        let count = if most == 0 { 0 } else { range.count as usize };
        let events = events.iter().zip(pages).take(count).map(|(event, tokens)| event_of(event, tokens)).collect();
        Ok(EventRange { epoch: range.epoch, begin: range.begin, end: range.end, newest: range.newest, events })
    }

    fn message(&self, call: Call, next: u64, format: &MessageFormat, max_bytes: usize) -> Result<EventMessage> {
        let mut range = sys::kvc_events_range::default();
        let mut bytes = room(max_bytes.max(1), 0_u8)?;
        let flag = |condition, bit: u32| if condition { bit } else { 0 };
        let args = sys::kvc_events_args {
            flags: flag(format.arrays, sys::KVC_EVENTS_ARRAYS)
                | flag(format.short_hashes, sys::KVC_EVENTS_SHORT_HASHES),
            next,
            bytes: bytes.as_mut_ptr(),
            capacity_bytes: wide(max_bytes),
            timestamp: format.timestamp,
            data_parallel_rank: format.data_parallel_rank.map_or(-1, i32::from),
            ..Default::default()
        };
        // SAFETY: the buffer has `max_bytes` bytes.
        unsafe { self.fill(call, &args, &mut range)? };
        bytes.truncate(range.num_bytes as usize);
        Ok(EventMessage {
            epoch: range.epoch,
            begin: range.begin,
            end: range.end,
            newest: range.newest,
            count: range.count as usize,
            payload: bytes,
        })
    }
}

const NO_EVENT: sys::kvc_event = sys::kvc_event {
    number: 0,
    kind: 0,
    group: 0,
    flags: 0,
    tier: 0,
    position: 0,
    session: 0,
    key: [0; 32],
    parent: [0; 32],
};

/// A vector of so many values, or an error where memory is short.
fn room<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    if values.try_reserve_exact(count).is_err() {
        return Err(Error::misuse(Status::OUT_OF_MEMORY, format!("a buffer of {count} elements")));
    }
    values.resize(count, value);
    Ok(values)
}

fn event_of(event: &sys::kvc_event, tokens: &[i32]) -> Event {
    let (group, key, tier) = (event.group as usize, event.key, event.tier as usize);
    match event.kind as u32 {
        sys::KVC_EVENT_STORED => Event::Stored(StoredPage {
            group,
            key,
            parent: (event.flags & sys::KVC_EVENT_HAS_PARENT != 0).then_some(event.parent),
            position: event.position as usize,
            tokens: tokens.to_vec(),
            session: event.session,
            salted: event.flags & sys::KVC_EVENT_SALTED != 0,
            tier,
        }),
        sys::KVC_EVENT_REMOVED => Event::Removed { group, key, tier },
        _ => Event::Cleared,
    }
}
