//! A tier in host memory, as a plug-in in Rust: examples/tier_memory.c in another language. docs/reference/tiers.md explains the
//! rules. It needs no crate:
//!
//!     rustc --edition 2021 -O --crate-type cdylib -o libtier_memory.so examples/tier_memory.rs
//!
//! Ownership: `self_` of the table is a boxed `Memory`, which `close` drops. Panics: none leaves a function, because nothing here
//! panics. Memory for objects is reserved by a call that can fail.
//!
//! SPDX-License-Identifier: Apache-2.0
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard};

const VERSION: u32 = 2; // KVC_TIER_VERSION
const MAX_OBJECTS: usize = 1024;
const OPEN_ITEMS: i64 = 256;
const OK: i32 = 0; // and the other results of kvcache_tier.h that this tier gives
const HIT: i32 = 1;
const MISS: i32 = 2;
const RETRY: i32 = 4;
const FAILED: i32 = 6;

type Key = [u8; 32];

// ---- The structs of kvcache_tier.h, and kvc_error of kvcache.h

#[repr(C)]
pub struct Error {
    struct_size: u32,
    code: i32,
    index: i64,
    required: i64,
    available: i64,
    group: i64,
    message: [u8; 472],
}

#[repr(C)]
pub struct Found {
    result: i32,
    reserved: u32,
    bytes: i64,
}

#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    bytes: i64,
}

#[repr(C)]
pub struct Item {
    key: Key,
    buffers: *const Buffer,
    num_buffers: i32,
    reserved: u32,
    bytes: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    job: u64,
    index: i64,
    result: i32,
    os_error: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
    struct_size: u32,
    last_os_error: i32,
    objects: i64,
    stored_bytes: i64,
    capacity_bytes: i64,
    open_items: i64,
    lookups: i64,
    hits: i64,
    loads: i64,
    stores: i64,
    removes: i64,
    misses: i64,
    cancelled: i64,
    failed: i64,
    evictions: i64,
    damaged: i64,
    loaded_bytes: i64,
    written_bytes: i64,
    load_latency_ns: i64,
    store_latency_ns: i64,
    load_bytes_per_second: i64,
    store_bytes_per_second: i64,
}

type Submit = unsafe extern "C" fn(*mut c_void, u64, i64, *const Item, *mut Error) -> i32;

#[repr(C)]
pub struct Tier {
    struct_size: u32,
    version: u32,
    name: *const c_char,
    self_: *mut c_void,
    max_object_bytes: i64,
    max_job_items: i32,
    reserved: u32,
    lookup: unsafe extern "C" fn(*mut c_void, i64, *const Key, *mut Found),
    store: Submit,
    load: Submit,
    remove: Submit,
    poll: unsafe extern "C" fn(*mut c_void, *mut Completion, i64) -> i64,
    descriptor: unsafe extern "C" fn(*mut c_void) -> i32,
    cancel: unsafe extern "C" fn(*mut c_void, u64),
    stats: unsafe extern "C" fn(*mut c_void, *mut Stats),
    close: unsafe extern "C" fn(*mut c_void),
    removed: Option<unsafe extern "C" fn(*mut c_void, *mut Key, i64) -> i64>,
}

// ---- The tier, in safe Rust but for the memory of items

#[derive(Default)]
struct Memory {
    objects: HashMap<Key, (u64, Vec<u8>)>, // with the number of their first store
    order: BTreeMap<u64, Key>,             // by that number: the first one is the oldest
    next: u64,
    done: Vec<Completion>, // every open item has completed
    stats: Stats,
}

impl Memory {
    /// # Safety
    /// The buffers of the item are valid, as the caller of a submit promises.
    unsafe fn buffers(item: &Item) -> impl Iterator<Item = &mut [u8]> {
        let count = if item.buffers.is_null() { 0 } else { item.num_buffers.max(0) as usize };
        let buffers = (0..count).map(|i| unsafe { &*item.buffers.add(i) });
        buffers.filter(|b| b.bytes > 0).map(|b| unsafe { std::slice::from_raw_parts_mut(b.data, b.bytes as usize) })
    }

    fn forget(&mut self, key: &Key) -> bool {
        let Some((number, data)) = self.objects.remove(key) else { return false };
        self.order.remove(&number);
        self.stats.stored_bytes -= data.len() as i64;
        true
    }

    unsafe fn store(&mut self, item: &Item) -> i32 {
        let mut data = Vec::new();
        if data.try_reserve_exact(item.bytes.max(0) as usize).is_err() {
            return FAILED;
        }
        unsafe { Self::buffers(item) }.for_each(|part| data.extend_from_slice(part));
        if !self.forget(&item.key) && self.objects.len() == MAX_OBJECTS {
            if let Some((_, oldest)) = self.order.first_key_value().map(|(n, key)| (*n, *key)) {
                self.forget(&oldest);
                self.stats.evictions += 1;
            }
        }
        self.next += 1;
        self.stats.stored_bytes += data.len() as i64;
        self.order.insert(self.next, item.key);
        self.objects.insert(item.key, (self.next, data));
        OK
    }

    unsafe fn load(&mut self, item: &Item) -> i32 {
        let Some((_, data)) = self.objects.get(&item.key) else { return MISS };
        if data.len() as i64 != item.bytes {
            return MISS; // never a part of an object
        }
        let mut rest = data.as_slice();
        for part in unsafe { Self::buffers(item) } {
            let Some((here, after)) = rest.split_at_checked(part.len()) else { return MISS };
            part.copy_from_slice(here);
            rest = after;
        }
        OK
    }
}

// ---- The functions of the table

unsafe fn of<'a>(tier: *mut c_void) -> MutexGuard<'a, Memory> {
    let memory = unsafe { &*tier.cast::<Mutex<Memory>>() };
    memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

unsafe fn fail(error: *mut Error, code: i32, text: &str) -> i32 {
    let error = unsafe { &mut *error };
    error.code = code;
    let count = text.len().min(error.message.len() - 1);
    error.message[..count].copy_from_slice(&text.as_bytes()[..count]);
    error.message[count] = 0;
    code
}

/// A job is accepted whole or not at all. Each item gets one completion.
unsafe fn submit(
    tier: *mut c_void,
    job: u64,
    n: i64,
    items: *const Item,
    error: *mut Error,
    one: unsafe fn(&mut Memory, &Item) -> i32,
    count: fn(&mut Stats) -> &mut i64,
) -> i32 {
    if !(1..=OPEN_ITEMS).contains(&n) {
        unsafe { fail(error, 104, &format!("a job of {n} items; the tier takes {OPEN_ITEMS}")) };
        return FAILED;
    }
    let mut memory = unsafe { of(tier) };
    if memory.done.len() as i64 + n > OPEN_ITEMS {
        return RETRY;
    }
    for index in 0..n {
        let result = unsafe { one(&mut memory, &*items.add(index as usize)) };
        memory.done.push(Completion { job, index, result, os_error: 0 });
        match result {
            OK => *count(&mut memory.stats) += 1,
            MISS => memory.stats.misses += 1,
            _ => memory.stats.failed += 1,
        }
    }
    OK
}

unsafe extern "C" fn store(tier: *mut c_void, job: u64, n: i64, items: *const Item, error: *mut Error) -> i32 {
    unsafe { submit(tier, job, n, items, error, Memory::store, |stats| &mut stats.stores) }
}

unsafe extern "C" fn load(tier: *mut c_void, job: u64, n: i64, items: *const Item, error: *mut Error) -> i32 {
    unsafe { submit(tier, job, n, items, error, Memory::load, |stats| &mut stats.loads) }
}

unsafe extern "C" fn remove(tier: *mut c_void, job: u64, n: i64, items: *const Item, error: *mut Error) -> i32 {
    let one = |memory: &mut Memory, item: &Item| if memory.forget(&item.key) { OK } else { MISS };
    unsafe { submit(tier, job, n, items, error, one, |stats| &mut stats.removes) }
}

unsafe extern "C" fn lookup(tier: *mut c_void, n: i64, keys: *const Key, found: *mut Found) {
    let mut memory = unsafe { of(tier) };
    for i in 0..n.max(0) as usize {
        let object = memory.objects.get(unsafe { &*keys.add(i) });
        let (result, bytes) = object.map_or((MISS, 0), |(_, data)| (HIT, data.len() as i64));
        unsafe { found.add(i).write(Found { result, reserved: 0, bytes }) };
        memory.stats.hits += i64::from(result == HIT);
    }
    memory.stats.lookups += n;
}

unsafe extern "C" fn poll(tier: *mut c_void, done: *mut Completion, capacity: i64) -> i64 {
    let mut memory = unsafe { of(tier) };
    let count = memory.done.len().min(capacity.max(0) as usize);
    for (i, completion) in memory.done.drain(..count).enumerate() {
        unsafe { done.add(i).write(completion) };
    }
    count as i64
}

unsafe extern "C" fn descriptor(_: *mut c_void) -> i32 {
    -1 // nothing to wait for: completions are there when the submit returns
}

unsafe extern "C" fn cancel(_: *mut c_void, _: u64) {} // no item waits to begin

unsafe extern "C" fn stats(tier: *mut c_void, out: *mut Stats) {
    let memory = unsafe { of(tier) };
    let size = unsafe { (*out).struct_size }; // the caller's struct may be older, and shorter
    let (objects, open_items) = (memory.objects.len() as i64, memory.done.len() as i64);
    let all = Stats { struct_size: size, objects, open_items, ..memory.stats };
    let count = (size as usize).min(size_of::<Stats>());
    unsafe { std::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), out.cast(), count) };
}

unsafe extern "C" fn close(tier: *mut c_void) {
    drop(unsafe { Box::from_raw(tier.cast::<Mutex<Memory>>()) });
}

/// The symbol of a plug-in. This tier has no options.
///
/// # Safety
/// As kvc_tier_open_fn says in kvcache_tier.h.
#[no_mangle]
pub unsafe extern "C" fn kvc_tier_open(version: u32, _options: *const c_char, tier: *mut Tier, error: *mut Error) -> i32 {
    if version != VERSION {
        return unsafe { fail(error, 4, &format!("version {version} of the table, and this tier has {VERSION}")) };
    }
    let memory = Box::new(Mutex::new(Memory::default()));
    let table = Tier {
        struct_size: size_of::<Tier>() as u32,
        version: VERSION,
        name: c"memory".as_ptr(),
        self_: Box::into_raw(memory).cast(),
        max_object_bytes: 1 << 30,
        max_job_items: OPEN_ITEMS as i32,
        reserved: 0,
        lookup,
        store,
        load,
        remove,
        poll,
        descriptor,
        cancel,
        stats,
        close,
        removed: None,
    };
    unsafe { tier.write(table) };
    0
}
