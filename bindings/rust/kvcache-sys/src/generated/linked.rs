// Generated from include/kvcache.h by scripts/generate_rust.sh.
use crate::*;

unsafe extern "C" {
    #[doc = " Returns the version of the loaded library as text, such as \"0.1.0\".\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_version() -> *const ::core::ffi::c_char;
    #[doc = " Returns the KVC_ABI_VERSION of the loaded library. Threads: any. Since 0.1."]
    pub fn kvc_abi_version() -> u32;
    #[doc = " Describes what the loaded library was built with, as one JSON object: version, abi, compiler, dlpack, backends, simd\n (every compiled CPU target, best last), features.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_build_info() -> *const ::core::ffi::c_char;
    #[doc = " Returns the name of a status, such as \"KVC_ERROR_OUT_OF_PAGES\". For an unknown code it returns the name of the code's\n band.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_status_name(status: kvc_status) -> *const ::core::ffi::c_char;
    #[doc = " Opens a device.\n\n   kvc_context_config config;\n   kvc_context_config_init(&config);\n   config.device_type = kDLCUDA;\n   status = kvc_context_create(&config, &context, &error);\n   if (status == KVC_ERROR_DEVICE_UNAVAILABLE) status = kvc_context_create(NULL, &context, &error);  // error says why\n\n   config   nullable: a CPU context with every default\n   context  returned; released by kvc_context_destroy\n It starts no thread: workers start with the first compute call that is large enough.\n Errors: INVALID_ARGUMENT, UNSUPPORTED (simd), DEVICE_UNAVAILABLE (no such file, another version of the backend's table, no\n driver, no device, or a device that the backend was not built for; the message says which), DEVICE_FAILED, OUT_OF_MEMORY.\n Threads: any. Since 0.1."]
    pub fn kvc_context_create(
        config: *const kvc_context_config,
        context: *mut *mut kvc_context,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives up the caller's reference to a context. Caches keep their context alive. NULL does nothing.\n The call that gives up the last reference (this one, kvc_cache_destroy, or a tensor's deleter) joins the idle worker\n threads of the context. Threads: any, once. Since 0.1."]
    pub fn kvc_context_destroy(context: *mut kvc_context);
    #[doc = " Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use), simd_available.\n   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success\n   length    nullable: bytes of the text without its NUL, also on BUFFER_TOO_SMALL (error->required counts the NUL)\n Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_context_describe(
        context: *mut kvc_context,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Reports whether the device has found a bad index by now, in a context with KVC_CONTEXT_VALIDATE. Engines that only replay\n graphs need it, and tests call it at their end:\n\n   cudaStreamSynchronize(stream);                           // without it, the check covers only work that has run by now\n   if (kvc_context_check(context, &error)) return report(error.message);\n   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095\n\n Errors: EARLIER_CALL, once for each report. Threads: any. It costs one load, and waits for nothing. Since 0.1."]
    pub fn kvc_context_check(context: *mut kvc_context, error: *mut kvc_error) -> kvc_status;
    #[doc = " Says what kvc_cache_create would allocate, or why it would refuse. It allocates no pool and adopts nothing.\n   group     group index, or -1 for the whole cache\n   estimate  filled\n Errors: as kvc_cache_create, without OUT_OF_MEMORY for pools. Threads: any. Since 0.1."]
    pub fn kvc_cache_estimate(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        group: i32,
        estimate: *mut kvc_estimate,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a cache. It reserves the pools of every layer and all bookkeeping; nothing grows later.\n   config   borrowed, arrays included; storages in it are adopted\n   cache    returned; released by kvc_cache_destroy\n Pools are zeroed on first touch.\n Errors: INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE, DUPLICATE (a storage given twice,\n or two that overlap), each with the layer or group in error->index (a group also in error->group); STRUCT_SIZE\n (error->index = the element), OUT_OF_MEMORY (also: the pools of all layers together exceed the host's memory and swap;\n required and available in bytes). Threads: any. Since 0.1."]
    pub fn kvc_cache_create(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        cache: *mut *mut kvc_cache,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Aborts open forwards and releases the cache. Pools stay allocated as long as exported views of them exist. NULL does\n nothing.\n Threads: any, once, and no other call may be inside the cache. Since 0.1."]
    pub fn kvc_cache_destroy(cache: *mut kvc_cache);
    #[doc = " Removes every sequence, everything that the prefix index holds, and every pin. Their ids become stale, and the memory of the\n pools stays reserved.\n Errors: BUSY (a forward is open). Threads: any. The cost grows with what it frees. Since 0.1."]
    pub fn kvc_cache_clear(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " Adds n empty sequences; takes no page.\n   sequences  [n], filled\n Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1."]
    pub fn kvc_seq_add(cache: *mut kvc_cache, n: i64, sequences: *mut kvc_seq, error: *mut kvc_error) -> kvc_status;
    #[doc = " Removes n sequences, and frees every page that no other sequence shares. A sequence in an open forward is gone for every\n later call; its pages are freed when that forward closes.\n   sequences  [n], distinct, any order\n Errors (nothing removed): STALE_ID, DUPLICATE with the index. Threads: any. Since 0.1."]
    pub fn kvc_seq_remove(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Forks n children. Child i holds the first positions[i] tokens of parents[i]. It shares every whole page, and copies a\n partial last one. A parent with an uncommitted tree is refused. All children are made, or none.\n   parents    [n]; one parent may occur often\n   positions  nullable: every child is as long as its parent. [n]; -1 = the parent's length, 0 = empty\n   children   [n], filled\n   stream     the device's stream for page copies; NULL on the CPU\n The cost grows with the logarithm of the length, not the length.\n Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES, OUT_OF_PAGES\n (as kvc_forward_begin, for all children), ORDER (KVC_STORAGE_NONE: too many copies wait). Threads: any. Since 0.1.\n From: persistent vectors; page sharing as in vLLM's PagedAttention."]
    pub fn kvc_seq_fork(
        cache: *mut kvc_cache,
        n: i64,
        parents: *const kvc_seq,
        positions: *const i64,
        children: *mut kvc_seq,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Drops the tokens from lengths[i] on, also in shared pages, and every uncommitted tree node. It needs no page. If the new\n end lies inside a shared page, the next forward that appends copies the kept part of that page, and kvc_cache_can_fit\n counts the copy. Each sequence counts its own copy: if all sequences that share the page append in one forward, the forward\n takes a new page for each of them. If they append in separate forwards, the last of them keeps the page.\n   sequences  [n], distinct\n   lengths    [n], 0..the sequence's length\n Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1."]
    pub fn kvc_seq_truncate(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *const i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives lengths in tokens, without the tokens of open forwards and without uncommitted tree nodes. O(1) a sequence.\n   lengths  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_lengths(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the page ids of one sequence in one group, in order. Entry i holds positions [i * page_size, (i+1) * page_size).\n Entry i is -1 if its page was freed because the page left a window, or lies between the sinks and the window of a stream.\n Pages of an open forward and of an uncommitted tree are not included.\n   pages     nullable if capacity is 0; [capacity], filled\n   count     nullable: number of entries, also on BUFFER_TOO_SMALL\n Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_seq_pages(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        group: i32,
        pages: *mut i32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the positions nearest to `position` where fork and truncate work in every group. They never work at a position in a\n freed page, even if no query there would read that page. With recurrent states only 0, checkpoints (kvc_seq_checkpoint)\n and the end work.\n   position         0..the sequence's length\n   before           nullable: the largest such position <= position (0 always works)\n   after            nullable: the smallest such position >= position; -1 = none\n Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_seq_nearest_position(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        position: i64,
        before: *mut i64,
        after: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says how many tokens each sequence, alone, could append in one forward now: 0..max_batch_tokens. For a sequence with an\n uncommitted tree it counts tree nodes. It considers the room in a partial last page, shared pages that must be copied,\n windows, and the free pages of every group, with those that can be evicted from the prefix index.\n   tokens  [n], filled; 0 for a sequence in an open forward\n Errors: STALE_ID. Threads: any. O(1) a sequence and group. Since 0.1."]
    pub fn kvc_seq_max_append(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says, for each sequence, how many pages of a group would become available if this sequence alone were removed. These are\n the pages that no other sequence, pin, save or load holds. A page that the prefix index also holds counts, because it can\n be evicted then. The pages of an open forward, of an uncommitted tree and of checkpoints count too. An engine that is\n short of pages compares sequences by this number to choose which one to remove.\n   pages  [n], filled\n Errors: STALE_ID, OUT_OF_RANGE (group). Threads: any. O(pages) a sequence. Since 0.1."]
    pub fn kvc_seq_exclusive_pages(
        cache: *mut kvc_cache,
        group: i32,
        n: i64,
        sequences: *const kvc_seq,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives n sequences a streaming window, so that they can continue without end in bounded memory. With s sink tokens and a\n window w, a query at position p of a full group sees keys j < s and max(s, p-(w-s)+1) <= j <= p. These are w keys, the\n query's own included, however the tokens are divided into steps. Sliding and chunked groups keep their own rules.\n   Positions  Attention works as if the kept tokens were contiguous, and no key is rotated again. attend rotates q at p for\n              the window and at min(p, w-1) for the sinks, and merges the two results. Distances for ALiBi follow the same\n              rule. If the caller rotates q, the scores of sinks follow from their true distance. Lengths and positions\n              count every token, to 2^30.\n   Memory     Pages that lie wholly between the sinks and the window (with its rollback margin) lose this sequence's\n              reference when the window is set, and when a forward ends. A sequence then holds at most the\n              pages of w + rollback_tokens + the tokens of a step, plus two pages. If a later window has\n              fewer sinks, the pages of the former sinks are freed when the next page leaves the window.\n   Rollback   fork and truncate work within the pages of the sinks, and where the window of the next query is complete\n              (kvc_seq_nearest_position). Elsewhere they return EVICTED.\n A fork has its parent's window, truncate keeps it, and a new sequence has none.\n   sequences      [n], distinct\n   sink_tokens    nullable: no sinks. [n]: s, 0..2^30\n   window_tokens  [n]: w, above s, at most 2^30; 0 = streaming ends, and s must be 0\n   flags          KVC_STREAMING_* or 0\n Errors (nothing changed), each with the index: STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; other\n values), EVICTED (keys that the next query would see are gone). Also UNSUPPORTED (a cache without KVC_CACHE_STREAMING).\n Threads: any. The cost grows with what it frees. Since 0.1. From: attention sinks as in StreamingLLM (Xiao et al.)."]
    pub fn kvc_seq_set_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *const i64,
        window_tokens: *const i64,
        flags: u32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the streaming windows of n sequences; 0 and 0 for a sequence without one.\n   sink_tokens    [n], filled: s, including the prefix that KVC_STREAMING_PREFIX_IS_SINK added\n   window_tokens  [n], filled: w\n Errors: STALE_ID. Threads: any, also while a forward computes. O(1) a sequence. Since 0.1."]
    pub fn kvc_seq_get_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *mut i64,
        window_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Chooses which factor set of longrope rotates the keys and queries of n sequences. A new sequence has the short set, and a\n fork has its parent's. Choose the long set if a sequence will pass original_max_position. In layers that rotate on append,\n the first stored key fixes the choice, and sequences with different sets never share a page. Layers that rotate on read\n change to the long set by themselves, in the step that passes original_max_position.\n   sequences  [n]\n   set        KVC_ROPE_SET_*\n Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with longrope\n rotates on append), UNSUPPORTED (no layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3."]
    pub fn kvc_seq_set_rope(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        set: i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Keeps the recurrent states that n sequences have now, so that fork and truncate work later at their present lengths. Use it\n before drafts that may be rejected, or at the end of a prompt that others will share. It costs a reference and no copy;\n the state stays in its page. Children inherit the checkpoints up to their position, and truncate drops those after it.\n Beyond max_checkpoints, the oldest one is dropped.\n   sequences  [n], distinct\n Errors (nothing kept): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.\n Since 0.1."]
    pub fn kvc_seq_checkpoint(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the lengths of encoder sequences in a cross group, without the tokens of open forwards. O(1) a sequence.\n   lengths  [n], filled\n Errors: STALE_ID, OUT_OF_RANGE (group), INVALID_ARGUMENT (no cross group). Threads: any, also while a forward computes.\n Since 0.1."]
    pub fn kvc_seq_encoder_lengths(
        cache: *mut kvc_cache,
        group: i32,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says whether kvc_forward_begin would succeed now, with the same status and numbers, and changes nothing.\n Errors: as kvc_forward_begin. Threads: any. Since 0.1."]
    pub fn kvc_cache_can_fit(cache: *mut kvc_cache, batch: *const kvc_batch, error: *mut kvc_error) -> kvc_status;
    #[doc = " Begins a step: checks the batch, reserves every page for its new tokens in every group, and plans the work. Either\n everything is reserved, or nothing changes. The T rows of q, k and v are the rows of the batch one after another, with\n append_lengths[i] tokens each.\n   batch    borrowed, arrays included\n   stream   the device's stream for the whole forward; NULL on the CPU\n   forward  filled; closed by kvc_forward_end or kvc_forward_abort\n The cost grows with the batch and its new pages, not the context.\n Errors with the row in error->index:\n   STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), TREE_TOO_LARGE\n   UNCOMMITTED         plain or encoder tokens for a sequence with a tree\n   INVALID_ARGUMENT    encoder_group is no cross group, or comes with trees or spans; a span id below 0, or in a tree\n   OUT_OF_PAGES        error->index is the first row that does not fit; those before it fit. required and available are\n                       pages of error->group for the whole batch. Idle pages of the prefix index count as available: begin\n                       evicts them first. An abort does not bring them back\n   OUT_OF_RANGE        a row that would pass 2^30 tokens\n   ORDER               a layer in range lacks tokens of the row; required = the sequence's tokens, available = those that\n                       the layer holds\n Other errors: BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_RANGE (layers), ORDER\n (KVC_STORAGE_NONE: copies wait to be taken). Threads: any. Since 0.1."]
    pub fn kvc_forward_begin(
        cache: *mut kvc_cache,
        batch: *const kvc_batch,
        stream: *mut ::core::ffi::c_void,
        forward: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores a layer's new K and V without computing attention. They are rounded or quantised to the layer's dtype, and rotated if\n the layer's config says so.\n   layer  a layer of the forward; each once, in any order\n Errors: STALE_ID, BUSY, ORDER (appended already), CANCELLED, OUT_OF_RANGE, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED\n (KVC_STORAGE_NONE), INVALID_ARGUMENT (a layer that reads another's K and V, or is recurrent; a cross layer outside of\n forwards of its encoder_group, any other layer within them). An error of the device closes the forward, as\n kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1."]
    pub fn kvc_forward_append(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_append_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores a layer's new K and V, and computes out = softmax(masked scores) V over everything stored, the new tokens included.\n   layer  a layer of the forward; each once, or once with PAST and once with SELF; in any order\n A score is scale * q.k, to which softcap, ALiBi, rel_bias and key_bias are applied in this order\n (docs/reference/biases.md). Positions are absolute, in partial calls too. Scores, sums and partial outputs are float32.\n Softmax weights are float32, or have 16 bits if q has 16 bits. K and V of new tokens too are read as stored, after\n rounding. A row that sees nothing has output 0 and LSE -inf (or its sink's logit). An MLA layer with up-projections\n absorbs them into q and out where queries are few. Where they are many, it decompresses K and V of the new tokens. Both\n give the same result within rounding (docs/reference/mla.md).\n With indices, a query attends to those listed keys that it would see without a list. Entry i is token i of the sequence\n (in a cross layer: of the encoder sequence), counted from its first token. Tree nodes are counted in the order in which\n they were appended. So one list serves several layers. A list is a set: its order is free, and an entry that occurs twice\n counts once. Negative entries are padding, at any place. A list that names no visible key gives output 0 and LSE -inf, as\n above. K and V of keys that no list names are not read. Lists in ascending order are read fastest\n (docs/reference/lists.md).\n Errors: those of kvc_forward_append, and\n   ORDER             the layer was not appended, and k and v are NULL (PAST needs neither); the same part was attended before;\n                     the layer reads the K and V of a layer outside of the forward's range; a forward of encoder tokens\n   OUT_OF_RANGE      softmax_scale, softcap, index_block, or k * index_block; on the CPU, an entry whose first token is not\n                     in the sequence, the new tokens included (error->index = its row). On a GPU such an entry names no key\n   SHAPE             also: key_bias or mask has fewer keys than a row (error->index = the row)\n   UNSUPPORTED       indices on a backend that does not attend over lists; STEP_WINDOW with trees; key_bias\n                     or mask in a graph whose calls a device replays\n   INVALID_ARGUMENT  PAST with SELF; PAST or SELF in a cross layer (all its keys are past); a recurrent layer; a layer with\n                     KVC_LAYER_KEYS_ONLY; out or lse shares an element with the other, or with a tensor that is read;\n                     REL_BIAS_ZERO without rel_bias; on the CPU, a NaN or +infinity in rel_bias or key_bias (-infinity\n                     hides a key)\n   CANCELLED         after kvc_forward_cancel, when the running work items are done. out is then undefined, and k and v may\n                     have been stored\n Threads: any, one at a time for each forward. Since 0.1.\n From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and merge by\n LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss."]
    pub fn kvc_forward_attend(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_attend_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Chooses, for each query, the k tokens or blocks with the highest scores among those that the query sees. The result can be\n kvc_attend_args.indices of other layers in the same forward.\n   layer  a layer with KVC_LAYER_KEYS_ONLY, after its append in this forward. Any number of calls\n Windows, chunks, spans and trees hide tokens as in kvc_forward_attend. Scores are float32. They are not scaled, because a\n positive factor changes no choice. Among equal scores, the lowest entry is chosen. A score that is NaN is lower than all\n others; in KVC_SELECT_RELU_SUM max(0, NaN) is 0. A list is in ascending order. If fewer than k entries have a token that\n the query sees, all of them are chosen, and the rest of the list is -1. The choice does not depend on the batch, the cut\n into steps or the threads (docs/reference/select.md).\n Errors: STALE_ID, BUSY, CANCELLED, NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, and\n   ORDER             the layer was not appended in this forward; the forward's stream is being captured\n   OUT_OF_RANGE      layer; index_block, candidate_block or k * index_block; first_blocks and last_blocks; on the CPU, an\n                     entry of candidates whose first token is not in the sequence (error->index = its row of the batch)\n   UNSUPPORTED       a backend that does not select; a sequence longer than its streaming window; no storage\n   INVALID_ARGUMENT  rule, or weights with KVC_SELECT_EACH_HEAD; a layer without KVC_LAYER_KEYS_ONLY; indices shares an element\n                     with another tensor\n After CANCELLED, indices is undefined. Threads: any, one at a time for each forward. Since 0.1.\n From: the lightning indexer of DeepSeek-V3.2, and block selection as in MiniMax-M3."]
    pub fn kvc_forward_select(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_select_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies a state tensor of a recurrent layer out of the cache. Row i of the tensor becomes the state that sequence i of the\n batch had before this forward; the fill value (kvc_state_config) for an empty sequence. Rows of inert rows are not written.\n It may be called any number of times.\n   layer   a recurrent layer of the forward\n   state   0..num_states - 1\n   token   -1 = the state before each row's first token; i = before its token i, 0..max_draft_states - 1. The state before\n           a tree node is the state after its parent, which this forward may have stored. Rows without such a token, or\n           without its state, are not written\n   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype; any stride between rows, and\n           each row compact\n Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state, token), INVALID_ARGUMENT (the layer is not recurrent, a forward of\n encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device closes the forward, as kvc_forward_abort does.\n Threads: any, one at a time for each forward. Since 0.1."]
    pub fn kvc_forward_load_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        token: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies a state tensor of a recurrent layer into the cache. Row i becomes the state of sequence i of the batch when this\n forward ends. After an abort the sequence has the state that it had. Store every state of every recurrent layer in range\n before kvc_forward_end. If a state is stored twice, the second one counts.\n Drafts: with max_draft_states, a cache also keeps the states after uncommitted nodes, and kvc_seq_commit keeps that of its\n leaf. For drafts of 4 tokens, with states [num_sequences, 4, shape...], call it for tokens 0 to 3, each with one slice.\n   token   -1 = the state after each row's last token; i = after its token i, 0..max_draft_states - 1. Rows that have no\n           such token are not read. Rows whose state is not kept are not read either. A state is kept after a row's last\n           token, and after nodes below max_draft_states\n   tensor  borrowed; as kvc_forward_load_state's\n Errors, threads: as kvc_forward_load_state. Since 0.1. From: a state for each draft as in vLLM's speculative Mamba."]
    pub fn kvc_forward_store_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        token: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Merges results of attention over disjoint sets of keys, by their LSE, from left to right. The result is that of attention over\n all the keys. A part with LSE -inf saw nothing, and its output is not read. If every part saw nothing, the result is 0 and\n -inf. Tensors are on the context's device. Parts may have more than T rows.\n   stream  the device's stream; NULL on the CPU\n Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index = the part.\n Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer."]
    pub fn kvc_merge_states(
        context: *mut kvc_context,
        args: *const kvc_merge_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Closes a step and keeps its tokens. Lengths grow, pages that left a window are freed, and removed sequences are released.\n Nodes of trees stay uncommitted until kvc_seq_commit.\n Every layer in range must have stored its tokens, because its pages may still hold tokens of another sequence. Layers that a\n step does not run must lie outside of its range (kvc_batch.layer_begin). In graphs and with KVC_STORAGE_NONE the engine ensures\n this itself.\n Errors (the forward stays open): ORDER (error->index = the first layer in range that was not appended, or that has a state\n which was not stored; with KVC_STORAGE_NONE, appends are not checked), CANCELLED, BUSY, STALE_ID. An error of the device\n closes the forward, as kvc_forward_abort does. Threads: any. Since 0.1."]
    pub fn kvc_forward_end(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Closes a step and drops its tokens. Its pages are given back, and everything is as it was before begin.\n Errors: BUSY (a call is computing: cancel first), STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_abort(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Stops a step, also while it computes on another thread. It does not wait. An attend in progress stops after the work items\n that run now, and returns CANCELLED (or OK, if no item was left). From then on append, attend and end return CANCELLED, and\n only kvc_forward_abort closes the forward.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_cancel(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Fills `info`, for engines that rotate q and k themselves, or that select logits.\n Errors: STALE_ID. Threads: any until the forward closes. Since 0.1."]
    pub fn kvc_forward_get_info(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        info: *mut kvc_forward_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Describes what was planned as one JSON object: rows, tokens, and for each group the kernels, work items, splits, prefix groups,\n and bytes of K and V that an attend reads.\n   buffer, capacity, length  as kvc_context_describe\n Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_forward_describe(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes a graph: the memory that its forwards need. kvc_cache_estimate includes the size of one graph at the cache's limits.\n   graph  filled\n Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.\n Since 0.1."]
    pub fn kvc_graph_create(
        cache: *mut kvc_cache,
        config: *const kvc_graph_config,
        graph: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Frees a graph, and everything that was borrowed from it. kvc_cache_destroy frees all graphs that are left.\n Errors: STALE_ID (no graph of this cache), BUSY (a forward is open in it: end or abort it). Threads: any. Since 0.1."]
    pub fn kvc_graph_destroy(cache: *mut kvc_cache, graph: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops its other uncommitted nodes. Each sequence\n has a leaf of its own. All are committed, or none. K and V of kept nodes move to their final slots where needed; no page is\n needed.\n   sequences  [n], distinct, any order, each with uncommitted nodes\n   leaves     [n]: a node, 0..kvc_seq_tree_nodes - 1; -1 = drop all\n   stream     as kvc_seq_fork\n Errors (nothing committed), each with the index: STALE_ID, DUPLICATE, BUSY, ORDER (no uncommitted nodes; or\n KVC_STORAGE_NONE: too many copies wait), OUT_OF_RANGE, EVICTED (a node whose recurrent state is not kept: see above). An\n error of the device leaves K and V of the nodes undefined; then only dropping them (-1) works. Threads: any. The cost\n grows with what it moves and frees.\n Since 0.1. From: tree attention as in SpecInfer and Medusa."]
    pub fn kvc_seq_commit(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        leaves: *const i32,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the numbers of uncommitted tree nodes, without those of open forwards. O(1) a sequence.\n   nodes  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_tree_nodes(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        nodes: *mut i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Returns a view of a layer's page pool, without a copy. The view keeps the memory alive, but not the contents: pages are reused.\n It has the layer's dtype; float8 comes as uint8, and rows of 4 bits as their bytes. Work enqueued on the stream after this\n call sees what earlier calls on the cache stored. Later calls on the cache do not wait for that work. The view shows all\n sequences and free slots: a slot in which this layer stored no token holds what it held before.\n   pool    KVC_POOL_*\n   flags   KVC_POOL_WRITABLE or 0\n   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy\n   stream  as kvc_seq_fork\n Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV of pools stored apart, a recurrent layer, scales of a\n layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_cache_export_pool(
        cache: *mut kvc_cache,
        layer: i32,
        pool: i32,
        flags: u32,
        tensor: *mut *mut DLManagedTensorVersioned,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies K and V of one layer of one sequence into dense tensors, as stored (rotated, rounded or quantised).\n   exported  filled; its tensors are returned, 256-byte aligned\n   stream    as kvc_seq_fork\n The copy runs outside the cache's lock, and holds the sequence's pages meanwhile. If page ids must be equal on all ranks, do\n not change the cache before the call has returned.\n Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted tree nodes\n cannot be exported), ORDER (a forward that stored these tokens did not cover the layer; available = the tokens that it\n holds), EVICTED (keys of the range are gone), UNSUPPORTED (scales of a layer without scales, a recurrent layer,\n KVC_STORAGE_NONE). Threads: any. Since 0.1."]
    pub fn kvc_seq_export(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_export_args,
        exported: *mut kvc_exported,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append would. With KVC_IMPORT_AS_STORED it\n is the inverse of kvc_seq_export, for a sequence without freed pages. (For rotated keys of longrope, give the sequence the\n same factor set first: kvc_seq_set_rope.) The import opens a forward of its own, which counts towards max_open_forwards.\n   args    borrowed, tensors included\n   stream  as kvc_seq_fork\n Errors: those of kvc_forward_begin; those of kvc_forward_append, with error->index = the layer; UNSUPPORTED with a recurrent\n group (use a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), with cross groups alone, and with\n KVC_STORAGE_NONE. Threads: any. Since 0.1."]
    pub fn kvc_seq_import(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_import_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives all copies that wait, and removes them from the cache.\n   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart\n   item_size  sizeof(kvc_copy)\n   count      how many there are, also on BUFFER_TOO_SMALL; with capacity 0 they continue to wait\n A cache with storage has no copies.\n Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). Threads: any. Since 0.1."]
    pub fn kvc_cache_take_copies(
        cache: *mut kvc_cache,
        copies: *mut kvc_copy,
        item_size: u32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Counts pages and tokens of one group or of the whole cache. Pages of open forwards and uncommitted trees count as used; their\n tokens do not count as held.\n   group  group index, or -1 for the whole cache\n   stats  filled\n It walks the page tables in use under the cache's lock, in microseconds for a thousand pages. Use it for dashboards, and\n kvc_cache_can_fit or kvc_seq_max_append in a step.\n Errors: OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_cache_stats(
        cache: *mut kvc_cache,
        group: i32,
        stats: *mut kvc_stats,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Describes the cache at this moment as one JSON object: the pages of each group, sequences and which pages they share, the prefix\n index, tiers, and open forwards. It has no tokens, and no keys of pages. docs/reference/describe.md lists the fields.\n   buffer, capacity, length  as kvc_context_describe. The text may grow between two calls\n It walks the page tables in use under the cache's lock, and takes a few times as long as kvc_cache_stats. `kvcache\n inspect` shows the text.\n Errors: BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_cache_describe(
        cache: *mut kvc_cache,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends k and v to the caller's cache, if they are given, and computes attention over it. The contract is that of\n flash_attn_with_kvcache of FlashAttention 2 and 3. In a row with L valid keys, the new ones included, query i of n has position\n p = L - n + i, so the last query sees the last key. Where p is negative, a causal query sees nothing. A query that sees nothing\n has output 0 and LSE -inf (with a sink: the sink's logit). Rows of q after the last cu_seqlens_q are not written in out.\n   args    borrowed, tensors included; every value of index tensors that the host reads is checked before anything is written\n   stream  the device's stream; NULL on the CPU\n With indices, a query attends to the listed slots of k_cache, page * page_size + offset, and nothing else hides a key: the\n contract of FlashMLA's sparse decoding. k_cache is [pages, page_size, Hkv, D]. Negative entries are padding, and a slot that\n occurs twice counts once. Slots have no positions, so what needs lengths or positions must be absent: k, v, block_table,\n cache_seqlens and its other name, cache_batch_idx, cache_leftpad, alibi_slopes, windows, chunks, and KVC_FLASH_ATTN_CAUSAL.\n Two rows must not append to one slot through their tables. A call allocates memory only if it is larger than all calls\n before it.\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with k_descale or\n v_descale; dims; indices on a backend that does not attend over lists), INVALID_ARGUMENT (arguments that contradict each other;\n a tensor that is written shares elements with another one; a cache row twice with k), OUT_OF_RANGE (a page id, slot,\n index, length or position, with the row in error->index), BUFFER_TOO_SMALL (a cache row without room for its new tokens:\n error->required and available in tokens, error->index = the row).\n Threads: any, on different caches. Since 0.1.\n From: FlashAttention 2 and 3; paged caches as in vLLM's PagedAttention; the rest as kvc_forward_attend."]
    pub fn kvc_flash_attn_with_kvcache(
        context: *mut kvc_context,
        args: *const kvc_flash_attn_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores rows of k and v in the caller's own paged cache, at the slots in slot_mapping, whose length is T. If two rows have\n the same slot, one of them is stored; which one is not defined.\n   args    borrowed, tensors included; every slot and position that the host reads is checked before anything is written.\n           slot_mapping and positions on a GPU: a token whose slot is not one of the cache's, or\n           whose position has no cos and sin, is skipped\n   stream  the device's stream; NULL on the CPU\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8 k; dims),\n INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or position,\n with the token in error->index). Threads: any, on different slots. Since 0.1.\n From: reshape_and_cache and concat_and_cache_mla of vLLM."]
    pub fn kvc_append_slots(
        context: *mut kvc_context,
        args: *const kvc_append_slots_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the tables of an open forward in one group, the new tokens included. The kind of the group decides the keys:\n   full       all keys; rows with a streaming window: pages of sinks, then of the window, and what lies between\n   sliding    the last pages only: from the first key that the row's first query sees\n   chunked    virtual rows: one for each chunk that a row's queries touch, from the first key of the chunk on\n   cross      the encoder's keys\n   trees      PREFIX and BRANCHES, of plain rows in the same batch too; WHOLE if every tree is a chain\n   tables     in: flags, part, arrays, pad_value. The rest is filled; valid until the next kvc_forward_tables of the\n              forward and group with the same part and flags, or until the forward closes\n Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group, an unknown part, a group to which the\n forward does not append encoder tokens; WHOLE of a tree that branches; PREFIX without trees; other arrays or padding than\n the graph's first call had), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31 keys and more;\n a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. The cost grows with the pages in the\n tables.\n Since 0.1."]
    pub fn kvc_forward_tables(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        group: i32,
        tables: *mut kvc_tables,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a plan. It owns the arrays of the tables that it makes.\n   plan  returned; released by kvc_plan_destroy\n Errors: INVALID_ARGUMENT, OUT_OF_RANGE (config), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_plan_create(
        context: *mut kvc_context,
        config: *const kvc_plan_config,
        plan: *mut *mut kvc_plan,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Releases a plan and its tables. NULL does nothing. Threads: any, once. Since 0.1."]
    pub fn kvc_plan_destroy(plan: *mut kvc_plan);
    #[doc = " Makes the tables of a step, for all its draft steps and parts. Tables are checked before anything is written. A refused\n build does not change the arrays, but makes them stale (the generation word is 0) until a build succeeds. In graph mode\n the arrays keep their addresses, and entries that a smaller batch does not use are inert.\n   args        borrowed, arrays included\n   stream      the device's stream; NULL on the CPU\n   generation  nullable; filled: the number of this build\n Tables are made on the context's device, in the order of the stream. Arrays on a device are read by its kernels, without a\n wait. If their lengths, rows, parents or sizes are wrong, the tables do not change, and the generation word is set to 0.\n Page ids and slots are checked only with KVC_CONTEXT_VALIDATE, and kvc_plan_check reports only what was enqueued last.\n Memory is allocated only for a step that is larger than all before.\n Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode does not use, both tables, rows\n that did not only grow, tokens of a page that do not begin at a page); OUT_OF_RANGE (a length; an entry of a table: the message\n has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required, available; 2^31 keys and\n more). error->index = the row. Threads: one at a time for one plan. Since 0.1.\n From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention."]
    pub fn kvc_plan_build(
        plan: *mut kvc_plan,
        args: *const kvc_plan_args,
        stream: *mut ::core::ffi::c_void,
        generation: *mut u64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the tables that the last build made.\n   step    DRAFT_DECODE: 0..num_steps - 1; else 0\n   tables  in: part; filled. Valid until the next build, in graph mode until kvc_plan_destroy\n Errors: STALE (no build, or the last was refused), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan does not have;\n fields that belong to the config). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_tables(
        plan: *mut kvc_plan,
        step: i32,
        tables: *mut kvc_tables,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Checks that a plan's arrays hold build `generation`. Call it before replaying recorded calls over its tables.\n Errors: STALE (they hold another build, or the last build was refused). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_check(plan: *mut kvc_plan, generation: u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Says what kvc_prefix_attach would find, and changes nothing.\n   query  borrowed, tokens included\n   hit    filled\n The cost grows with the pages that it looks at.\n Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. Since 0.1. From: prefix reuse as in SGLang's RadixAttention."]
    pub fn kvc_prefix_match(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        hit: *mut kvc_prefix_hit,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes a new sequence that holds the longest prefix of the query that every group can serve; nothing found gives an empty\n sequence. The sequence is like any other: it can be appended to, forked, truncated and published. In groups with a window\n it holds the keys that its next query sees, and the part of the rollback margin that the index has.\n   query     borrowed, tokens included\n   stream    the device's stream for copies of partial pages; NULL on the CPU\n   hit       nullable: filled\n   sequence  filled\n Errors: OUT_OF_RANGE (num_tokens or salt_begin), TOO_MANY_SEQUENCES, OUT_OF_PAGES (one page a group for the copy), ORDER\n (KVC_STORAGE_NONE: too many copies wait), OUT_OF_MEMORY (nodes of page lists). Threads: any. Since 0.1."]
    pub fn kvc_prefix_attach(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        stream: *mut ::core::ffi::c_void,
        hit: *mut kvc_prefix_hit,
        sequence: *mut kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes the first tokens of a sequence findable. The index takes references to its pages, and nothing is copied. The sequence uses\n whole pages that the index already holds for the same tokens in place of its own. Publish again while the sequence grows.\n   sequence   the library cannot check its tokens: the tokens of the query must be those that were appended\n   query      borrowed; num_tokens is the sequence's length, or less. Recurrent groups: less only at a checkpoint of the\n              sequence (kvc_seq_checkpoint); else the tokens are not found by themselves\n   options    nullable: all zero; borrowed\n   published  nullable: filled\n The next forward that appends to the sequence copies its last page, if this is not full and was published.\n Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE (num_tokens above the length, salt_begin, priority, time_to_live), ORDER (a\n layer lacks some of the tokens, because a forward did not cover it), UNSUPPORTED (the sequence has or had a streaming window,\n or its keys are rotated by the long set of longrope). Threads: any. The cost grows with the tokens. Since 0.1."]
    pub fn kvc_prefix_publish(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        query: *const kvc_prefix_query,
        options: *const kvc_prefix_options,
        published: *mut kvc_prefix_published,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Forgets every published prefix that begins with the query's tokens: their last page and all that continues it. Without tokens it\n forgets all that was published with this salt from the first page on. Sequences keep their pages.\n   query  borrowed, tokens included\n   pages  nullable: how many pages the index gave back\n Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. The cost grows with what it gives back. Since 0.1."]
    pub fn kvc_prefix_drop(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Forgets what one session published, except what a publish with another session, or with none, shares.\n   session  not 0\n   pages    nullable: how many pages the index gave back\n Errors: none but misuse. Threads: any. The cost grows with the size of the index. Since 0.1."]
    pub fn kvc_prefix_drop_session(
        cache: *mut kvc_cache,
        session: u64,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the priority and the time to live of the query's published tokens, from the first one on, in place of what they had.\n A page gets the new values if it has one of these tokens. Later pages keep what they have.\n   query         borrowed, tokens included\n   priority      0..100\n   time_to_live  as in kvc_prefix_options\n Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority or time_to_live). Threads: any. Since 0.1."]
    pub fn kvc_prefix_set_priority(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        priority: i32,
        time_to_live: i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the priority and the time to live of all that kvc_prefix_drop_session would drop.\n   session       not 0\n   priority      0..100\n   time_to_live  as in kvc_prefix_options\n Errors: OUT_OF_RANGE (priority or time_to_live). Threads: any. The cost grows with the size of the index. Since 0.1."]
    pub fn kvc_prefix_set_session_priority(
        cache: *mut kvc_cache,
        session: u64,
        priority: i32,
        time_to_live: i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Keeps the pages of a published prefix from being evicted. The prefix is the one that match finds with KVC_PREFIX_ALLOW_ALL.\n   query  borrowed, tokens included\n   hit    nullable: filled with what is pinned\n   pin    filled: an id, never 0; ended by kvc_prefix_unpin or kvc_cache_clear\n Errors: OUT_OF_RANGE (num_tokens or salt_begin). Threads: any. The cost grows with the pages. Since 0.1."]
    pub fn kvc_prefix_pin(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        hit: *mut kvc_prefix_hit,
        pin: *mut u64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a pin. Pages that nothing else holds become idle, or free if they were dropped meanwhile.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_prefix_unpin(cache: *mut kvc_cache, pin: u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Tells the cache the time, in any unit. It starts at 0 and never goes back: an earlier time changes nothing. Give all ranks of an\n engine the same times.\n   now  >= 0\n Errors: OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_cache_set_time(cache: *mut kvc_cache, now: i64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Computes the keys of all whole pages of a token array. It needs no context and no cache.\n   args  borrowed, arrays included\n   keys  [num_tokens / page_size, 32], filled; not read if there is no whole page\n Errors (nothing written): NULL_ARGUMENT (an array that is needed), OUT_OF_RANGE (a number outside of what its field says, a span\n with its index in error->index), INVALID_ARGUMENT (begin without a parent, or not at a page; reserved). Threads: any. O(tokens\n and media). Since 0.1. From: block hashes of vLLM's prefix cache."]
    pub fn kvc_page_keys(args: *const kvc_page_keys_args, keys: *mut u8, error: *mut kvc_error) -> kvc_status;
    #[doc = " Returns events from a number on, as many as the buffer takes. Without a buffer it returns no event, and fills only the\n range: `begin` is the oldest event that can be read from args->next on, and so is `end`.\n   args   borrowed; its arrays are filled\n   range  filled\n Errors: OUT_OF_RANGE (next above `newest`), BUFFER_TOO_SMALL (not even one event fits in capacity_bytes), STRUCT_SIZE\n (event_size), INVALID_ARGUMENT (events and bytes; data_parallel_rank below -1). Threads: any. The cost grows with what it\n returns.\n Since 0.1."]
    pub fn kvc_events_read(
        cache: *mut kvc_cache,
        args: *const kvc_events_args,
        range: *mut kvc_events_range,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Returns a KVC_EVENT_STORED for each page that the index holds, each after the page that it continues. A message in bytes\n begins with AllBlocksCleared. Events from range.end on happened after the snapshot. Without a buffer, the call says how\n large one must be.\n   args   borrowed; its arrays are filled\n   range  filled\n Errors: BUFFER_TOO_SMALL (nothing returned; required: elements or bytes), STRUCT_SIZE (event_size), INVALID_ARGUMENT as in\n kvc_events_read. Threads: any. The cost grows with the size of the index, and other calls on the cache wait while its\n pages are listed. Since 0.1."]
    pub fn kvc_events_snapshot(
        cache: *mut kvc_cache,
        args: *const kvc_events_args,
        range: *mut kvc_events_range,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Saves a sequence. Meanwhile the sequence is busy, as in an open forward, and all other sequences can be used. To use this\n one too, save a fork instead. The call waits until its bytes are written, and until the device has done earlier work of\n the cache.\n   args    borrowed, with all it names\n   stream  as kvc_seq_fork\n Errors: STALE_ID, BUSY, UNCOMMITTED, INVALID_ARGUMENT (path and write, or neither; num_tokens is not the length), OUT_OF_RANGE\n (section_bytes), ORDER (a forward did not cover a layer, so it lacks tokens), IO, UNSUPPORTED (KVC_STORAGE_NONE). After an\n error the file of that name is as it was. Threads: any. Since 0.1."]
    pub fn kvc_seq_save(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_save_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Adds a sequence with the contents of a saved one. The cache must have the same layers, groups, dtypes and RoPE settings, and the\n same fingerprint. Capacity, pools and limits may differ. The page size may differ too, unless the sequence has freed\n tokens that the other page size cannot leave out. The call holds one section of the file at a time, and checks it before\n it uses it. No other call sees the sequence before all of it is there. Pages of the prefix index that it evicts stay\n evicted.\n   args        borrowed, with all it names\n   sequence    filled\n   num_tokens  nullable: how many token ids the file has, also on BUFFER_TOO_SMALL\n   stream      as kvc_seq_fork\n Errors (no sequence was added): IO, CORRUPT (damaged bytes), LAYOUT (another model, dtype or layout; the message has what the\n file and the cache say; or holes of the saved sequence that this page size cannot have), BUFFER_TOO_SMALL (capacity; never for\n 0), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), INVALID_ARGUMENT (path and read, or neither), UNSUPPORTED (a later\n format; KVC_STORAGE_NONE; a streaming window, and a cache without KVC_CACHE_STREAMING). Threads: any. Since 0.1."]
    pub fn kvc_seq_load(
        cache: *mut kvc_cache,
        args: *const kvc_load_args,
        stream: *mut ::core::ffi::c_void,
        sequence: *mut kvc_seq,
        num_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Adds a tier below the pools, and below the tiers that were added before: lookups take the first tier that has a page.\n   config  borrowed; its tier is adopted: kvc_cache_destroy closes it\n It may wait for I/O: it reads the names in the directory.\n Errors: INVALID_ARGUMENT (directory, tier, store, sync or the capacity of a host tier), OUT_OF_RANGE (capacity_bytes,\n min_tokens), UNSUPPORTED (no prefix index, no fingerprint, no pools, a ninth tier, another version of kvcache_tier.h, or\n flags), IO (the directory cannot be used), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_cache_add_tier(
        cache: *mut kvc_cache,
        config: *const kvc_tier_config,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to load the part of a prefix that the tiers have and the pools lack. While the load runs it holds one sequence and\n the pages.\n   query    borrowed, tokens included\n   options  nullable: all zero; borrowed\n   hit      nullable: filled as by kvc_prefix_match\n   job      filled; 0 = nothing is to be loaded, or computing is faster\n Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority, time_to_live, token_ns), UNSUPPORTED (the cache has no tier),\n TOO_MANY_SEQUENCES, OUT_OF_PAGES, OUT_OF_MEMORY. Threads: any. The cost grows with the pages, because tiers answer from\n memory.\n Since 0.1."]
    pub fn kvc_prefix_load(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        options: *const kvc_prefix_load_options,
        hit: *mut kvc_prefix_hit,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says whether a job has ended. The call that first says so ends the job: it publishes what was loaded, frees the pages of the\n suspended sequence, or makes the resumed one usable. If a suspend or resume has failed, the error says so and ends the job too.\n   info  filled\n Errors: STALE_ID (no such job; or the sequence of a suspend or resume was removed, which ends the job), IO (no tier took a page of\n the sequence, or a tier has lost one), CANCELLED (a suspend or resume). Threads: any. It waits for nothing. Since 0.1."]
    pub fn kvc_job_poll(
        cache: *mut kvc_cache,
        job: kvc_job,
        info: *mut kvc_job_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a job early. It still waits for pages that are being read or written, so poll it until it is done. What was loaded by\n then is kept. A suspend or resume leaves its sequence as it was.\n Errors: STALE_ID. Threads: any. It waits for nothing. Since 0.1."]
    pub fn kvc_job_cancel(cache: *mut kvc_cache, job: kvc_job, error: *mut kvc_error) -> kvc_status;
    #[doc = " Gives a file descriptor that is readable while a job has ended and was not polled since, for poll(), epoll and the like. The cache\n owns it: do not read or close it. It is valid until kvc_cache_destroy.\n   descriptor  filled\n Errors: UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1."]
    pub fn kvc_cache_job_descriptor(cache: *mut kvc_cache, descriptor: *mut i32, error: *mut kvc_error) -> kvc_status;
    #[doc = " Counts the traffic of the tiers. An engine that shuts down polls until pages_waiting is 0, so that nothing is lost.\n   traffic  filled\n Errors: none but misuse. Threads: any. Since 0.1."]
    pub fn kvc_cache_tier_traffic(
        cache: *mut kvc_cache,
        traffic: *mut kvc_tier_traffic,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to move the pages of a sequence to a tier. The loop of an engine that has too few pages for a step:\n\n   kvc_seq victim = latest_request();\n   if (kvc_seq_suspend(cache, victim, &job, &error)) return report(error.message);\n   ...                                                        // poll the job until it is done: then its pages are available\n   if (kvc_seq_resume(cache, victim, &job, &error) == KVC_ERROR_OUT_OF_PAGES) continue;     // later, when others have ended\n   ...                                                        // poll the job until it is done: then the sequence is as before\n\n The pages are those that kvc_seq_exclusive_pages counts. Pages that another sequence or an export uses too stay, and the sequence\n keeps its references. Each page goes to the first tier that takes it, in the order in which the tiers were added. A host tier\n never evicts it, and refuses a page for which it has no room; another tier may evict it. Until the job is done the\n sequence is busy, as in an open forward, and a failure leaves it as it was.\n   A suspended sequence keeps its id, length, settings and checkpoints, and counts as one of max_sequences. Calls that read or\n change its contents return SUSPENDED, and kvc_seq_pages gives -1 for its pages. kvc_seq_remove and kvc_cache_clear remove\n it, and its objects from the tiers. A process that is killed leaves its objects in a folder, until the capacity evicts them.\n   job  filled; never 0\n Errors: STALE_ID, BUSY, UNCOMMITTED, SUSPENDED, UNSUPPORTED (the cache has no tier, or they all have KVC_TIER_STORE_NOTHING),\n OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_seq_suspend(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to bring back a suspended sequence. It takes all pages at once, and evicts as kvc_forward_begin does. The sequence stays\n suspended until the job is done. If a tier has lost an object, the job fails, and the sequence stays suspended: remove it and\n compute its tokens again.\n   job  filled; never 0\n Errors: STALE_ID, BUSY (a resume runs), ORDER (the sequence is not suspended), OUT_OF_PAGES (of error->group), OUT_OF_MEMORY,\n UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1."]
    pub fn kvc_seq_resume(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the cache's transport. Call it once, before the cache's first transfer.\n   transport  adopted: kvc_cache_destroy closes it\n Errors: UNSUPPORTED (no pools, encoder groups, another version of kvcache_transport.h), INVALID_ARGUMENT (it lacks a\n function), ORDER (the cache has one, or had a transfer), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_cache_set_transport(
        cache: *mut kvc_cache,
        transport: *const kvc_transport,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to receive a sequence. It takes its pages at once, and evicts as kvc_forward_begin does.\n   args      borrowed\n   transfer  filled; never 0\n Errors: OUT_OF_RANGE (num_tokens, timeout_ms), STALE_ID, BUSY, UNCOMMITTED, SUSPENDED (prefix), INVALID_ARGUMENT (the prefix has\n num_tokens or more), ORDER (some layer lacks tokens of the prefix), UNSUPPORTED (no pools, encoder groups; a prefix with a\n streaming window or beside a group of states), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), OUT_OF_MEMORY, IO (the\n transport has no address). Threads: any. Since 0.1."]
    pub fn kvc_transfer_receive(
        cache: *mut kvc_cache,
        args: *const kvc_receive_args,
        transfer: *mut kvc_transfer,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Writes the description of a transfer that the cache receives: its layout, the tokens that it needs, and where to send them. It is\n valid once, for one sender.\n   buffer  nullable if capacity is 0, which only gives `bytes`; filled\n   bytes   filled with the length of the description\n Errors: STALE_ID, INVALID_ARGUMENT (the cache sends this transfer), BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_transfer_describe(
        cache: *mut kvc_cache,
        transfer: kvc_transfer,
        buffer: *mut ::core::ffi::c_void,
        capacity: i64,
        bytes: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to send a sequence to the cache that a description is from. Nothing is sent before the first poll.\n   description  borrowed; [bytes], from kvc_transfer_describe\n   transfer     filled; never 0\n Errors: STALE_ID, UNSUPPORTED (no pools, encoder groups; a streaming window; a description of a later version), CORRUPT\n (the description is damaged, or is none), LAYOUT (the caches differ in model, layout or transport: the message has both\n values), OUT_OF_RANGE (the sequence is longer than the receiver expects), EVICTED (a window has freed tokens that the\n receiver needs), IO (the transport cannot reach the address), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_transfer_send(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        description: *const ::core::ffi::c_void,
        bytes: i64,
        transfer: *mut kvc_transfer,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Moves a transfer on, and says how far it is. The transfer ends with the call that first says that it is done, or with a\n call that fails.\n   info  filled\n Errors: STALE_ID (no such transfer; or the sender's sequence was removed), EVICTED (a window has freed tokens before they were sent),\n ORDER (the sender's sequence was extended, and its state at num_tokens is gone), IO (the peer failed, cancelled or is silent; the\n transport failed), CORRUPT (a message does not fit the description), OUT_OF_MEMORY. All but \"no such transfer\" end it.\n Threads: any. Since 0.1."]
    pub fn kvc_transfer_poll(
        cache: *mut kvc_cache,
        transfer: kvc_transfer,
        info: *mut kvc_transfer_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a transfer. What was received is dropped. If this side has heard of the peer, it tells the peer, whose poll then\n returns IO. Otherwise the peer waits until its timeout.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_transfer_cancel(cache: *mut kvc_cache, transfer: kvc_transfer, error: *mut kvc_error) -> kvc_status;
    #[doc = " Computes a hash of all bookkeeping: ids, lengths, page tables, free lists. Equal calls on equal configs give equal hashes, so\n ranks and replays can be compared. The hash may differ between versions of the library.\n   digest  filled\n Errors: none but misuse. Threads: any. The cost grows with the size of the tables. Since 0.1."]
    pub fn kvc_cache_digest(cache: *mut kvc_cache, digest: *mut u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Checks that references add up, that free + used = total, and that no page is in two tables unless its count says so.\n Errors: INTERNAL, with the invariant that does not hold. Threads: any. The cost grows with the size of the tables.\n Since 0.1."]
    pub fn kvc_cache_check_invariants(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " Returns the library's functions as a table, for hosts that load it by dlopen and need one symbol. Members are only appended:\n check struct_size (or offsetof) before using a newer one.\n   abi_version  KVC_ABI_VERSION of the caller's header\n Returns: a static table. NULL if the major versions differ; while major is 0, if the minor versions differ; from 1.0 on, if the\n caller's minor version is above the library's. Threads: any. Since 0.1."]
    pub fn kvc_get_api(abi_version: u32) -> *const kvc_api;
}
