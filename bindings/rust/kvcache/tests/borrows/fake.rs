//! A library of Rust that reads all that it is given, by its shapes and strides, and writes all that it may.
use kvcache::{sys, ManagedTensor};
use std::ffi::{c_char, c_void, CStr};
use std::ptr::null_mut;
use std::sync::{Mutex, Once};

/// Rows and columns of the tables that it gives out.
pub const TABLE: [i32; 6] = [3, 1, 4, 1, 5, 9];
const SHAPE: [i64; 2] = [2, 3];
const STRIDES: [i64; 2] = [3, 1];

struct Fake {
    log: sys::kvc_log_fn,
    log_user: *mut c_void,
    adopted: Vec<*mut sys::DLManagedTensorVersioned>,
    pages: usize,
}

/// Calls `visit` with the address of every byte of a tensor.
unsafe fn each_byte(tensor: *const sys::DLTensor, mut visit: impl FnMut(*mut u8)) {
    unsafe {
        let Some(tensor) = tensor.as_ref() else { return };
        let mut offsets = vec![0];
        for dim in 0..tensor.ndim as usize {
            let (extent, stride) = (*tensor.shape.add(dim), *tensor.strides.add(dim));
            offsets = offsets.iter().flat_map(|offset| (0..extent).map(move |i| offset + i * stride)).collect();
        }
        let size = i64::from(tensor.dtype.bits / 8);
        for byte in offsets.iter().flat_map(|offset| (0..size).map(move |byte| offset * size + byte)) {
            visit(tensor.data.cast::<u8>().offset(byte as isize));
        }
    }
}

unsafe fn read(tensors: &[*const sys::DLTensor]) -> u64 {
    let mut sum = 0;
    for tensor in tensors {
        unsafe { each_byte(*tensor, |byte| sum += u64::from(*byte)) };
    }
    sum
}

unsafe fn write(tensors: &[*const sys::DLTensor]) {
    for tensor in tensors {
        unsafe { each_byte(*tensor, |byte| *byte = 7) };
    }
}

unsafe fn sum<T: Copy + Into<i64>>(array: *const T, n: i64) -> i64 {
    (0..n as usize).map(|i| unsafe { *array.add(i) }.into()).sum()
}

unsafe fn fail(error: *mut sys::kvc_error, status: u32, required: i64) -> i32 {
    unsafe {
        assert_eq!((*error).struct_size as usize, size_of::<sys::kvc_error>());
        (*error).code = status as i32;
        (*error).required = required;
        let message = c"fake: no".to_bytes_with_nul();
        (*error).message.as_mut_ptr().cast::<u8>().copy_from(message.as_ptr(), message.len());
    }
    status as i32
}

unsafe extern "C" fn text(buffer: *mut c_char, capacity: i64, length: *mut i64, error: *mut sys::kvc_error) -> i32 {
    let text = c"{\"fake\": 1}".to_bytes_with_nul();
    unsafe {
        *length = text.len() as i64 - 1;
        match capacity {
            0 => 0,
            capacity if capacity < text.len() as i64 => fail(error, sys::KVC_ERROR_BUFFER_TOO_SMALL, text.len() as i64),
            _ => {
                buffer.cast::<u8>().copy_from(text.as_ptr(), text.len());
                0
            }
        }
    }
}

unsafe extern "C" fn status_name(_: i32) -> *const c_char {
    c"KVC_ERROR_FAKE".as_ptr()
}

unsafe extern "C" fn context_create(
    config: *const sys::kvc_context_config,
    context: *mut *mut sys::kvc_context,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let config = &*config;
        assert!(config.simd.is_null() || CStr::from_ptr(config.simd) == c"reference");
        static DONE: Mutex<Vec<i64>> = Mutex::new(vec![]);
        unsafe extern "C" fn item(_: *mut c_void, index: i64) {
            DONE.lock().unwrap().push(index);
        }
        if let Some(parallel_for) = config.parallel_for {
            DONE.lock().unwrap().clear();
            parallel_for(config.parallel_for_user, 3, Some(item), null_mut());
            let mut done = DONE.lock().unwrap().clone();
            done.sort();
            assert_eq!(done, [0, 1, 2]);
        }
        let fake = Fake { log: config.log, log_user: config.log_user, adopted: vec![], pages: 0 };
        *context = Box::into_raw(Box::new(fake)).cast();
    }
    0
}

unsafe extern "C" fn context_destroy(context: *mut sys::kvc_context) {
    unsafe {
        let fake = Box::from_raw(context.cast::<Fake>());
        if let Some(log) = fake.log {
            log(fake.log_user, 1, c"gone".as_ptr());
        }
    }
}

unsafe extern "C" fn context_describe(
    _: *mut sys::kvc_context,
    buffer: *mut c_char,
    capacity: i64,
    length: *mut i64,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe { text(buffer, capacity, length, error) }
}

unsafe extern "C" fn cache_create(
    _: *mut sys::kvc_context,
    config: *const sys::kvc_cache_config,
    cache: *mut *mut sys::kvc_cache,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let (config, mut adopted) = (&*config, vec![]);
        for group in 0..config.num_groups as usize {
            assert_ne!((*config.groups.add(group)).struct_size, 0);
        }
        for layer in 0..config.num_layers as usize {
            let layer = &*config.layers.add(layer);
            for scales in [layer.k_scales, layer.v_scales] {
                (0..layer.num_scales as usize).for_each(|i| assert!(scales.is_null() || *scales.add(i) > 0.0));
            }
            (0..layer.num_states as usize).for_each(|i| assert_eq!((*layer.states.add(i)).rank, 2));
            if let Some(scaling) = layer.rope_scaling.as_ref() {
                let factors = |array: *const f64, n: i32| (0..n as usize).map(|i| *array.add(i)).sum::<f64>();
                let (short, long) = (scaling.num_short_factors, scaling.num_long_factors);
                assert!(factors(scaling.short_factors, short) + factors(scaling.long_factors, long) > 0.0);
            }
            let storages = [layer.kv_storage, layer.k_storage, layer.v_storage];
            adopted.extend(storages.into_iter().filter(|storage| !storage.is_null()));
        }
        if config.page_size == 13 {
            return fail(error, sys::KVC_ERROR_INVALID_ARGUMENT, 0);
        }
        adopted.iter().for_each(|storage| write(&[&(**storage).dl_tensor]));
        *cache = Box::into_raw(Box::new(Fake { log: None, log_user: null_mut(), adopted, pages: 0 })).cast();
    }
    0
}

unsafe extern "C" fn cache_destroy(cache: *mut sys::kvc_cache) {
    unsafe {
        for storage in Box::from_raw(cache.cast::<Fake>()).adopted {
            write(&[&(*storage).dl_tensor]);
            ((*storage).deleter.unwrap())(storage);
        }
    }
}

unsafe extern "C" fn seq_add(_: *mut sys::kvc_cache, n: i64, sequences: *mut u64, error: *mut sys::kvc_error) -> i32 {
    unsafe {
        if n > 4 {
            return fail(error, sys::KVC_ERROR_TOO_MANY_SEQUENCES, n);
        }
        (0..n as usize).for_each(|i| sequences.add(i).write(i as u64 + 1));
    }
    0
}

unsafe extern "C" fn seq_fork(
    _: *mut sys::kvc_cache,
    n: i64,
    parents: *const u64,
    positions: *const i64,
    children: *mut u64,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        assert!(positions.is_null() || sum(positions, n) >= 0);
        (0..n as usize).for_each(|i| children.add(i).write(*parents.add(i) + 100));
    }
    0
}

/// More pages each time that it is asked.
unsafe extern "C" fn seq_pages(
    cache: *mut sys::kvc_cache,
    _: u64,
    _: i32,
    pages: *mut i32,
    capacity: i64,
    count: *mut i64,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let fake = &mut *cache.cast::<Fake>();
        fake.pages = (fake.pages + 1).min(3);
        *count = fake.pages as i64;
        if capacity > 0 && capacity < *count {
            return fail(error, sys::KVC_ERROR_BUFFER_TOO_SMALL, *count);
        }
        (0..capacity.min(*count) as usize).for_each(|i| pages.add(i).write(i as i32 - 1));
    }
    0
}

unsafe extern "C" fn take_copies(
    cache: *mut sys::kvc_cache,
    copies: *mut sys::kvc_copy,
    item_size: u32,
    capacity: i64,
    count: *mut i64,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let fake = &mut *cache.cast::<Fake>();
        (fake.pages, *count) = ((fake.pages + 1).min(3), (fake.pages as i64 + 1).min(3));
        assert_eq!(item_size as usize, size_of::<sys::kvc_copy>());
        if capacity > 0 && capacity < *count {
            return fail(error, sys::KVC_ERROR_BUFFER_TOO_SMALL, *count);
        }
        let copy = sys::kvc_copy { source_slot: 1, target_slot: 2, group: 0, count: 3 };
        (0..capacity.min(*count) as usize).for_each(|i| copies.add(i).write(copy));
    }
    0
}

unsafe extern "C" fn forward_begin(
    _: *mut sys::kvc_cache,
    batch: *const sys::kvc_batch,
    _: *mut c_void,
    forward: *mut u64,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let (batch, mut ids) = (&*batch, 0);
        (0..batch.num_sequences as usize).for_each(|i| ids += *batch.sequences.add(i));
        let tokens = sum(batch.append_lengths, batch.num_sequences.into());
        for array in [batch.tree_parents, batch.span_ids] {
            assert!(array.is_null() || sum(array, tokens) > -100);
        }
        if tokens > 8 {
            return fail(error, sys::KVC_ERROR_OUT_OF_PAGES, tokens);
        }
        *forward = if batch.graph == 0 { ids + 1 } else { batch.graph };
    }
    0
}

/// Graphs that were made and not destroyed.
pub static GRAPHS: Mutex<Vec<u64>> = Mutex::new(vec![]);

unsafe extern "C" fn graph_create(
    _: *mut sys::kvc_cache,
    config: *const sys::kvc_graph_config,
    graph: *mut u64,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { *graph = 1000 + (*config).max_tokens as u64 };
    GRAPHS.lock().unwrap().push(unsafe { *graph });
    0
}

unsafe extern "C" fn graph_destroy(_: *mut sys::kvc_cache, graph: u64, error: *mut sys::kvc_error) -> i32 {
    let mut graphs = GRAPHS.lock().unwrap();
    match graphs.iter().position(|id| *id == graph) {
        Some(at) => graphs.remove(at),
        None if error.is_null() => return sys::KVC_ERROR_STALE_ID as i32,
        None => return unsafe { fail(error, sys::KVC_ERROR_STALE_ID, 0) },
    };
    0
}

unsafe extern "C" fn forward_close(_: *mut sys::kvc_cache, forward: u64, _: *mut sys::kvc_error) -> i32 {
    assert_ne!(forward, 0);
    0
}

unsafe extern "C" fn forward_append(
    _: *mut sys::kvc_cache,
    _: u64,
    _: i32,
    args: *const sys::kvc_append_args,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { read(&[(*args).k, (*args).v, (*args).rope_cos_sin, (*args).k_scale, (*args).v_scale]) };
    0
}

unsafe extern "C" fn forward_attend(
    _: *mut sys::kvc_cache,
    _: u64,
    _: i32,
    args: *const sys::kvc_attend_args,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let args = &*args;
        read(&[args.q, args.k, args.v, args.alibi_slopes, args.sinks, args.rope_cos_sin, args.w_uk, args.w_uv]);
        read(&[args.indices, args.rel_bias, args.key_bias, args.mask]);
        write(&[args.out, args.lse]);
    }
    0
}

unsafe extern "C" fn forward_get_info(
    _: *mut sys::kvc_cache,
    _: u64,
    info: *mut sys::kvc_forward_info,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        ((*info).num_sequences, (*info).num_tokens) = (2, 6);
        ((*info).positions_host, (*info).last_rows_host) = (TABLE.as_ptr(), TABLE.as_ptr());
    }
    0
}

unsafe fn fill(tables: *mut sys::kvc_tables) {
    let int = sys::DLDataType { code: sys::kDLInt as u8, bits: 32, lanes: 1 };
    let device = sys::DLDevice { device_type: sys::kDLCPU, device_id: 0 };
    let tensor = |ndim| sys::DLTensor {
        data: TABLE.as_ptr().cast_mut().cast(),
        device,
        ndim,
        dtype: int,
        shape: SHAPE.as_ptr().cast_mut(),
        strides: if ndim == 2 { STRIDES.as_ptr().cast_mut() } else { STRIDES[1..].as_ptr().cast_mut() },
        byte_offset: 0,
    };
    unsafe {
        let tables = &mut *tables;
        (tables.num_rows, tables.block_table) = (2, tensor(2));
        for array in [&mut tables.cache_seqlens, &mut tables.cu_seqlens_q, &mut tables.cu_seqlens_k] {
            *array = tensor(1);
        }
        for array in [&mut tables.key_starts, &mut tables.leftpad, &mut tables.batch_rows] {
            *array = tensor(1);
        }
    }
}

unsafe extern "C" fn forward_tables(
    _: *mut sys::kvc_cache,
    _: u64,
    _: i32,
    tables: *mut sys::kvc_tables,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { fill(tables) };
    0
}

unsafe extern "C" fn plan_create(
    _: *mut sys::kvc_context,
    config: *const sys::kvc_plan_config,
    plan: *mut *mut sys::kvc_plan,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { *plan = Box::into_raw(Box::new((*config).mode)).cast() };
    0
}

unsafe extern "C" fn plan_destroy(plan: *mut sys::kvc_plan) {
    drop(unsafe { Box::from_raw(plan.cast::<i32>()) });
}

unsafe extern "C" fn plan_build(
    plan: *mut sys::kvc_plan,
    args: *const sys::kvc_plan_args,
    _: *mut c_void,
    generation: *mut u64,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let args = &*args;
        read(&[args.seq_lens, args.append_lengths, args.rows, args.block_table, args.req_to_token]);
        read(&[args.encoder_lens, args.tree_parents]);
        *plan.cast::<i32>() += 1;
        *generation = 5;
    }
    0
}

unsafe extern "C" fn plan_tables(
    plan: *mut sys::kvc_plan,
    _: i32,
    tables: *mut sys::kvc_tables,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        fill(tables);
        (*tables).generation = *plan.cast::<i32>() as u64;
    }
    0
}

unsafe extern "C" fn flash_attn(
    _: *mut sys::kvc_context,
    args: *const sys::kvc_flash_attn_args,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let args = &*args;
        read(&[args.q, args.k, args.v, args.qv, args.cache_seqlens, args.cache_batch_idx, args.cache_leftpad]);
        read(&[args.block_table, args.cu_seqlens_q, args.cu_seqlens_k_new, args.rotary_cos, args.rotary_sin]);
        read(&[args.rotary_seqlens, args.q_descale, args.k_descale, args.v_descale, args.alibi_slopes, args.sinks]);
        read(&[args.k_cache, args.v_cache]);
        if !args.k.is_null() {
            write(&[args.k_cache, args.v_cache]);
        }
        write(&[args.out, args.softmax_lse]);
    }
    0
}

unsafe extern "C" fn fake_append_slots(
    _: *mut sys::kvc_context,
    args: *const sys::kvc_append_slots_args,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let args = &*args;
        read(&[args.k, args.v, args.slot_mapping, args.k_scale, args.v_scale, args.rotary_cos, args.rotary_sin]);
        read(&[args.positions]);
        write(&[args.k_cache, args.v_cache]);
    }
    0
}

unsafe extern "C" fn fake_merge(
    _: *mut sys::kvc_context,
    args: *const sys::kvc_merge_args,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let args = &*args;
        (0..args.num_parts as usize).for_each(|i| {
            read(&[*args.outputs.add(i), *args.lses.add(i)]);
        });
        write(&[args.out, args.lse]);
    }
    0
}

unsafe extern "C" fn seq_lengths(
    _: *mut sys::kvc_cache,
    n: i64,
    sequences: *const u64,
    lengths: *mut i64,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        for i in 0..n as usize {
            if *sequences.add(i) == 99 {
                return fail(error, sys::KVC_ERROR_STALE_ID, 0);
            }
            lengths.add(i).write(6);
        }
    }
    0
}

unsafe extern "C" fn seq_export(
    _: *mut sys::kvc_cache,
    _: u64,
    args: *const sys::kvc_export_args,
    exported: *mut sys::kvc_exported,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        let tokens = ((*args).position_end - (*args).position_begin) as usize;
        (*exported).k = ManagedTensor::from_vec(vec![1f32; tokens * 2], &[tokens, 1, 2]).unwrap().into_raw();
    }
    0
}

unsafe extern "C" fn seq_import(
    _: *mut sys::kvc_cache,
    _: u64,
    args: *const sys::kvc_import_args,
    _: *mut c_void,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        for array in [(*args).k, (*args).v].into_iter().filter(|array| !array.is_null()) {
            (0..(*args).num_layers as usize).for_each(|layer| {
                read(&[*array.add(layer)]);
            });
        }
    }
    0
}

unsafe fn tokens_of(query: *const sys::kvc_prefix_query) -> i64 {
    unsafe { sum((*query).tokens, (*query).num_tokens) }
}

unsafe fn found(query: *const sys::kvc_prefix_query, hit: *mut sys::kvc_prefix_hit) {
    unsafe {
        assert_ne!((*hit).struct_size, 0);
        ((*hit).tokens, (*hit).known_tokens, (*hit).limited_by) = (tokens_of(query), (*query).salt_begin, -1);
    }
}

unsafe extern "C" fn prefix_match(
    _: *mut sys::kvc_cache,
    query: *const sys::kvc_prefix_query,
    hit: *mut sys::kvc_prefix_hit,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { found(query, hit) };
    0
}

unsafe extern "C" fn prefix_attach(
    _: *mut sys::kvc_cache,
    query: *const sys::kvc_prefix_query,
    _: *mut c_void,
    hit: *mut sys::kvc_prefix_hit,
    sequence: *mut u64,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        found(query, hit);
        *sequence = 9;
    }
    0
}

unsafe extern "C" fn prefix_publish(
    _: *mut sys::kvc_cache,
    sequence: u64,
    query: *const sys::kvc_prefix_query,
    options: *const sys::kvc_prefix_options,
    published: *mut sys::kvc_prefix_published,
    error: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        if sequence == 99 {
            return fail(error, sys::KVC_ERROR_STALE_ID, 0);
        }
        ((*published).known_tokens, (*published).pages_added) = (tokens_of(query), (*options).time_to_live);
    }
    0
}

unsafe extern "C" fn prefix_drop(
    _: *mut sys::kvc_cache,
    query: *const sys::kvc_prefix_query,
    pages: *mut i64,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe { *pages = tokens_of(query) };
    0
}

unsafe extern "C" fn prefix_set_priority(
    _: *mut sys::kvc_cache,
    query: *const sys::kvc_prefix_query,
    priority: i32,
    _: i64,
    _: *mut sys::kvc_error,
) -> i32 {
    assert_eq!(unsafe { tokens_of(query) }, priority.into());
    0
}

unsafe extern "C" fn prefix_pin(
    _: *mut sys::kvc_cache,
    query: *const sys::kvc_prefix_query,
    hit: *mut sys::kvc_prefix_hit,
    pin: *mut u64,
    _: *mut sys::kvc_error,
) -> i32 {
    unsafe {
        found(query, hit);
        *pin = 5;
    }
    0
}

/// Makes it the library of this process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions that are not there.
        let mut api: sys::kvc_api = unsafe { std::mem::zeroed() };
        api.status_name = Some(status_name);
        api.context_create = Some(context_create);
        api.context_destroy = Some(context_destroy);
        api.context_describe = Some(context_describe);
        api.cache_create = Some(cache_create);
        api.cache_destroy = Some(cache_destroy);
        api.seq_add = Some(seq_add);
        api.seq_fork = Some(seq_fork);
        api.seq_pages = Some(seq_pages);
        api.seq_lengths = Some(seq_lengths);
        api.cache_take_copies = Some(take_copies);
        api.forward_begin = Some(forward_begin);
        api.graph_create = Some(graph_create);
        api.graph_destroy = Some(graph_destroy);
        api.forward_end = Some(forward_close);
        api.forward_abort = Some(forward_close);
        api.forward_append = Some(forward_append);
        api.forward_attend = Some(forward_attend);
        api.forward_get_info = Some(forward_get_info);
        api.forward_tables = Some(forward_tables);
        api.plan_create = Some(plan_create);
        api.plan_destroy = Some(plan_destroy);
        api.plan_build = Some(plan_build);
        api.plan_tables = Some(plan_tables);
        api.flash_attn_with_kvcache = Some(flash_attn);
        api.append_slots = Some(fake_append_slots);
        api.merge_states = Some(fake_merge);
        api.seq_export = Some(seq_export);
        api.seq_import = Some(seq_import);
        api.prefix_match = Some(prefix_match);
        api.prefix_attach = Some(prefix_attach);
        api.prefix_publish = Some(prefix_publish);
        api.prefix_drop = Some(prefix_drop);
        api.prefix_set_priority = Some(prefix_set_priority);
        api.prefix_pin = Some(prefix_pin);
        // SAFETY: they do what the tests expect.
        unsafe { sys::dynamic::install(&api) }.unwrap();
    });
}
