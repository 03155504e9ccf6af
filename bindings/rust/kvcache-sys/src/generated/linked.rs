// Generated from include/kvcache.h by scripts/generate_rust.sh.
use crate::*;

unsafe extern "C" {
    #[doc = " Version of the loaded library as text, \"0.1.0\".\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_version() -> *const ::core::ffi::c_char;
    #[doc = " KVC_ABI_VERSION of the loaded library. Threads: any. Since 0.1."]
    pub fn kvc_abi_version() -> u32;
    #[doc = " What the loaded library was built with, as one JSON object: version, abi, compiler, dlpack,\n backends, simd (every CPU target compiled in, best last), features.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_build_info() -> *const ::core::ffi::c_char;
    #[doc = " Name of a status, \"KVC_ERROR_OUT_OF_PAGES\"; for an unknown code the name of its band.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_status_name(status: kvc_status) -> *const ::core::ffi::c_char;
    #[doc = " Opens a device.\n\n   kvc_context_config config;\n   kvc_context_config_init(&config);\n   config.device_type = kDLCUDA;\n   status = kvc_context_create(&config, &context, &error);\n   if (status == KVC_ERROR_DEVICE_UNAVAILABLE) status = kvc_context_create(NULL, &context, &error);  // error says why\n\n   config   nullable: a CPU context with every default\n   context  returned; released by kvc_context_destroy\n Errors: INVALID_ARGUMENT, UNSUPPORTED (simd), DEVICE_UNAVAILABLE (no such file, another version of the backend's table,\n no driver, no device, a device that the backend was not built for: the message says which), DEVICE_FAILED, OUT_OF_MEMORY.\n Threads: any. Starts no thread: workers start with the first large enough compute call. Since 0.1."]
    pub fn kvc_context_create(
        config: *const kvc_context_config,
        context: *mut *mut kvc_context,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives up the caller's reference; caches keep their context alive. NULL does nothing.\n Threads: any, once. Whoever gives up the last reference, by this, kvc_cache_destroy or a tensor's deleter, joins the\n context's idle worker threads. Since 0.1."]
    pub fn kvc_context_destroy(context: *mut kvc_context);
    #[doc = " Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use),\n simd_available.\n   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success\n   length    nullable: bytes of the text without its NUL, also on BUFFER_TOO_SMALL (error->required counts the NUL)\n Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_context_describe(
        context: *mut kvc_context,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " With KVC_CONTEXT_VALIDATE: whether the device has met a bad index by now. For engines that only replay graphs, and at the\n end of a test:\n\n   cudaStreamSynchronize(stream);                           // without it: what has run so far\n   if (kvc_context_check(context, &error)) return report(error.message);\n   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095\n\n Errors: EARLIER_CALL, once for each report. Threads: any. Costs a load, and waits for nothing. Since 0.1."]
    pub fn kvc_context_check(context: *mut kvc_context, error: *mut kvc_error) -> kvc_status;
    #[doc = " Says what kvc_cache_create would allocate, or why it would refuse; allocates no pool and adopts nothing.\n   group     group index, or -1 for the whole cache\n   estimate  filled\n Errors: as kvc_cache_create, without OUT_OF_MEMORY for pools. Threads: any. Since 0.1."]
    pub fn kvc_cache_estimate(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        group: i32,
        estimate: *mut kvc_estimate,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a cache: reserves the pools of every layer and all bookkeeping (nothing grows later).\n   config   borrowed, arrays included; storages in it are adopted\n   cache    returned; released by kvc_cache_destroy\n Errors: INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE, DUPLICATE (a storage given\n twice, or two that overlap), with the layer or group in error->index (a group's in error->group too); STRUCT_SIZE (with the\n element), OUT_OF_MEMORY.\n Threads: any. Pools are zeroed on first touch. Since 0.1."]
    pub fn kvc_cache_create(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        cache: *mut *mut kvc_cache,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Aborts open forwards and releases the cache; pools live on while exported views of them do.\n NULL does nothing. Threads: any, once, and no other call may be inside the cache. Since 0.1."]
    pub fn kvc_cache_destroy(cache: *mut kvc_cache);
    #[doc = " Removes every sequence; ids become stale, pool memory stays reserved.\n Errors: BUSY (a forward is open). Threads: any. Costs what it frees. Since 0.1."]
    pub fn kvc_cache_clear(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " Adds n empty sequences; takes no page.\n   sequences  [n], filled\n Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1."]
    pub fn kvc_seq_add(cache: *mut kvc_cache, n: i64, sequences: *mut kvc_seq, error: *mut kvc_error) -> kvc_status;
    #[doc = " Removes n sequences and frees every page that no other sequence shares. A sequence in an open forward is\n gone for every later call, and its pages are freed when that forward closes.\n   sequences  [n], distinct, any order\n Errors (nothing removed): STALE_ID, DUPLICATE with the index. Threads: any. Since 0.1."]
    pub fn kvc_seq_remove(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Forks n children: child i holds the first positions[i] tokens of parents[i], sharing every whole page and\n copying a partial last one. A parent with an uncommitted tree is refused. Atomic over the arrays. Costs\n the logarithm of the length, not the length.\n   parents    [n]; one parent may occur often\n   positions  nullable: all at the end. [n]; -1 = the parent's length, 0 = empty\n   children   [n], filled\n   stream     the device's stream for page copies; NULL on the CPU\n Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES,\n OUT_OF_PAGES (as kvc_forward_begin, of all children), ORDER (KVC_STORAGE_NONE: too many copies wait).\n Threads: any. Since 0.1. From: persistent vectors; page sharing as in vLLM's PagedAttention."]
    pub fn kvc_seq_fork(
        cache: *mut kvc_cache,
        n: i64,
        parents: *const kvc_seq,
        positions: *const i64,
        children: *mut kvc_seq,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Drops the tokens from lengths[i] on, across shared pages too, and every uncommitted tree node. Needs no page: if\n the new end lies inside a shared page, the next forward that appends copies the kept part of it (and can_fit counts\n that page).\n   sequences  [n], distinct\n   lengths    [n], 0..the sequence's length\n Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1."]
    pub fn kvc_seq_truncate(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *const i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Lengths in tokens, without the tokens of open forwards and uncommitted tree nodes. O(1) a sequence.\n   lengths  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_lengths(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Page ids of one sequence in one group, in order: entry i holds positions [i * page_size, (i+1) * page_size);\n -1 where the page was freed behind a window, or between the sinks and the window of a stream. Pages of\n an open forward and of an uncommitted tree are not included.\n   pages     nullable if capacity is 0; [capacity], filled\n   count     nullable: number of entries, also on BUFFER_TOO_SMALL\n Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_seq_pages(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        group: i32,
        pages: *mut i32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Positions nearest to `position` where fork and truncate work in every group: not in pages freed behind a window,\n whatever a query there sees; over recurrent state at 0, at checkpoints (kvc_seq_checkpoint) and at the end alone.\n   position         0..the sequence's length\n   before           nullable: the largest such position <= position (0 always works)\n   after            nullable: the smallest such position >= position; -1 = none\n Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_seq_nearest_position(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        position: i64,
        before: *mut i64,
        after: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Tokens that each sequence, alone, could append in one forward now: 0..max_batch_tokens; if it has an uncommitted tree,\n tree nodes. Counts the room in a partial last page, shared pages that must be copied, windows, and pages free in every\n group.\n   tokens  [n], filled; 0 for a sequence in an open forward\n Errors: STALE_ID. Threads: any. O(1) a sequence and group. Since 0.1."]
    pub fn kvc_seq_max_append(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives n sequences a streaming window, so that they can go on for ever in bounded memory. With s sink tokens and a window\n w, a query at position p of a full group sees keys j < s and max(s, p-(w-s)+1) <= j <= p: w keys, itself included, for\n any chunking. Sliding and chunked groups keep their own rules.\n   Positions  are as if the kept tokens were contiguous, without rotating a key again: attend rotates q at p for the window,\n              at min(p, w-1) for the sinks, and merges; ALiBi's distances likewise. q that the caller rotates itself\n              meets its sinks at their true distance. Lengths and positions go on counting every token, to 2^30.\n   Memory     Pages wholly between the sinks and the window (and the rollback margin) lose this sequence's reference when the\n              window is set, and when a forward ends. A sequence then holds at most w + rollback_tokens + the tokens of a\n              step, in two pages more than they fill. Pages of sinks that a later window has no more go with the next page.\n   Rollback   fork and truncate work within the pages of the sinks, and where the window of the next query is still there\n              (kvc_seq_nearest_position); elsewhere they are EVICTED.\n A fork has its parent's window, truncate keeps it, and a new sequence has none.\n   sequences      [n], distinct\n   sink_tokens    nullable: 0 of each. [n]: s, 0..2^30\n   window_tokens  [n]: w, above s, at most 2^30; 0 = the sequence streams no more, and s must be 0\n   flags          KVC_STREAMING_* or 0\n Errors (nothing changed): STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; other values), EVICTED (keys\n that the next query would see are gone), each with the index; UNSUPPORTED (a cache without KVC_CACHE_STREAMING).\n Threads: any. Costs what it frees. Since 0.1. From: attention sinks as in StreamingLLM (Xiao et al.)."]
    pub fn kvc_seq_set_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *const i64,
        window_tokens: *const i64,
        flags: u32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Streaming windows of n sequences; 0 and 0 where there is none.\n   sink_tokens    [n], filled: s, with the prefix that KVC_STREAMING_PREFIX_IS_SINK made part of it\n   window_tokens  [n], filled: w\n Errors: STALE_ID. Threads: any, also while a forward computes. O(1) a sequence. Since 0.1."]
    pub fn kvc_seq_get_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *mut i64,
        window_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Chooses which of longrope's factor sets turn the keys and queries of n sequences. A new sequence has the short set, a\n fork its parent's. Choose the long one when a sequence will pass original_max_position. Where a layer rotates on\n append, the choice is fixed by the first stored key, and sequences with unlike sets never share a page. Layers that\n rotate on read go over to the long set by themselves in the step that passes original_max_position.\n   sequences  [n]\n   set        KVC_ROPE_SET_*\n Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with\n longrope rotates on append), UNSUPPORTED (no\n layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3."]
    pub fn kvc_seq_set_rope(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        set: i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Keeps the recurrent states that n sequences have now, so that fork and truncate work at their present lengths later (as\n before drafts that may be rejected, or at the end of a prompt that others will share). Costs a reference, no copy; what\n it keeps stays in its page. Children inherit the checkpoints up to their position; truncate drops those behind it. Of\n more than max_checkpoints the oldest is dropped.\n   sequences  [n], distinct\n Errors (nothing kept): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.\n Since 0.1."]
    pub fn kvc_seq_checkpoint(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Lengths of encoder sequences in a cross group, without the tokens of open forwards. O(1) a sequence.\n   lengths  [n], filled\n Errors: STALE_ID, OUT_OF_RANGE (group), INVALID_ARGUMENT (no cross group). Threads: any, also while a forward computes.\n Since 0.1."]
    pub fn kvc_seq_encoder_lengths(
        cache: *mut kvc_cache,
        group: i32,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says whether kvc_forward_begin would succeed now, without any effect: the same status and numbers.\n Errors: as kvc_forward_begin. Threads: any. Since 0.1."]
    pub fn kvc_cache_can_fit(cache: *mut kvc_cache, batch: *const kvc_batch, error: *mut kvc_error) -> kvc_status;
    #[doc = " Begins a step: checks the batch, reserves every page for its new tokens in every group, plans the work.\n The T rows of q, k and v are the rows of the batch one after another, append_lengths[i] tokens each.\n Everything is reserved, or nothing changed. Costs what the batch and its new pages cost, not the context.\n   batch    borrowed, arrays included\n   stream   the device's stream for the whole forward; NULL on the CPU\n   forward  filled; closed by kvc_forward_end or kvc_forward_abort\n Errors: STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), UNCOMMITTED (plain or encoder tokens of a sequence\n with a tree), TREE_TOO_LARGE, INVALID_ARGUMENT (each with the row in error->index; an encoder_group that is no cross group, or\n with trees or spans; a span id below 0, or in a tree), BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_PAGES\n (error->index = the first row that does not fit: those before it do; required and available in pages of error->group over the\n whole batch), OUT_OF_RANGE (layers; a row that would pass 2^30 tokens), ORDER (KVC_STORAGE_NONE: copies wait to be taken).\n Threads: any. Since 0.1."]
    pub fn kvc_forward_begin(
        cache: *mut kvc_cache,
        batch: *const kvc_batch,
        stream: *mut ::core::ffi::c_void,
        forward: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores a layer's new K and V, rounded or quantised to the layer's dtype (and rotated, if the layer says so).\n   layer  a layer of the forward; each once, in any order\n Errors: STALE_ID, BUSY, ORDER (appended already), INVALID_ARGUMENT (a layer that reads another's K and V, or is\n recurrent; a cross layer outside of its encoder_group's forwards, any other within them), CANCELLED, OUT_OF_RANGE, DTYPE,\n DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (KVC_STORAGE_NONE). An error of the device itself closes the forward as kvc_forward_abort does.\n Threads: one at a time for one forward, any between forwards. Since 0.1."]
    pub fn kvc_forward_append(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_append_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores a layer's new K and V and computes out = softmax(scores, masked) V over all that is stored, the new tokens\n included. Scores are scale * q.k, then softcap, then ALiBi; positions are absolute, in partial calls too. Scores, sums\n and partial outputs are float32, weights too or, unless q is float32, rounded to 16 bits; K and V are always read as\n rounded for storage. A row that sees nothing has output 0 and LSE -inf (with a sink: the sink's logit).\n   layer  a layer of the forward; each once, or once with PAST and once with SELF; in any order\n Errors: as kvc_forward_append; ORDER also without k and v before kvc_forward_append (PAST needs neither), and for a\n second attend of the same part, and in a forward of encoder tokens; OUT_OF_RANGE (softmax_scale, softcap),\n INVALID_ARGUMENT (PAST with SELF; either of a cross layer, which is all past; a recurrent layer; out or lse has an\n element of the other, or of q, k or v).\n CANCELLED within one work item of kvc_forward_cancel: out is then undefined, k and v may have been stored.\n Threads: one at a time for one forward, any between forwards. Since 0.1.\n With up-projections an MLA layer absorbs them into q and out where queries are few, and decompresses K and V of the new\n tokens where they are many, each the same within rounding (docs/reference/mla.md).\n From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and\n merge by LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss."]
    pub fn kvc_forward_attend(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_attend_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies a state tensor of a recurrent layer out of the cache: row i of the tensor becomes the state of the batch's\n sequence i before this forward, zeros if it is empty. Rows of inert rows are left alone. Any number of times.\n   layer   a recurrent layer of the forward\n   state   0..num_states - 1\n   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype; rows by any stride, each compact\n Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state), INVALID_ARGUMENT (the layer is not recurrent, a\n forward of encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device itself closes the forward as\n kvc_forward_abort does. Threads: one at a time for one forward, any between forwards. Since 0.1."]
    pub fn kvc_forward_load_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies it in: row i becomes the state of the batch's sequence i after this forward, once it ends; aborted, the sequence\n has the state it had. Every state of every recurrent layer in range is to be stored before kvc_forward_end; stored again,\n the last one counts.\n   tensor  borrowed; as kvc_forward_load_state's\n Errors, threads: as kvc_forward_load_state. Since 0.1."]
    pub fn kvc_forward_store_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Merges results of attention over disjoint sets of keys, by their LSE, left to right: what attention over all the keys\n would have given. A part with LSE -inf saw nothing, and its output is not read; of nothing but such parts the result is\n 0 and -inf. Tensors are on the context's device; parts may have more than T rows.\n   stream  the device's stream; NULL on the CPU\n Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index = the part.\n Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer."]
    pub fn kvc_merge_states(
        context: *mut kvc_context,
        args: *const kvc_merge_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Closes a step and keeps its tokens: lengths grow, pages behind windows are freed, removed sequences go. Nodes of trees\n are kept uncommitted, until kvc_seq_commit.\n Errors: ORDER (error->index = the first layer in range without its append, but for KVC_STORAGE_NONE, or with a state that\n was not stored), CANCELLED, BUSY, STALE_ID; the forward stays open. An error of the device itself closes it as\n kvc_forward_abort does. Threads: any. Since 0.1."]
    pub fn kvc_forward_end(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Closes a step and drops its tokens: its pages and lengths are given back, everything else is untouched.\n Errors: BUSY (a call is computing: cancel first), STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_abort(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Stops a step, also while it computes on another thread: an attend in progress stops after the work items that run now\n and returns CANCELLED (or OK, if none was left), and from then on append, attend and end return CANCELLED: only\n kvc_forward_abort closes the forward. Does not wait.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_cancel(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Fills `info` for engines that rotate q and k themselves, or that pick logits.\n Errors: STALE_ID. Threads: any until the forward closes. Since 0.1."]
    pub fn kvc_forward_get_info(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        info: *mut kvc_forward_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Describes what was planned as one JSON object: rows, tokens, and per group the kernels, work items, splits,\n prefix groups and bytes of K/V that an attend reads.\n   buffer, capacity, length  as kvc_context_describe\n Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_forward_describe(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes a graph: the memory that its forwards need, of which kvc_cache_estimate tells the size of one at the cache's limits.\n   graph  filled\n Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.\n Since 0.1."]
    pub fn kvc_graph_create(
        cache: *mut kvc_cache,
        config: *const kvc_graph_config,
        graph: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Frees it, and what was borrowed from it. kvc_cache_destroy frees the others.\n Errors: STALE_ID (no graph of this cache), BUSY (a forward is open in it: end or abort it). Threads: any. Since 0.1."]
    pub fn kvc_graph_destroy(cache: *mut kvc_cache, graph: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops its other uncommitted nodes. Takes any\n sequences with uncommitted nodes, in any order, each with a leaf of its own; atomic over the arrays. Moves K and V of kept\n nodes that do not lie in order yet; needs no page. An error of the device itself leaves the nodes' K and V undefined:\n what remains is to drop them (-1).\n   sequences  [n], distinct\n   leaves     [n]: a node, 0..kvc_seq_tree_nodes - 1; -1 = drop all\n   stream     as kvc_seq_fork\n Errors (nothing committed): STALE_ID, DUPLICATE, BUSY, ORDER (no uncommitted nodes; as kvc_seq_fork), OUT_OF_RANGE,\n EVICTED (a node in the middle of a chain over recurrent state: see above), each with the index.\n Threads: any. Costs what it moves and frees. Since 0.1. From: tree attention as in SpecInfer and Medusa."]
    pub fn kvc_seq_commit(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        leaves: *const i32,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Numbers of uncommitted tree nodes, without those of open forwards. O(1) a sequence.\n   nodes  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_tree_nodes(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        nodes: *mut i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " A view of a layer's page pool, no copy. It keeps the memory alive, not the contents: pages are reused.\n It has the layer's dtype; float8 comes as uint8, which every DLPack consumer knows. What is enqueued on the stream behind\n this call sees what the cache's calls before it stored; what the cache does later waits for none of it.\n   pool    KVC_POOL_*\n   flags   KVC_POOL_WRITABLE or 0\n   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy\n   stream  as kvc_seq_fork\n Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV of pools stored apart, a recurrent layer,\n scales of a layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY.\n Threads: any. Since 0.1."]
    pub fn kvc_cache_export_pool(
        cache: *mut kvc_cache,
        layer: i32,
        pool: i32,
        flags: u32,
        tensor: *mut *mut DLManagedTensorVersioned,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies K and V of one layer of one sequence into dense tensors, as stored (rotated, rounded or quantised).\n   exported  filled; its tensors are returned, 256-byte aligned\n   stream    as kvc_seq_fork\n Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted\n tree nodes cannot be exported), EVICTED (keys of the range are gone), UNSUPPORTED (scales of a layer without, a recurrent\n layer, KVC_STORAGE_NONE). Threads: any. The copy runs outside the cache's lock and holds the sequence's pages\n meanwhile: for page ids that are equal on all ranks, change the cache only when it has returned. Since 0.1."]
    pub fn kvc_seq_export(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_export_args,
        exported: *mut kvc_exported,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append would: with KVC_IMPORT_AS_STORED\n the inverse of kvc_seq_export for a sequence of which nothing was freed behind a window yet (rotated keys of longrope: give\n it the same set first, kvc_seq_set_rope). A forward of its own: one must be free (max_open_forwards).\n   args    borrowed, tensors included\n   stream  as kvc_seq_fork\n Errors: those of kvc_forward_begin, and those of kvc_forward_append with error->index = the layer; UNSUPPORTED with a\n recurrent group (there: a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), with cross groups alone, and with\n KVC_STORAGE_NONE.\n Threads: any. Since 0.1."]
    pub fn kvc_seq_import(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_import_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Hands over all copies that wait, and forgets them.\n   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart\n   item_size  sizeof(kvc_copy)\n   count      how many there are, also on BUFFER_TOO_SMALL; with capacity 0 they go on waiting\n Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). A cache with storage has\n none. Threads: any. Since 0.1."]
    pub fn kvc_cache_take_copies(
        cache: *mut kvc_cache,
        copies: *mut kvc_copy,
        item_size: u32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Counts of one group or of the whole cache. Pages of open forwards and uncommitted trees count as used, their tokens\n not as held.\n   group  group index, or -1 for the whole cache\n   stats  filled\n Errors: OUT_OF_RANGE. Threads: any. Walks the page tables in use under the cache's lock, microseconds a thousand pages:\n for dashboards, not for every step (there: kvc_cache_can_fit, kvc_seq_max_append). Since 0.1."]
    pub fn kvc_cache_stats(
        cache: *mut kvc_cache,
        group: i32,
        stats: *mut kvc_stats,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends k and v to the caller's cache, if they are given, and computes attention over it: the contract of\n flash_attn_with_kvcache of FlashAttention 2 and 3. Of a row with L valid keys, the new ones included, query i of n stands\n at p = L - n + i (so the last one sees the last key); where p is negative, a causal query sees nothing. Queries that see nothing have\n output 0 and LSE -inf (with a sink: the sink's logit). Rows of q behind the last cu_seqlens_q are left alone in out.\n   args    borrowed, tensors included; every value of index tensors that the host reads is checked before anything is written\n   stream  the device's stream; NULL on the CPU\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with\n k_descale or v_descale; dims), INVALID_ARGUMENT (arguments that contradict each other; what is written overlaps\n anything else in elements; a cache row twice with k), OUT_OF_RANGE (a page id, index, length or position, with the row\n in error->index), BUFFER_TOO_SMALL (a cache row that has no room for its new tokens: error->required and available in tokens, error->index = the row).\n Two rows must not append to one slot through their tables. Threads: any, on unlike caches. Allocates nothing once calls as\n large as this were made. Since 0.1.\n From: FlashAttention 2 and 3; paged caches as in vLLM's PagedAttention; the rest as kvc_forward_attend."]
    pub fn kvc_flash_attn_with_kvcache(
        context: *mut kvc_context,
        args: *const kvc_flash_attn_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores rows of k and v in a caller's own paged cache, at the slots that the caller says, T being slot_mapping's length. Of two\n rows with one slot, either stays.\n   args    borrowed, tensors included; every slot and position that the host reads is checked before anything is written.\n           slot_mapping and positions on a GPU: a token whose slot is not one of the cache's, or\n           whose position has no cos and sin, is skipped\n   stream  the device's stream; NULL on the CPU\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8 k; dims),\n INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or\n position, with the token in error->index). Threads: any, on unlike slots. Since 0.1.\n From: reshape_and_cache and concat_and_cache_mla of vLLM."]
    pub fn kvc_append_slots(
        context: *mut kvc_context,
        args: *const kvc_append_slots_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Tables of an open forward in one group, the new tokens included. What the group's kind means:\n   full, MLA  all keys; rows with a streaming window: pages of sinks, then of the window, and what lies between\n   sliding    the last pages only: from the first key that the row's first query sees\n   chunked    virtual rows: one for each chunk that a row's queries touch, from the first key of the chunk on\n   cross      the encoder's keys\n   trees      PREFIX and BRANCHES, of plain rows in the same batch too; WHOLE if every tree is a chain\n   tables     in: flags, part, arrays, pad_value. The rest is filled; valid until the next kvc_forward_tables of the\n              forward and group with the same part and flags, or until the forward closes\n Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group, an unknown part, a group to which the\n forward does not append encoder tokens; WHOLE of a tree that branches; PREFIX without trees; other arrays or padding than\n the graph's first call had), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31 keys and more;\n a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. Costs the pages that it names. Since 0.1."]
    pub fn kvc_forward_tables(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        group: i32,
        tables: *mut kvc_tables,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a plan, which owns the arrays of the tables that it makes.\n   plan  returned; released by kvc_plan_destroy\n Errors: INVALID_ARGUMENT, OUT_OF_RANGE (config), OUT_OF_MEMORY.\n Threads: any. Since 0.1."]
    pub fn kvc_plan_create(
        context: *mut kvc_context,
        config: *const kvc_plan_config,
        plan: *mut *mut kvc_plan,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Releases a plan and its tables. NULL does nothing. Threads: any, once. Since 0.1."]
    pub fn kvc_plan_destroy(plan: *mut kvc_plan);
    #[doc = " Makes the tables of a step, of all its draft steps and parts. Tables are checked before anything is written: a refused\n build leaves the arrays, and makes them stale (the generation word is 0) until a build succeeds. In graph mode arrays keep\n their addresses, and what a smaller batch does not use is inert. Tables are made on the context's device, in the stream's\n order; of arrays on a device by its kernels, without a wait: there a build whose lengths, rows, parents or sizes would be\n refused leaves the tables and makes the generation word 0, page ids and slots are checked only with KVC_CONTEXT_VALIDATE,\n and kvc_plan_check says only what was enqueued last.\n   args        borrowed, arrays included\n   stream      the device's stream; NULL on the CPU\n   generation  nullable; filled: the number of this build\n Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode has not, both tables,\n rows that did not only grow, tokens of a page that does not begin at one); OUT_OF_RANGE (a length; an entry of a table:\n the message has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required,\n available; 2^31 keys and more). error->index = the row. Threads: one at a time for one plan. Nothing is\n allocated but for steps larger than ever before. Since 0.1.\n From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention."]
    pub fn kvc_plan_build(
        plan: *mut kvc_plan,
        args: *const kvc_plan_args,
        stream: *mut ::core::ffi::c_void,
        generation: *mut u64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Hands out the tables that the last build made.\n   step    DRAFT_DECODE: 0..num_steps - 1; else 0\n   tables  in: part; filled. Valid until the next build, in graph mode until kvc_plan_destroy\n Errors: STALE (no build, or the last was refused), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan has not;\n fields that are the config's). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_tables(
        plan: *mut kvc_plan,
        step: i32,
        tables: *mut kvc_tables,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " To be asked before recorded calls over a plan's tables are replayed: whether the arrays hold build `generation`.\n Errors: STALE (they hold another, or the last build was refused). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_check(plan: *mut kvc_plan, generation: u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " A hash of all bookkeeping (ids, lengths, page tables, free lists): equal after equal calls on equal configs, so\n ranks and replays can be compared. Not stable between versions.\n   digest  filled\n Errors: none but misuse. Threads: any. Costs what the tables hold. Since 0.1."]
    pub fn kvc_cache_digest(cache: *mut kvc_cache, digest: *mut u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Checks that references add up, that free + used = total, and that no page is in two tables unless its count says\n so. Errors: INTERNAL with what does not hold. Threads: any. Costs what the tables hold. Since 0.1."]
    pub fn kvc_cache_check_invariants(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " The library's functions as a table, for hosts that load it by dlopen and want one symbol. Members are only ever\n appended: check struct_size (or offsetof) before using a newer one.\n   abi_version  KVC_ABI_VERSION of the caller's header\n Returns: a static table; NULL unless the major versions are equal, and while major is 0 the minors too, from 1.0 on\n unless the caller's minor is not above the library's. Threads: any. Since 0.1."]
    pub fn kvc_get_api(abi_version: u32) -> *const kvc_api;
}
