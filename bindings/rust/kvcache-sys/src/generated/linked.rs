// Generated from include/kvcache.h by scripts/generate_rust.sh.
use crate::*;

unsafe extern "C" {
    #[doc = " Returns the version of the loaded library as text, such as \"0.1.0\".\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_version() -> *const ::core::ffi::c_char;
    #[doc = " Returns the KVC_ABI_VERSION of the loaded library. Threads: any. Since 0.1."]
    pub fn kvc_abi_version() -> u32;
    #[doc = " Describes how the loaded library was built, as one JSON object. Its members are version, abi, compiler, dlpack, backends,\n simd (the name of every compiled SIMD target, the fastest last) and features.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_build_info() -> *const ::core::ffi::c_char;
    #[doc = " Returns the name of a status, such as \"KVC_ERROR_OUT_OF_PAGES\". For an unknown code it returns the name of the band.\n Returns: a static string, never NULL. Threads: any. Since 0.1."]
    pub fn kvc_status_name(status: kvc_status) -> *const ::core::ffi::c_char;
    #[doc = " Opens a device.\n\n   kvc_context_config config;\n   kvc_context_config_init(&config);\n   config.device_type = kDLCUDA;\n   status = kvc_context_create(&config, &context, &error);\n   if (status == KVC_ERROR_DEVICE_UNAVAILABLE) status = kvc_context_create(NULL, &context, &error);  // error says why\n\n   config   nullable: a CPU context with every default\n   context  returned; released by kvc_context_destroy\n This call starts no thread. The first compute call that is large enough starts the worker threads.\n Errors: INVALID_ARGUMENT, UNSUPPORTED (simd, flags, reserved), DEVICE_FAILED, OUT_OF_MEMORY, DEVICE_UNAVAILABLE (no such\n file, a file for another version of kvcache_backend.h, no driver, no device, or a device that the backend was not built\n for; the message says which).\n Threads: any. Since 0.1."]
    pub fn kvc_context_create(
        config: *const kvc_context_config,
        context: *mut *mut kvc_context,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Releases the caller's reference to a context. A cache keeps a reference to its context. NULL does nothing.\n The last reference may be released by this function, by kvc_cache_destroy, or by the deleter of an exported tensor. The\n call that releases it also joins the worker threads of the context, which are idle then. Threads: any, once. Since 0.1."]
    pub fn kvc_context_destroy(context: *mut kvc_context);
    #[doc = " Describes the context as one JSON object: device, device_id, threads, host_parallel_for, simd (in use), simd_available.\n   buffer    nullable if capacity is 0; [capacity] bytes, NUL-terminated on success\n   length    nullable: bytes of the text without its NUL, filled also on BUFFER_TOO_SMALL (error->required counts the NUL\n             too)\n Errors: BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_context_describe(
        context: *mut kvc_context,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " In a context with KVC_CONTEXT_VALIDATE, reports a bad index that the device has found. Engines that only replay graphs\n need this call, because a replay reports nothing. Tests should call it at their end:\n\n   cudaStreamSynchronize(stream);                           // without this line, the check covers only work that is done\n   if (kvc_context_check(context, &error)) return report(error.message);\n   // an earlier kvc_append_slots, row 3: slot_mapping[3] is 4096, not in 0..4095\n\n The call reads one word of memory, and does not wait for the device.\n Errors: EARLIER_CALL (a bad index was found; the next check does not report it again). Threads: any. Since 0.1."]
    pub fn kvc_context_check(context: *mut kvc_context, error: *mut kvc_error) -> kvc_status;
    #[doc = " Computes how much memory kvc_cache_create would allocate, or returns the error that kvc_cache_create would return. The\n call allocates no pool and adopts nothing.\n   group     group index, or -1 for the whole cache\n   estimate  filled\n Errors: as kvc_cache_create, except OUT_OF_MEMORY for pools. Threads: any. Since 0.1."]
    pub fn kvc_cache_estimate(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        group: i32,
        estimate: *mut kvc_estimate,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a cache. The call reserves the pools of all layers, and the bookkeeping of max_sequences sequences and\n max_open_forwards forwards. A graph takes memory of its own (kvc_graph_create).\n   config   borrowed, arrays included; storages in it are adopted\n   cache    returned; released by kvc_cache_destroy\n A pool that the cache allocates holds zeros until K and V are stored in it.\n Errors:\n   INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, DTYPE, DEVICE, RANK, SHAPE, STRIDE\n                  error->index is the index of the layer or group. For a group, error->group is the same index.\n                  For a layer, error->group is -1\n   DUPLICATE      a storage is given twice, or two storages overlap; error->index is the layer\n   STRUCT_SIZE    error->index is the element\n   OUT_OF_MEMORY  also: the pools of all layers together exceed the memory plus swap of the host; required and available\n                  are in bytes\n Threads: any. Since 0.1."]
    pub fn kvc_cache_create(
        context: *mut kvc_context,
        config: *const kvc_cache_config,
        cache: *mut *mut kvc_cache,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Aborts open forwards and releases the cache. A pool stays allocated as long as an exported view of the pool exists. NULL\n does nothing. No other call on the cache may run at the same time.\n Threads: any, once. Since 0.1."]
    pub fn kvc_cache_destroy(cache: *mut kvc_cache);
    #[doc = " Removes every sequence, every published prefix and every pin. The ids of removed sequences and pins become stale. The\n pools stay allocated.\n Errors: BUSY (a forward is open). Threads: any. The cost grows with the number of pages that become free. Since 0.1."]
    pub fn kvc_cache_clear(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " Adds n empty sequences. The call takes no page.\n   sequences  [n], filled\n Errors: TOO_MANY_SEQUENCES. Threads: any. Since 0.1."]
    pub fn kvc_seq_add(cache: *mut kvc_cache, n: i64, sequences: *mut kvc_seq, error: *mut kvc_error) -> kvc_status;
    #[doc = " Removes n sequences, and frees every page that nothing else holds: no other sequence, prefix index, pin, save or load. If\n a sequence is in an open forward, its id becomes stale at once, and its pages are freed when the forward closes.\n   sequences  [n], distinct, any order\n Errors (nothing removed): STALE_ID, DUPLICATE; error->index is the index in sequences. Threads: any. Since 0.1."]
    pub fn kvc_seq_remove(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes n forks of sequences. Child i has the first positions[i] tokens of parents[i]. The child shares all whole pages of\n these tokens. If the last page of these tokens is partial, the child gets a copy of this page. A parent must not have an\n uncommitted tree. The call makes all children, or none.\n   parents    [n]; a parent may occur several times\n   positions  nullable: every child is as long as its parent. [n]; -1 = the length of the parent, 0 = an empty child\n   children   [n], filled\n   stream     the device's stream for page copies; NULL on the CPU\n The cost of a child grows with the logarithm of its length.\n Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE, EVICTED (see kvc_seq_nearest_position), TOO_MANY_SEQUENCES,\n OUT_OF_PAGES (as kvc_forward_begin; required and available are the numbers for all children together), ORDER\n (KVC_STORAGE_NONE: the engine must take queued copies first, see kvc_cache_take_copies). Threads: any. Since 0.1.\n From: persistent vectors; page sharing as in vLLM's PagedAttention."]
    pub fn kvc_seq_fork(
        cache: *mut kvc_cache,
        n: i64,
        parents: *const kvc_seq,
        positions: *const i64,
        children: *mut kvc_seq,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Drops the tokens of sequence i from position lengths[i] on. Also drops all uncommitted tree nodes of the sequence. Other\n sequences that share the pages keep their tokens. The call takes no page. But the new end may lie inside a shared page.\n Then the next forward that appends to the sequence copies the kept part of this page to a new page. kvc_cache_can_fit\n counts the new page. If one forward appends to all sequences that share the page, it takes a new page for each of these\n sequences. If separate forwards append to the sequences, the last sequence keeps the shared page.\n   sequences  [n], distinct\n   lengths    [n], the new length of each sequence: from 0 to its present length\n Errors (nothing truncated): STALE_ID, BUSY, DUPLICATE, OUT_OF_RANGE, EVICTED. Threads: any. Since 0.1."]
    pub fn kvc_seq_truncate(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *const i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the lengths of n sequences in tokens. Tokens of open forwards and uncommitted tree nodes do not count. The cost is\n O(1) for each sequence.\n   lengths  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_lengths(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the page ids of one sequence in one group, in order. Entry i is the page of positions\n [i * page_size, (i+1) * page_size). An entry is -1 if the page was freed because no later query sees its tokens\n (kvc_visibility, kvc_seq_set_streaming). Pages of an open forward and of an uncommitted tree are not included.\n   pages     nullable if capacity is 0; [capacity], filled\n   count     nullable: number of entries, filled also on BUFFER_TOO_SMALL\n Errors: STALE_ID, OUT_OF_RANGE (group), BUFFER_TOO_SMALL (never for capacity 0). Threads: any. Since 0.1."]
    pub fn kvc_seq_pages(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        group: i32,
        pages: *mut i32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the positions nearest to `position` at which fork and truncate work in every group. If a group has freed the pages\n of tokens [b, e), all positions up to b work in this group. No position between b and e works. A position p >= e works\n if the query at p would see none of these tokens. With a recurrent group, only position 0, checkpoints\n (kvc_seq_checkpoint) and the end of the sequence work.\n   position         0..the sequence's length\n   before           nullable: the largest working position <= position (0 always works)\n   after            nullable: the smallest working position >= position; -1 = none\n Errors: STALE_ID, OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_seq_nearest_position(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        position: i64,
        before: *mut i64,
        after: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Computes for each sequence how many tokens one forward could append to it now, if the forward appended to no other\n sequence. The result is in 0..max_batch_tokens. For a sequence with an uncommitted tree, the result is a number of tree\n nodes. The result takes account of the room in a partial last page, shared pages that must be copied, windows, and the\n free pages of every group. Pages that can be evicted from the prefix index count as free.\n   tokens  [n], filled; 0 for a sequence in an open forward\n Errors: STALE_ID. Threads: any. The cost is O(1) for each sequence and group. Since 0.1."]
    pub fn kvc_seq_max_append(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Computes for each sequence how many pages of a group would become available if this sequence alone were removed. These are\n the pages that no other sequence, pin, save or load holds. Pages of an open forward, of an uncommitted tree and of\n checkpoints count too. A page that the prefix index also holds counts, because it could be evicted after the removal. An\n engine that is short of pages can compare sequences by this number, to choose the sequence that it removes.\n   pages  [n], filled\n Errors: STALE_ID, OUT_OF_RANGE (group). Threads: any. The cost is O(pages) for each sequence. Since 0.1."]
    pub fn kvc_seq_exclusive_pages(
        cache: *mut kvc_cache,
        group: i32,
        n: i64,
        sequences: *const kvc_seq,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives n sequences a streaming window, so that they can grow without end in bounded memory. Let s be the number of sink\n tokens and w the window. In a full group, a query at position p then sees the keys j < s, and the keys with\n max(s, p-(w-s)+1) <= j <= p. Both ranges together have w keys, the query's own key included (fewer while p < w - 1). Which\n keys a query sees does not depend on how the tokens are divided into steps. Sliding and chunked groups keep their own\n rules.\n   Positions  Attention gives the result that it would give if the kept tokens had consecutive positions. Stored keys are\n              not rotated again. Instead attend rotates q twice: at p for the window, and at min(p, w-1) for the sinks.\n              Then attend merges the two results. Distances for ALiBi are computed from these two positions too. If the\n              caller rotates q, the scores of the sinks depend on the true distance between sink and query. Lengths and\n              positions count every token, evicted tokens included, up to 2^30.\n   Memory     The rollback margin is the last rollback_tokens tokens before the window. This call, and the end of each\n              forward, release each page whose tokens all lie after the sinks and before the rollback margin. From then\n              on, during steps too, the sequence holds at most the pages for w + rollback_tokens + t tokens, plus two\n              pages, where t is the number of tokens that a step appends to the sequence. If a later call sets fewer sinks,\n              the pages of the former sinks are freed when the next page leaves the window and the rollback margin.\n   Rollback   fork and truncate work at positions within the pages of the sinks. They also work at positions where all keys\n              in the window of the next query are still stored (kvc_seq_nearest_position). At other positions they return\n              EVICTED.\n A fork has the window of its parent. truncate does not change the window. A new sequence has no window.\n   sequences      [n], distinct\n   sink_tokens    nullable: no sinks. [n]: s, 0..2^30\n   window_tokens  [n]: w, above s, at most 2^30. 0 = the sequence has no streaming window from now on; s must then be 0\n   flags          KVC_STREAMING_* or 0\n Errors (nothing changed): UNSUPPORTED (a cache without KVC_CACHE_STREAMING), and with the index of the sequence in\n error->index: STALE_ID, DUPLICATE, BUSY, UNCOMMITTED, INVALID_ARGUMENT (w <= s; s > 0 with w = 0; a value outside of\n 0..2^30), EVICTED (keys that the next query would see were freed).\n Threads: any. The cost grows with the number of pages that the call frees. Since 0.1.\n From: attention sinks as in StreamingLLM (Xiao et al.)."]
    pub fn kvc_seq_set_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *const i64,
        window_tokens: *const i64,
        flags: u32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the streaming windows of n sequences. A sequence without a streaming window has sink_tokens 0 and window_tokens 0.\n   sink_tokens    [n], filled: s, including the tokens that KVC_STREAMING_PREFIX_IS_SINK made sinks\n   window_tokens  [n], filled: w\n Errors: STALE_ID. Threads: any, also while a forward computes. The cost is O(1) for each sequence. Since 0.1."]
    pub fn kvc_seq_get_streaming(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        sink_tokens: *mut i64,
        window_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Chooses the factors by which longrope rotates the keys and queries of n sequences: short_factors or long_factors of\n kvc_rope_scaling. A new sequence has the short factors, and a fork has the factors of its parent. Choose the long factors\n for a sequence that will pass original_max_position. If a layer with longrope rotates on append, call this function before\n the first token of the sequence is stored. In a cache with such a layer, sequences with different factors never share a\n page. For layers that rotate on read, this choice is not needed: in the step that passes original_max_position, the\n library changes to the long factors.\n   sequences  [n]\n   set        KVC_ROPE_SET_*\n Errors (nothing changed): STALE_ID, BUSY, INVALID_ARGUMENT (set), ORDER (a sequence is not empty, and a layer with\n longrope rotates on append), UNSUPPORTED (no layer has longrope). Threads: any. Since 0.1. From: LongRoPE, as in Phi-3."]
    pub fn kvc_seq_set_rope(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        set: i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes checkpoints of the present recurrent states of n sequences. fork and truncate can then return to the present lengths\n later. Make a checkpoint before drafts that may be rejected, or at the end of a prompt that other sequences will share.\n The call copies nothing: the checkpoint is a reference to the page of the state. A fork inherits the checkpoints up to the\n fork's position. truncate drops the checkpoints after the new end. When a sequence has more than max_checkpoints, its\n oldest checkpoint is dropped.\n   sequences  [n], distinct\n Errors (no checkpoint made): UNSUPPORTED (no recurrent group), STALE_ID, DUPLICATE, BUSY, UNCOMMITTED. Threads: any.\n Since 0.1."]
    pub fn kvc_seq_checkpoint(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the lengths of the encoder sequences that n sequences have in a cross group. Tokens of open forwards do not count.\n The cost is O(1) for each sequence.\n   lengths  [n], filled\n Errors: STALE_ID, OUT_OF_RANGE (group), INVALID_ARGUMENT (not a cross group). Threads: any, also while a forward computes.\n Since 0.1."]
    pub fn kvc_seq_encoder_lengths(
        cache: *mut kvc_cache,
        group: i32,
        n: i64,
        sequences: *const kvc_seq,
        lengths: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Checks whether kvc_forward_begin would succeed now. The call returns the status that kvc_forward_begin would return, and\n fills `error` with the same numbers. The call changes nothing.\n Errors: as kvc_forward_begin. Threads: any. Since 0.1."]
    pub fn kvc_cache_can_fit(cache: *mut kvc_cache, batch: *const kvc_batch, error: *mut kvc_error) -> kvc_status;
    #[doc = " Begins a step, and reserves all pages that the new tokens of the batch need in every group. The call checks the batch\n first. If the call fails, it reserves nothing. The T rows of q, k and v are the tokens of the batch: first the\n append_lengths[0] tokens of sequence 0, then the append_lengths[1] tokens of sequence 1, and so on.\n   batch    borrowed, arrays included\n   stream   the device's stream for the whole forward; NULL on the CPU\n   forward  filled; closed by kvc_forward_end or kvc_forward_abort\n The cost grows with the number of rows, new tokens and new pages. It does not grow with the lengths of the sequences.\n Errors with the row in error->index:\n   STALE_ID, DUPLICATE, BUSY (also: a forward is open in the graph), TREE_TOO_LARGE\n   UNCOMMITTED         plain or encoder tokens for a sequence that has an uncommitted tree\n   INVALID_ARGUMENT    encoder_group does not name a cross group, or is set together with trees or spans; a span id is\n                       negative, or belongs to a tree node\n   OUT_OF_PAGES        error->index is the first row that does not fit. required and available are numbers of pages in\n                       group error->group, for the whole batch. Idle pages of the prefix index count as available, because\n                       begin evicts idle pages when it needs pages. Evicted pages stay evicted even if the forward is\n                       aborted\n   OUT_OF_RANGE        a sequence would become longer than 2^30 tokens\n   ORDER               a layer in the range lacks tokens of the sequence. required is the number of tokens of the sequence,\n                       and available is how many of these tokens the layer has\n Other errors: BATCH_TOO_LARGE (for the cache, or for the graph), TOO_MANY_FORWARDS, OUT_OF_RANGE (layers), ORDER\n (KVC_STORAGE_NONE: the engine has not taken all queued copies). Threads: any. Since 0.1."]
    pub fn kvc_forward_begin(
        cache: *mut kvc_cache,
        batch: *const kvc_batch,
        stream: *mut ::core::ffi::c_void,
        forward: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores the new K and V of a layer without computing attention. The call rotates K if the layer has KVC_ROPE_ON_APPEND, and\n rounds or quantises K and V to the layer's dtype.\n   layer  a layer of the forward. Append each layer once, in any order of layers\n Errors: STALE_ID, BUSY, ORDER (appended already), CANCELLED, OUT_OF_RANGE, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED\n (KVC_STORAGE_NONE), INVALID_ARGUMENT (a layer that reads K and V of another layer; a recurrent layer; without\n encoder_group, a cross layer; with encoder_group, a layer of any other group). An error of the device closes the forward,\n as kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1."]
    pub fn kvc_forward_append(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_append_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores the new K and V of a layer, and computes out = softmax(scores) V. A query attends to all stored keys that it sees,\n the keys of new tokens included.\n   layer  a layer of the forward, in any order of layers. Attend each layer once, or once with PAST and once with SELF\n Scores     A score is scale * q.k. Then softcap, ALiBi, rel_bias and key_bias are applied in this order\n            (docs/reference/biases.md). Scores, sums and partial outputs are float32. Softmax weights are float32, or have\n            16 bits if q has 16 bits. K and V of new tokens are rounded to the stored dtype before they are used.\n No key     A query that sees no key has output 0 and LSE -inf. With an attention sink, its LSE is the logit of the sink.\n MLA        With up-projections, a row with few queries is computed in the absorbed form: the library projects q into\n            latent space, and projects the result back to out. For a row with many queries, the library decompresses K and\n            V of the new tokens, but not of earlier tokens. Both forms agree within rounding (docs/reference/mla.md).\n Lists      With indices, a query attends to those listed keys that it would see without a list. An entry i names token i\n            of the sequence (or block i, see index_block), counted from the first token of the sequence. In a cross layer\n            it names token i of the encoder sequence. Nodes of a tree come after the tokens, in the order in which they\n            were appended. Entries do not depend on the layer's window or pages, so one list can be used in several layers.\n            A list is a set: entries may be in any order, and an entry that occurs twice counts once. Negative entries are\n            padding, and may be at any place. If a list names no key that the query sees, the result is as in \"No key\". K\n            and V of keys that no list names are not read. Ascending lists are fastest (docs/reference/lists.md).\n Errors: those of kvc_forward_append, and\n   ORDER             k and v are NULL, and the layer was not appended (with PAST, no append is needed); the same part was\n                     attended before; the layer reads K and V of a layer outside of the forward's range; the forward\n                     appends encoder tokens\n   OUT_OF_RANGE      softmax_scale, softcap, index_block, or k * index_block; on the CPU, an entry whose first token is not\n                     in the sequence (the sequence includes the new tokens; error->index is the row). On a GPU such an\n                     entry names no key\n   SHAPE             also: key_bias or mask has fewer keys than a row (error->index is the row)\n   UNSUPPORTED       indices on a backend that does not attend over lists; STEP_WINDOW with trees; key_bias or mask in a\n                     graph on a GPU, because a later step may have more keys\n   INVALID_ARGUMENT  PAST with SELF; PAST or SELF in a cross layer, because all its keys are past; a recurrent layer; a\n                     layer with KVC_LAYER_KEYS_ONLY; out and lse share an element, or one of the two shares an element with\n                     a tensor that is read; REL_BIAS_ZERO without rel_bias; on the CPU, a NaN or +infinity in rel_bias or\n                     key_bias (-infinity hides a key)\n   CANCELLED         after kvc_forward_cancel, when the running work items are done. out is then undefined, and k and v may\n                     have been stored\n Threads: any, one at a time for each forward. Since 0.1.\n From: latent attention and its absorbed form as in DeepSeek-V2; online softmax as in FlashAttention-2; split-KV and merge\n by LSE as in Flash-Decoding; softcap as in Gemma 2, slopes as in ALiBi (Press et al.), sinks as in gpt-oss."]
    pub fn kvc_forward_attend(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_attend_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Chooses, for each query, the k entries with the highest scores among the tokens or blocks that the query sees. The result\n can be kvc_attend_args.indices of other layers in the same forward.\n   layer  a layer with KVC_LAYER_KEYS_ONLY, after its append in this forward. Select may be called several times for a\n          layer\n Windows, chunks, spans and trees decide which tokens a query sees, as in kvc_forward_attend. Scores are float32. No scale\n is applied, because a positive factor changes no choice. Among equal scores, the lowest entry is chosen. A score that is\n NaN is lower than all others, and in KVC_SELECT_RELU_SUM max(0, NaN) is 0. The chosen entries are in ascending order. If\n fewer than k entries have a token that the query sees, all these entries are chosen, and the rest of the list is -1. The\n choice does not depend on the batch, on the threads, or on how tokens are divided into steps (docs/reference/select.md).\n Errors: STALE_ID, BUSY, CANCELLED, NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, and\n   ORDER             the layer was not appended in this forward; the forward's stream is being captured\n   OUT_OF_RANGE      layer; index_block, candidate_block or k * index_block; first_blocks and last_blocks; on the CPU, an\n                     entry of candidates whose first token is not in the sequence (error->index is the row of the batch)\n   UNSUPPORTED       a backend that does not select; a sequence longer than its streaming window; no storage\n   INVALID_ARGUMENT  rule; weights with KVC_SELECT_EACH_HEAD; a layer without KVC_LAYER_KEYS_ONLY; indices shares an\n                     element with another tensor\n After CANCELLED, the data of indices is undefined. Threads: any, one at a time for each forward. Since 0.1.\n From: the lightning indexer of DeepSeek-V3.2, and block selection as in MiniMax-M3."]
    pub fn kvc_forward_select(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        args: *const kvc_select_args,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies a state tensor of a recurrent layer out of the cache. Row i of the tensor becomes a state of sequence i of the\n batch: the state before this forward, or the state before one of its new tokens (see `token`). For an empty sequence, all\n elements are the fill value (kvc_state_config). For inert rows of the batch, nothing is written. The call may be repeated.\n   layer   a recurrent layer of the forward\n   state   index of the state tensor, 0..num_states - 1\n   token   -1: load the state before the first new token of each row. 0..max_draft_states - 1: load the state before the\n           row's new token with this index. The state before a tree node is the state after the node's parent. This can be\n           a state that kvc_forward_store_state stored earlier in this forward. If a row of the batch lacks this token or\n           this state, the same row of the tensor is not written\n   tensor  borrowed, its data is written; [>= num_sequences, shape...] of the state's dtype. Each row is compact, and the\n           stride between rows is free\n Errors: STALE_ID, BUSY, CANCELLED, OUT_OF_RANGE (layer, state, token), INVALID_ARGUMENT (the layer is not recurrent, or\n the forward has encoder tokens), DTYPE, DEVICE, RANK, SHAPE, STRIDE. An error of the device closes the forward, as\n kvc_forward_abort does. Threads: any, one at a time for each forward. Since 0.1."]
    pub fn kvc_forward_load_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        token: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies a state tensor of a recurrent layer into the cache. With token -1, row i becomes the state of sequence i of the\n batch when this forward ends. If the forward is aborted, the sequence keeps its earlier state. Store every state of every\n recurrent layer in the range before kvc_forward_end. If a state is stored twice, the later call replaces the earlier\n state.\n   token   -1: store the state after the last new token of each row. 0..max_draft_states - 1: store the state after the\n           row's new token with this index. If a row of the batch lacks this token, or does not keep the state after this\n           token, the same row of the tensor is not read. A row keeps the state after its last token, and after tree nodes\n           with numbers below max_draft_states\n   tensor  borrowed; shape and strides as in kvc_forward_load_state\n Drafts: with max_draft_states, the cache keeps the states after several uncommitted nodes. kvc_seq_commit then sets\n the state of the sequence to the state after the committed leaf. An example is a draft of 4 tokens with states\n [num_sequences, 4, shape...]: call this function for tokens 0 to 3, each time with one slice of the states.\n Errors, threads: as kvc_forward_load_state. Since 0.1. From: a state for each draft as in vLLM's speculative Mamba."]
    pub fn kvc_forward_store_state(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        layer: i32,
        state: i32,
        token: i32,
        tensor: *const DLTensor,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Merges results of attention over disjoint sets of keys into the result of attention over all these keys. Each part is\n weighted by its LSE. The parts are merged in order, from part 0 on. The output of a part with LSE -inf is not read. If all\n parts have LSE -inf, out is 0 and lse is -inf. Tensors are on the context's device.\n   stream  the device's stream; NULL on the CPU\n Errors: INVALID_ARGUMENT (num_parts), NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; error->index is the part.\n Threads: any. Since 0.1. From: split-KV as in Flash-Decoding; cascade merge as in FlashInfer."]
    pub fn kvc_merge_states(
        context: *mut kvc_context,
        args: *const kvc_merge_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Closes a step and keeps its tokens. The lengths of the step's sequences grow. Pages that left a window or chunk are freed.\n The pages of sequences that were removed during the step are released. Nodes of trees stay uncommitted until\n kvc_seq_commit.\n\n Every layer in the range that stores new K and V or states in this forward must have stored them. In a layer that has not\n stored them, the new pages could still have K and V of another sequence. Layers that a step does not compute\n must be outside of its range (kvc_batch.layer_begin). In graphs and with KVC_STORAGE_NONE, the library cannot check this\n fully, so the engine must ensure that every layer stores the new tokens.\n\n Errors (the forward stays open): ORDER (error->index is the first layer in the range that was not appended, or that has a\n state that was not stored; with KVC_STORAGE_NONE, appends are not checked), CANCELLED, BUSY, STALE_ID. An error of the\n device closes the forward, as kvc_forward_abort does. Threads: any. Since 0.1."]
    pub fn kvc_forward_end(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Closes a step and drops its tokens. The pages that the step reserved become free. The sequences are as they were before\n kvc_forward_begin.\n Errors: BUSY (a call of the forward is computing; call kvc_forward_cancel first), STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_abort(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Stops a step, also while the step computes on another thread. The call does not wait. An attend that is computing finishes\n the work items that run now, and returns CANCELLED (or OK if no item was left). After this call, append, attend, select,\n load_state, store_state and end return CANCELLED, and only kvc_forward_abort closes the forward.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_forward_cancel(cache: *mut kvc_cache, forward: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Fills `info`, for engines that rotate q and k themselves, or that need the logits of the last tokens only.\n Errors: STALE_ID. Threads: any until the forward closes. Since 0.1."]
    pub fn kvc_forward_get_info(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        info: *mut kvc_forward_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Describes the plan of a forward as one JSON object: rows, tokens, and for each group the kernels, work items, splits,\n prefix groups, and bytes of K and V that one attend reads.\n   buffer, capacity, length  as kvc_context_describe\n Errors: STALE_ID, BUSY, BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_forward_describe(
        cache: *mut kvc_cache,
        forward: kvc_forward,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Creates a graph. The graph owns the memory for its forwards. kvc_cache_estimate includes one graph of the largest size.\n   graph  filled\n Errors: OUT_OF_RANGE, UNSUPPORTED (flags, reserved), OUT_OF_MEMORY, TOO_MANY_FORWARDS (64 graphs exist). Threads: any.\n Since 0.1."]
    pub fn kvc_graph_create(
        cache: *mut kvc_cache,
        config: *const kvc_graph_config,
        graph: *mut kvc_forward,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Frees a graph and its memory. The arrays that kvc_forward_get_info and kvc_forward_tables gave for the graph become\n invalid. kvc_cache_destroy frees the remaining graphs.\n Errors: STALE_ID (no graph of this cache), BUSY (a forward is open in the graph; end or abort it). Threads: any.\n Since 0.1."]
    pub fn kvc_graph_destroy(cache: *mut kvc_cache, graph: kvc_forward, error: *mut kvc_error) -> kvc_status;
    #[doc = " Keeps the path from a root to node leaves[i] as tokens of sequences[i], and drops the other uncommitted nodes of the\n sequence. Either all n sequences are committed, or none. K and V of kept nodes move to their final slots where needed. The\n call takes no page.\n   sequences  [n], distinct, any order, each with uncommitted nodes\n   leaves     [n]: a node for each sequence, 0..kvc_seq_tree_nodes - 1; -1 = drop all nodes\n   stream     as kvc_seq_fork\n Errors (nothing committed), with the index of the sequence in error->index: STALE_ID, DUPLICATE, BUSY, ORDER (no\n uncommitted nodes; KVC_STORAGE_NONE: the engine must take queued copies first), OUT_OF_RANGE, EVICTED (the recurrent state\n of the node is not kept, see above). After an error of the device, K and V of the nodes are undefined, and the nodes can\n only be dropped (-1). Threads: any. The cost grows with the number of moved nodes and freed pages.\n Since 0.1. From: tree attention as in SpecInfer and Medusa."]
    pub fn kvc_seq_commit(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        leaves: *const i32,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the number of uncommitted tree nodes of each of n sequences. Nodes of open forwards do not count. The cost is O(1)\n for each sequence.\n   nodes  [n], filled\n Errors: STALE_ID. Threads: any, also while a forward computes. Since 0.1."]
    pub fn kvc_seq_tree_nodes(
        cache: *mut kvc_cache,
        n: i64,
        sequences: *const kvc_seq,
        nodes: *mut i32,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Returns a view of a layer's page pool, without a copy. The view keeps the memory allocated, but pages are reused, so the\n contents change. The view has the layer's dtype, except that float8 is uint8, and a row of 4-bit elements is given as\n bytes. The view shows the pages of all sequences, and free pages too. In a slot in which this layer stored no token, it\n shows old bytes. Work enqueued on the stream after this call sees what earlier calls on the cache stored. But later calls\n on the cache do not wait for this work, so the caller must order them after it.\n   pool    KVC_POOL_*\n   flags   KVC_POOL_WRITABLE or 0\n   tensor  returned; released by its deleter, on any thread, also after kvc_cache_destroy\n   stream  as kvc_seq_fork\n Errors: OUT_OF_RANGE (layer), INVALID_ARGUMENT, UNSUPPORTED (KVC_POOL_KV if K and V are in separate pools, a recurrent\n layer, scales of a layer that is not quantised, writable scales of float8, KVC_STORAGE_NONE), OUT_OF_MEMORY. Threads: any.\n Since 0.1."]
    pub fn kvc_cache_export_pool(
        cache: *mut kvc_cache,
        layer: i32,
        pool: i32,
        flags: u32,
        tensor: *mut *mut DLManagedTensorVersioned,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Copies K and V of one layer of one sequence into dense tensors. The copies are as stored: rotated, rounded or quantised.\n   exported  filled; its tensors are returned, 256-byte aligned\n   stream    as kvc_seq_fork\n Other calls on the cache can run during the copy, and the pages of the sequence stay allocated meanwhile. Pages that\n another call drops during the copy become free only after the copy. So if page ids must be equal on all ranks, make no\n other call that changes the cache until this call has returned.\n Errors: STALE_ID, BUSY (the sequence is in an open forward, or 32 exports run already), OUT_OF_RANGE (uncommitted tree\n nodes cannot be exported), ORDER (a forward that stored these tokens did not cover the layer; available is the number of\n tokens that the layer has), EVICTED (keys of the range were freed), UNSUPPORTED (scales of a layer without scales, a\n recurrent layer, KVC_STORAGE_NONE). Threads: any. Since 0.1."]
    pub fn kvc_seq_export(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_export_args,
        exported: *mut kvc_exported,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends T tokens of dense K and V to a sequence in every layer, as kvc_forward_append does. With KVC_IMPORT_AS_STORED it\n reverses kvc_seq_export, for a sequence without freed pages. (If keys are rotated by longrope, first give the new sequence\n the same factors: kvc_seq_set_rope.) The import opens a forward of its own, which counts towards max_open_forwards.\n   args    borrowed, tensors included\n   stream  as kvc_seq_fork\n Errors: those of kvc_forward_begin; those of kvc_forward_append, with the layer in error->index; UNSUPPORTED with a\n recurrent group (use a forward, with KVC_APPEND_AS_STORED and kvc_forward_store_state), in a cache that has only cross\n groups, and with KVC_STORAGE_NONE. Threads: any. Since 0.1."]
    pub fn kvc_seq_import(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_import_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives all copies that wait, and removes them from the cache. A cache with storage has no copies.\n   copies     nullable if capacity is 0; [capacity], filled, elements item_size bytes apart\n   item_size  sizeof(kvc_copy)\n   count      filled with the number of waiting copies, also on BUFFER_TOO_SMALL. With capacity 0 they continue to wait\n Errors: BUFFER_TOO_SMALL (never for capacity 0; nothing was taken), STRUCT_SIZE (item_size). Threads: any. Since 0.1."]
    pub fn kvc_cache_take_copies(
        cache: *mut kvc_cache,
        copies: *mut kvc_copy,
        item_size: u32,
        capacity: i64,
        count: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Counts pages and tokens of one group or of the whole cache. Pages of open forwards and of uncommitted trees count as used.\n Tokens of open forwards and uncommitted trees do not count as held.\n   group  group index, or -1 for the whole cache\n   stats  filled\n The call walks the page tables in use under the cache's lock, which takes microseconds for a thousand pages. It is meant\n for dashboards. In a step, use kvc_cache_can_fit or kvc_seq_max_append.\n Errors: OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_cache_stats(
        cache: *mut kvc_cache,
        group: i32,
        stats: *mut kvc_stats,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Describes the present state of the cache as one JSON object: the pages of each group, the sequences and which pages they\n share, the prefix index, tiers, and open forwards. The text has no tokens, and no keys of pages.\n docs/reference/describe.md lists the fields.\n   buffer, capacity, length  as kvc_context_describe. The text may be longer in a second call\n The call walks the page tables in use under the cache's lock, and takes a few times as long as kvc_cache_stats. The\n program `kvcache inspect` shows the text.\n Errors: BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_cache_describe(
        cache: *mut kvc_cache,
        buffer: *mut ::core::ffi::c_char,
        capacity: i64,
        length: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Appends k and v to the caller's cache, if they are given, and computes attention over the cache. Arguments and results are\n those of flash_attn_with_kvcache of FlashAttention 2 and 3.\n   args    borrowed, tensors included. The call checks every value of index tensors on the host before it writes anything\n   stream  the device's stream; NULL on the CPU\n Let a row have L valid keys, the new ones included, and n queries. Query i has position p = L - n + i, so the last query\n sees the last key. If p is negative, a causal query sees no key. A query that sees no key has output 0 and LSE -inf. With\n a sink, its LSE is the logit of the sink. Rows of q from cu_seqlens_q[B] on are not written in out.\n\n With indices, a query attends to the slots of k_cache that its list names, and nothing else hides a key. (FlashMLA's\n sparse decoding works in the same way.) A slot is page * page_size + offset, and k_cache is [pages, page_size, Hkv, D].\n Negative entries are padding. A slot that occurs twice counts once. Slots have no positions, so all arguments that need\n lengths or positions must be absent: k, v, block_table, cache_seqlens, seqused_k, cache_batch_idx, cache_leftpad,\n alibi_slopes, windows, chunks, and KVC_FLASH_ATTN_CAUSAL.\n\n Two rows must not append to the same slot. A call allocates memory only if it needs more than all earlier calls.\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8; qv with\n k_descale or v_descale; dims; indices on a backend that does not attend over lists), INVALID_ARGUMENT (arguments that\n contradict each other; a tensor that is written shares elements with another one; a cache row twice with k), OUT_OF_RANGE\n (a page id, slot, index, length or position, with the row in error->index), BUFFER_TOO_SMALL (a cache row without room for\n its new tokens; required and available are in tokens, and error->index is the row).\n Threads: any, on different caches. Since 0.1.\n From: FlashAttention 2 and 3; paged caches as in vLLM's PagedAttention; the rest as kvc_forward_attend."]
    pub fn kvc_flash_attn_with_kvcache(
        context: *mut kvc_context,
        args: *const kvc_flash_attn_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Stores rows of k and v in the caller's own paged cache, at the slots in slot_mapping, whose length is T. If several rows\n have the same slot, one of them is stored, but it is not defined which one.\n   args    borrowed, tensors included. The call checks every slot and position on the host before it writes anything. If\n           slot_mapping and positions are on a GPU, a token is skipped if its slot is outside of the cache, or if its\n           position has no cos and sin\n   stream  the device's stream; NULL on the CPU\n Errors (nothing written): NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE, UNSUPPORTED (rotary of float8 k; dims),\n INVALID_ARGUMENT (arguments that contradict each other, a cache that overlaps anything else), OUT_OF_RANGE (a slot or\n position, with the token in error->index). Threads: any, on different slots. Since 0.1.\n From: reshape_and_cache and concat_and_cache_mla of vLLM."]
    pub fn kvc_append_slots(
        context: *mut kvc_context,
        args: *const kvc_append_slots_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the tables of an open forward in one group, the new tokens included. The kind of the group decides which keys a row\n lists:\n   full       all keys. For a row with a streaming window: the pages of the sinks, then the pages of the window. The tokens\n              between the two are the hole (hole_tokens)\n   sliding    the last pages only, beginning with the first key that the first query of the row sees\n   chunked    for each row of the batch, one table row for each chunk in which it has queries. The keys begin with the\n              first key of the chunk\n   cross      the keys of the encoder\n   trees      parts PREFIX and BRANCHES, also for rows without a tree in the same batch. WHOLE if every tree is a chain\n   tables     inputs: flags, part, arrays, pad_value. The call fills the rest. It is valid until the next\n              kvc_forward_tables for the same forward, group, part and flags, or until the forward closes\n Errors: STALE_ID, BUSY, OUT_OF_RANGE (group), INVALID_ARGUMENT (a recurrent group; an unknown part; a forward of encoder\n tokens, with another group than its encoder_group; WHOLE of a tree that branches; PREFIX without trees; other arrays or\n padding than in the graph's first call), UNSUPPORTED (spans; slots of a pool beyond 2^31 tokens), BATCH_TOO_LARGE (2^31\n keys and more; a row with more than the graph's max_pages_per_row). Threads: as kvc_forward_attend. The cost grows with\n the number of pages in the tables.\n Since 0.1."]
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
    #[doc = " Makes the tables of a step, for all its draft steps and parts. It reads the arrays on the stream and writes on the\n context's device.\n   args        borrowed, arrays included\n   stream      the device's stream; NULL on the CPU\n   generation  nullable; filled: the number of this build\n Arrays on the host are checked before anything is written. A build that fails does not change the tables, but makes them\n stale: their generation word is 0 until a build succeeds. Arrays on a device are read by kernels, and the call does not\n wait for them. If lengths, rows, parents or sizes in such arrays are wrong, the device does not change the tables, and\n sets the generation word to 0. It checks page ids and slots only with KVC_CONTEXT_VALIDATE. kvc_plan_check then reports\n only which build was enqueued last.\n\n In graph mode the arrays keep their addresses, and entries that a smaller batch does not use are inert. Memory is\n allocated only for a step that is larger than all earlier steps.\n Errors: NULL_ARGUMENT, DTYPE, DEVICE, RANK, SHAPE, STRIDE; INVALID_ARGUMENT (arrays that the mode does not use; both\n block_table and req_to_token; KVC_PLAN_ROWS_GREW with other rows than the last build, or with a shorter row; in\n req_to_token, a page whose first slot is not a multiple of page_size); OUT_OF_RANGE (a length; an entry of a table, where\n the message has row, column, id and limit; a table with too few columns); BATCH_TOO_LARGE (graph mode: required and\n available; 2^31 keys and more). error->index is the row. Threads: one at a time for one plan. Since 0.1.\n From: metadata as SGLang's FlashAttention backend makes it; virtual batches for chunks as in Llama 4's local attention."]
    pub fn kvc_plan_build(
        plan: *mut kvc_plan,
        args: *const kvc_plan_args,
        stream: *mut ::core::ffi::c_void,
        generation: *mut u64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives the tables that the last build made.\n   step    DRAFT_DECODE: 0..num_steps - 1; else 0\n   tables  input: part. The call fills the rest, which is valid until the next build, or in graph mode until\n           kvc_plan_destroy\n Errors: STALE (there was no build, or the last build failed), OUT_OF_RANGE (step), INVALID_ARGUMENT (a part that the plan\n does not have; inputs that belong to the config). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_tables(
        plan: *mut kvc_plan,
        step: i32,
        tables: *mut kvc_tables,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Checks that the arrays of a plan are those of build `generation`. Call it before you replay recorded calls over the\n tables.\n Errors: STALE (the arrays are those of another build, or the last build failed). Threads: as kvc_plan_build. Since 0.1."]
    pub fn kvc_plan_check(plan: *mut kvc_plan, generation: u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Finds what kvc_prefix_attach would find, and changes nothing.\n   query  borrowed, tokens included\n   hit    filled\n The cost grows with the number of pages that the call looks up.\n Errors: OUT_OF_RANGE (a field of the query). Threads: any. Since 0.1. From: prefix reuse as in SGLang's\n RadixAttention."]
    pub fn kvc_prefix_match(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        hit: *mut kvc_prefix_hit,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes a new sequence that holds the longest prefix of the query that every group can serve. If nothing is found, the\n sequence is empty. Like any other sequence, it can be appended to, forked, truncated and published. In groups with a\n window it holds the keys that its next query sees, and the part of the rollback margin that the index has.\n   query     borrowed, tokens included\n   stream    the device's stream for copies of partial pages; NULL on the CPU\n   hit       nullable: filled\n   sequence  filled\n Errors: OUT_OF_RANGE (a field of the query), TOO_MANY_SEQUENCES, OUT_OF_PAGES (one page a group for the copy), ORDER\n (KVC_STORAGE_NONE: too many copies wait), OUT_OF_MEMORY (nodes of page lists). Threads: any. Since 0.1."]
    pub fn kvc_prefix_attach(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        stream: *mut ::core::ffi::c_void,
        hit: *mut kvc_prefix_hit,
        sequence: *mut kvc_seq,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Makes the first tokens of a sequence findable for other requests. The index takes references to the pages of the sequence,\n and copies nothing. If the index already has whole pages with the same tokens, the sequence uses them in place of its own\n pages. Publish again while the sequence grows.\n   sequence   its appended tokens must be the tokens of the query, which the library cannot check\n   query      borrowed; num_tokens is at most the length of the sequence. With a recurrent group, a smaller num_tokens must\n              be a checkpoint of the sequence (kvc_seq_checkpoint). Otherwise a search finds these tokens only as a part of\n              a longer published prefix\n   options    nullable: all zero; borrowed\n   published  nullable: filled\n If the last page of the sequence is partial and was published, the next forward that appends to the sequence copies this\n page.\n Errors: STALE_ID, BUSY, UNCOMMITTED, OUT_OF_RANGE (a field of the query, priority, time_to_live), ORDER\n (a layer lacks some of the tokens, because a forward did not cover it), UNSUPPORTED (the sequence has or had a streaming\n window, or its keys are rotated by the long factors of longrope). Threads: any. The cost grows with the number of tokens.\n Since 0.1."]
    pub fn kvc_prefix_publish(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        query: *const kvc_prefix_query,
        options: *const kvc_prefix_options,
        published: *mut kvc_prefix_published,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Drops every published prefix that begins with the tokens of the query. The index releases the last page of these tokens\n and all pages that continue them. If the query has no tokens, the call drops every prefix whose first page has this salt\n and adapter. Sequences keep their pages.\n   query  borrowed, tokens included\n   pages  nullable: filled with the number of pages that the index released\n Errors: OUT_OF_RANGE (a field of the query). Threads: any. The cost grows with the number of released pages.\n Since 0.1."]
    pub fn kvc_prefix_drop(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Drops what was published under one session. Tokens stay if they were also published under another session, or without one.\n   session  not 0\n   pages    nullable: filled with the number of pages that the index released\n Errors: only those that any call can return. Threads: any. The cost grows with the size of the index. Since 0.1."]
    pub fn kvc_prefix_drop_session(
        cache: *mut kvc_cache,
        session: u64,
        pages: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the priority and the time to live of the published tokens of a query, in place of earlier values. The pages of these\n tokens get the new values. If the tokens end within a page, every page that begins with the last of them gets the new\n values, whatever follows in the page. Later pages keep their values.\n   query         borrowed, tokens included\n   priority      0..100\n   time_to_live  as in kvc_prefix_options\n Errors: OUT_OF_RANGE (a field of the query, priority or time_to_live). Threads: any. Since 0.1."]
    pub fn kvc_prefix_set_priority(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        priority: i32,
        time_to_live: i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the priority and the time to live of all tokens that kvc_prefix_drop_session would drop.\n   session       not 0\n   priority      0..100\n   time_to_live  as in kvc_prefix_options\n Errors: OUT_OF_RANGE (priority or time_to_live). Threads: any. The cost grows with the size of the index. Since 0.1."]
    pub fn kvc_prefix_set_session_priority(
        cache: *mut kvc_cache,
        session: u64,
        priority: i32,
        time_to_live: i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Keeps the pages of a published prefix from being evicted. The prefix is the one that kvc_prefix_match finds with\n KVC_PREFIX_ALLOW_ALL.\n   query  borrowed, tokens included\n   hit    nullable: filled with what is pinned\n   pin    filled: an id, never 0; ended by kvc_prefix_unpin or kvc_cache_clear\n Errors: OUT_OF_RANGE (a field of the query). Threads: any. The cost grows with the number of pages. Since 0.1."]
    pub fn kvc_prefix_pin(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        hit: *mut kvc_prefix_hit,
        pin: *mut u64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a pin. Pages that nothing else holds become idle, or become free if they were dropped from the index meanwhile.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_prefix_unpin(cache: *mut kvc_cache, pin: u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Tells the cache the time, in any unit. The time starts at 0 and never decreases: a call with an earlier time has no\n effect. Give the same times on all ranks of an engine.\n   now  >= 0\n Errors: OUT_OF_RANGE. Threads: any. Since 0.1."]
    pub fn kvc_cache_set_time(cache: *mut kvc_cache, now: i64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Computes the keys of all whole pages of a token array. It needs no context and no cache.\n   args  borrowed, arrays included\n   keys  [num_tokens / page_size, 32], filled; ignored if there is no whole page\n Errors (nothing written): NULL_ARGUMENT (an array that is needed), OUT_OF_RANGE (a number outside of the range of its\n field; for a span, its index is in error->index), INVALID_ARGUMENT (begin without a parent, or not at the start of a page;\n reserved).\n Threads: any. O(tokens and media). Since 0.1. From: block hashes of vLLM's prefix cache."]
    pub fn kvc_page_keys(args: *const kvc_page_keys_args, keys: *mut u8, error: *mut kvc_error) -> kvc_status;
    #[doc = " Returns events from number args->next on, as many as the buffer can hold. Without a buffer it returns no event, and fills\n only the range. `begin` and `end` are then args->next, or, if that event is lost, the number of the oldest event that can\n still be read.\n   args   borrowed; its arrays are filled\n   range  filled\n Errors: OUT_OF_RANGE (next above `newest`), BUFFER_TOO_SMALL (not even one event fits in capacity_bytes), STRUCT_SIZE\n (event_size), INVALID_ARGUMENT (events and bytes; data_parallel_rank below -1). Threads: any. The cost grows with the\n number of returned events.\n Since 0.1."]
    pub fn kvc_events_read(
        cache: *mut kvc_cache,
        args: *const kvc_events_args,
        range: *mut kvc_events_range,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Returns a KVC_EVENT_STORED for each page of the index, each after the page that it continues. Those of the tiers follow,\n tier by tier, also each after the page that it continues, if the tier has that page. A message in bytes begins with\n AllBlocksCleared. Events from range.end on happened after the snapshot. Without a buffer, the call fills `range` with\n the size of the buffer that it needs.\n   args   borrowed; its arrays are filled\n   range  filled\n Errors: BUFFER_TOO_SMALL (nothing returned; error->required counts elements or bytes), STRUCT_SIZE (event_size),\n INVALID_ARGUMENT as in kvc_events_read. Threads: any. The cost grows with the size of the index. While the call lists the\n pages, other calls on the cache wait. Since 0.1."]
    pub fn kvc_events_snapshot(
        cache: *mut kvc_cache,
        args: *const kvc_events_args,
        range: *mut kvc_events_range,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Saves a sequence. During the call the sequence is busy, as in an open forward, and all other sequences can be used. To\n continue the sequence meanwhile, save a fork of it. The call waits until the device has done earlier work of the cache,\n and until the bytes are written.\n   args    borrowed, arrays and path included\n   stream  as kvc_seq_fork\n Errors: STALE_ID, BUSY, UNCOMMITTED, INVALID_ARGUMENT (path and write, or neither; num_tokens is not the length),\n OUT_OF_RANGE (section_bytes), ORDER (a layer lacks tokens, because a forward did not cover it), IO, UNSUPPORTED\n (KVC_STORAGE_NONE). After an error, an earlier file at `path` is unchanged. Threads: any. Since 0.1."]
    pub fn kvc_seq_save(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        args: *const kvc_save_args,
        stream: *mut ::core::ffi::c_void,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Adds a sequence with the contents of a saved sequence. The cache must have the same layers, groups, dtypes, RoPE settings\n and fingerprint as the cache that saved it. Capacity, pools and limits may differ. The page size may differ too. If tokens\n of the saved sequence were freed, the load leaves out every page that contains some of them. If the next query sees\n another token of such a page, the load fails with LAYOUT. The call reads one section of the file at a time, and checks a\n section before it uses it. Other calls can use the sequence only when it is complete. Pages of the prefix index that the\n call evicts stay evicted.\n   args        borrowed, arrays and path included\n   sequence    filled\n   num_tokens  nullable: filled with the number of token ids in the file, also on BUFFER_TOO_SMALL\n   stream      as kvc_seq_fork\n Errors (no sequence was added): IO, CORRUPT (damaged bytes), LAYOUT (another model, dtype or layout, and the message has\n those of the file and of the cache; or a needed token is in one page with freed tokens), BUFFER_TOO_SMALL (capacity; never\n for 0), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of error->group), INVALID_ARGUMENT (path and read, or neither), UNSUPPORTED (a\n later format; KVC_STORAGE_NONE; a streaming window, and a cache without KVC_CACHE_STREAMING). Threads: any.\n Since 0.1."]
    pub fn kvc_seq_load(
        cache: *mut kvc_cache,
        args: *const kvc_load_args,
        stream: *mut ::core::ffi::c_void,
        sequence: *mut kvc_seq,
        num_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Adds a tier to a cache. If several tiers have a page, it is loaded from the tier that was added first.\n   config  borrowed; its tier is adopted, and kvc_cache_destroy closes the tier\n The call may wait for I/O, because it lists the directory.\n Errors: INVALID_ARGUMENT (directory, tier, store, sync, medium, flags that exclude each other, or the capacity of a host\n tier), OUT_OF_RANGE (capacity_bytes, min_tokens), UNSUPPORTED (no prefix index, no fingerprint, no pools, a ninth tier,\n another version of kvcache_tier.h, unknown flags, KVC_TIER_PINNED on the CPU, or KVC_TIER_IO_URING where the kernel\n forbids it), IO (the directory cannot be used), OUT_OF_MEMORY (also if the device cannot lock as much memory). After a\n failure, the cache has no new tier. Threads: any. Since 0.1."]
    pub fn kvc_cache_add_tier(
        cache: *mut kvc_cache,
        config: *const kvc_tier_config,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to load the part of a prefix that the tiers have and the pools lack. While the load runs, it uses one of\n max_sequences, and the pages that it has reserved.\n   query    borrowed, tokens included\n   options  nullable: all zero; borrowed\n   hit      nullable: filled as by kvc_prefix_match\n   job      filled; 0 = there is nothing to load, or computing is faster\n Errors: OUT_OF_RANGE (num_tokens, salt_begin, priority, time_to_live, token_ns), UNSUPPORTED (the cache has no tier),\n TOO_MANY_SEQUENCES, OUT_OF_PAGES, OUT_OF_MEMORY. Threads: any. The call does no I/O, and its cost grows with the number of\n pages.\n Since 0.1."]
    pub fn kvc_prefix_load(
        cache: *mut kvc_cache,
        query: *const kvc_prefix_query,
        options: *const kvc_prefix_load_options,
        hit: *mut kvc_prefix_hit,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Reports whether a job has ended. The first call that reports the end also completes the job: it publishes the loaded\n pages, frees the pages of the suspended sequence, or makes the resumed sequence usable. If a suspend or resume has failed,\n the call returns the error, and the job has ended too.\n   info  filled\n Errors: STALE_ID (no such job; or the sequence of a suspend or resume was removed, which ends the job), IO (no tier stored\n a page of the sequence, or a tier has lost a page), CANCELLED (a suspend or resume). Threads: any. The call does not wait.\n Since 0.1."]
    pub fn kvc_job_poll(
        cache: *mut kvc_cache,
        job: kvc_job,
        info: *mut kvc_job_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a job early. The job still has to wait for pages that are being read or written, so poll it until it is done. Pages\n that were loaded by then are kept. A cancelled suspend or resume leaves its sequence as it was.\n Errors: STALE_ID. Threads: any. The call does not wait. Since 0.1."]
    pub fn kvc_job_cancel(cache: *mut kvc_cache, job: kvc_job, error: *mut kvc_error) -> kvc_status;
    #[doc = " Makes a new sequence with the prefix of a load that still runs (kvc_prefix_load). \"Pending\" above says what works before\n the job has ended. The length of the sequence is a multiple of the page size. Without\n KVC_PREFIX_ALLOW_ALL in the query of the load, it is less than num_tokens of the query. Several sequences can be attached\n to one job, and they share its pages. From this call on, the job loads all pages of the group that has the first layer,\n then those of the next group, and so on. Layers in several groups are ready earlier than in one, and a job that ends early\n has usually loaded fewer tokens than without this call. The job must still be polled until it is done.\n   job       a job of kvc_prefix_load that kvc_job_poll has not reported as done\n   options   nullable: all zero; borrowed\n   sequence  filled\n   num_tokens  nullable: filled with the length of the sequence\n Errors: STALE_ID (no such job), PENDING (a tier still searches for pages: poll the job, and call again), INVALID_ARGUMENT\n (the job is no load), OUT_OF_RANGE (timeout_ns), EVICTED (a window at this length needs a page that the job does not\n load: attach after the job), TOO_MANY_SEQUENCES, UNSUPPORTED (the cache has no tier, or flags). Threads: any. The call\n does not wait. Since 0.1."]
    pub fn kvc_prefix_attach_pending(
        cache: *mut kvc_cache,
        job: kvc_job,
        options: *const kvc_pending_options,
        sequence: *mut kvc_seq,
        num_tokens: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Says what a sequence of kvc_prefix_attach_pending still waits for. Any sequence can be given.\n   info  filled\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_seq_pending(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        info: *mut kvc_pending_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Gives a file descriptor for poll(), epoll and similar functions. It is readable from the end of a job until kvc_job_poll\n has reported this end. The cache owns the descriptor: do not read from it, and do not close it. It is valid until\n kvc_cache_destroy. On Windows it is the handle of an event, for WaitForSingleObject and similar functions.\n   descriptor  filled\n Errors: UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1."]
    pub fn kvc_cache_job_descriptor(cache: *mut kvc_cache, descriptor: *mut i32, error: *mut kvc_error) -> kvc_status;
    #[doc = " Counts the traffic of the tiers. Before an engine shuts down, it can call this until pages_waiting is 0, so that all\n queued pages are stored.\n   traffic  filled\n Errors: only those that any call can return. Threads: any. Since 0.1."]
    pub fn kvc_cache_tier_traffic(
        cache: *mut kvc_cache,
        traffic: *mut kvc_tier_traffic,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to move the pages of a sequence to a tier. The loop of an engine that has too few pages for a step:\n\n   kvc_seq victim = latest_request();\n   if (kvc_seq_suspend(cache, victim, &job, &error)) return report(error.message);\n   ...                                      // poll the job until it is done: then its pages are available\n   if (kvc_seq_resume(cache, victim, &job, &error) == KVC_ERROR_OUT_OF_PAGES) continue;    // later, when others ended\n   ...                                      // poll the job until it is done: then the sequence is as before\n\n The moved pages are those that kvc_seq_exclusive_pages counts. Pages that another sequence or an export also uses stay in\n the pools, and the sequence keeps its references to them. The first tier that accepts a page stores it; tiers are tried in\n the order in which they were added. A host tier refuses a page for which it has no room, and never evicts a page of a\n suspended sequence. Other tiers may evict it. Until the job is done the sequence is busy, as in an open forward. If the\n job fails, the sequence is as before.\n\n A suspended sequence keeps its id, length, settings and checkpoints, and counts towards max_sequences. Calls that read or\n change its contents return SUSPENDED, and kvc_seq_pages gives -1 for its moved pages. kvc_seq_remove and kvc_cache_clear\n remove the sequence, and also its objects in the tiers. If the process is killed, its objects stay in the folder of a disk\n tier until they are evicted.\n   job  filled; never 0\n Errors: STALE_ID, BUSY, UNCOMMITTED, SUSPENDED, UNSUPPORTED (the cache has no tier, or all tiers have\n KVC_TIER_STORE_NOTHING), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_seq_suspend(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to bring back a suspended sequence. The call takes all pages for it at once, and evicts idle pages as\n kvc_forward_begin does. The sequence stays suspended until the job is done. If a tier has lost an object, the job fails,\n and the sequence stays suspended. Then remove the sequence and compute its tokens again.\n   job  filled; never 0\n Errors: STALE_ID, BUSY (a resume runs), ORDER (the sequence is not suspended), OUT_OF_PAGES (of error->group),\n OUT_OF_MEMORY, UNSUPPORTED (the cache has no tier). Threads: any. Since 0.1."]
    pub fn kvc_seq_resume(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        job: *mut kvc_job,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Sets the transport of a cache. Call it at most once, before the first transfer of the cache.\n   transport  adopted: kvc_cache_destroy closes it\n Errors: UNSUPPORTED (no pools, encoder groups, another version of kvcache_transport.h), INVALID_ARGUMENT (the transport\n lacks a function), ORDER (the cache has a transport, or had a transfer), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_cache_set_transport(
        cache: *mut kvc_cache,
        transport: *const kvc_transport,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to receive a sequence. The call takes all pages at once, and evicts idle pages as kvc_forward_begin does.\n   args      borrowed\n   transfer  filled; never 0\n Errors: OUT_OF_RANGE (num_tokens, timeout_ms), STALE_ID, BUSY, UNCOMMITTED, SUSPENDED (prefix), INVALID_ARGUMENT (the\n prefix has num_tokens or more), ORDER (some layer lacks tokens of the prefix), UNSUPPORTED (no pools; encoder groups; a\n prefix that has a streaming window, or in a cache with a recurrent group), TOO_MANY_SEQUENCES, OUT_OF_PAGES (of\n error->group), OUT_OF_MEMORY, IO (the transport has no address). Threads: any. Since 0.1."]
    pub fn kvc_transfer_receive(
        cache: *mut kvc_cache,
        args: *const kvc_receive_args,
        transfer: *mut kvc_transfer,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Writes the description of a transfer that the cache receives: its layout, the tokens that it needs, and the address to\n which they are sent. Only one sender can use a description. Each rank of this sender uses it once.\n   buffer  nullable if capacity is 0, which only gives `bytes`; filled\n   bytes   filled with the length of the description\n Errors: STALE_ID, INVALID_ARGUMENT (the cache sends this transfer), BUFFER_TOO_SMALL. Threads: any. Since 0.1."]
    pub fn kvc_transfer_describe(
        cache: *mut kvc_cache,
        transfer: kvc_transfer,
        buffer: *mut ::core::ffi::c_void,
        capacity: i64,
        bytes: *mut i64,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Starts to send a sequence to the cache that made a description. Nothing is sent before the first poll.\n   description  borrowed; [bytes], from kvc_transfer_describe\n   transfer     filled; never 0. If the receiver needs no heads of this cache's rank, the transfer is done at its first\n                poll\n Errors: STALE_ID, UNSUPPORTED (no pools, encoder groups; a streaming window; a description of a later version), CORRUPT\n (the bytes are damaged, or are no description), LAYOUT (the caches differ in model, layout or transport, and the message\n has both values), OUT_OF_RANGE (the sequence is longer than the receiver expects), EVICTED (a window has freed tokens that\n the receiver needs), IO (the transport cannot reach the address), OUT_OF_MEMORY. Threads: any. Since 0.1."]
    pub fn kvc_transfer_send(
        cache: *mut kvc_cache,
        sequence: kvc_seq,
        description: *const ::core::ffi::c_void,
        bytes: i64,
        transfer: *mut kvc_transfer,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Continues a transfer, and reports its progress. The first call that reports done = 1 ends the transfer. A call that fails\n ends it too.\n   info  filled\n Errors: STALE_ID (no such transfer; or the sender's sequence was removed), EVICTED (a window has freed tokens before they\n were sent), ORDER (the sender's sequence was extended, and its state at num_tokens is gone), IO (the other side failed,\n cancelled or is silent; the transport failed), CORRUPT (a message does not fit the description), OUT_OF_MEMORY. All errors\n except \"no such transfer\" end the transfer.\n Threads: any. Since 0.1."]
    pub fn kvc_transfer_poll(
        cache: *mut kvc_cache,
        transfer: kvc_transfer,
        info: *mut kvc_transfer_info,
        error: *mut kvc_error,
    ) -> kvc_status;
    #[doc = " Ends a transfer. Received tokens are dropped. If this side has received a message from the other side, it sends a message\n that ends the transfer, and the next poll of the other side returns IO. Otherwise the other side waits until its timeout.\n Errors: STALE_ID. Threads: any. Since 0.1."]
    pub fn kvc_transfer_cancel(cache: *mut kvc_cache, transfer: kvc_transfer, error: *mut kvc_error) -> kvc_status;
    #[doc = " Computes a hash of all bookkeeping: ids, lengths, page tables, free lists. After equal calls on caches with equal configs,\n the hashes are equal. So the hash can be used to compare ranks, or a replay with its original. The hash may differ between\n versions of the library.\n   digest  filled\n Errors: only those that any call can return. Threads: any. The cost grows with the size of the tables. Since 0.1."]
    pub fn kvc_cache_digest(cache: *mut kvc_cache, digest: *mut u64, error: *mut kvc_error) -> kvc_status;
    #[doc = " Checks the bookkeeping: reference counts are right, free and used pages add up to the total, and a page in two tables has\n a count of at least two.\n Errors: INTERNAL, and the message names the broken invariant. Threads: any. The cost grows with the size of the tables.\n Since 0.1."]
    pub fn kvc_cache_check_invariants(cache: *mut kvc_cache, error: *mut kvc_error) -> kvc_status;
    #[doc = " Returns the library's functions as a table, for programs that load the library by dlopen and look up one symbol. Later\n releases only append members. Before you use a member of a later release, check that struct_size (with offsetof) covers\n it.\n   abi_version  KVC_ABI_VERSION of the caller's header\n Returns: a static table, or NULL if the versions do not match. While major is 0, major and minor must be equal. From 1.0\n on, major must be equal, and the caller's minor must not be above the library's. Threads: any. Since 0.1."]
    pub fn kvc_get_api(abi_version: u32) -> *const kvc_api;
}
