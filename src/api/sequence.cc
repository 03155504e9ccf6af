// Section 6 of the header: sequences. Also the commit of token trees, of section 7.
#include "api/boundary.h"

// Input arrays are copied (CallArray) before the cache reads them, because another thread of the caller may change the
// arrays during the call.
using namespace kvc;
using namespace kvc::api;

kvc_status kvc_seq_add(kvc_cache* cache, int64_t n, kvc_seq* sequences, kvc_error* error) {
  return cache_call("kvc_seq_add", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    return c.sequences.add(span_of(sequences, n));
  });
}

kvc_status kvc_seq_remove(kvc_cache* cache, int64_t n, const kvc_seq* sequences, kvc_error* error) {
  return cache_call("kvc_seq_remove", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    return c.sequences.remove(CallArray(sequences, n).span());
  });
}

kvc_status kvc_seq_fork(kvc_cache* cache, int64_t n, const kvc_seq* parents, const int64_t* positions,
                        kvc_seq* children, void* stream, kvc_error* error) {
  return cache_call("kvc_seq_fork", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, parents, "parents"));
    KVC_TRY(check_array(n, children, "children"));
    KVC_TRY(check_disjoint(n, parents, "parents", children, "children"));
    KVC_TRY(check_disjoint(n, positions, "positions", children, "children"));
    return c.sequences.fork(CallArray(parents, n).span(), CallArray(positions, n).span(), span_of(children, n), stream);
  });
}

kvc_status kvc_seq_truncate(kvc_cache* cache, int64_t n, const kvc_seq* sequences, const int64_t* lengths,
                            kvc_error* error) {
  return cache_call("kvc_seq_truncate", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, lengths, "lengths"));
    return c.sequences.truncate(CallArray(sequences, n).span(), CallArray(lengths, n).span());
  });
}

kvc_status kvc_seq_lengths(kvc_cache* cache, int64_t n, const kvc_seq* sequences, int64_t* lengths, kvc_error* error) {
  return cache_call("kvc_seq_lengths", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, lengths, "lengths"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", lengths, "lengths"));
    return c.sequences.lengths(CallArray(sequences, n).span(), span_of(lengths, n));
  });
}

kvc_status kvc_seq_pages(kvc_cache* cache, kvc_seq sequence, int32_t group, int32_t* pages, int64_t capacity,
                         int64_t* count, kvc_error* error) {
  return cache_call("kvc_seq_pages", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_buffer(pages, capacity, "pages"));
    int64_t known = 0;
    Status status = c.sequences.pages(sequence, group, span_of(pages, capacity), &known);
    if (count != nullptr && (status.ok() || status.code() == KVC_ERROR_BUFFER_TOO_SMALL)) *count = known;
    return status;
  });
}

kvc_status kvc_seq_nearest_position(kvc_cache* cache, kvc_seq sequence, int64_t position, int64_t* before,
                                    int64_t* after, kvc_error* error) {
  return cache_call("kvc_seq_nearest_position", cache, error, [&](Cache& c) -> Status {
    int64_t at_or_before = 0;
    int64_t at_or_after = 0;
    KVC_TRY(c.sequences.nearest_position(sequence, position, &at_or_before, &at_or_after));
    if (before != nullptr) *before = at_or_before;
    if (after != nullptr) *after = at_or_after;
    return Status();
  });
}

kvc_status kvc_seq_commit(kvc_cache* cache, int64_t n, const kvc_seq* sequences, const int32_t* leaves, void* stream,
                          kvc_error* error) {
  return cache_call("kvc_seq_commit", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, leaves, "leaves"));
    return c.sequences.commit(CallArray(sequences, n).span(), CallArray(leaves, n).span(), stream);
  });
}

kvc_status kvc_seq_tree_nodes(kvc_cache* cache, int64_t n, const kvc_seq* sequences, int32_t* nodes, kvc_error* error) {
  return cache_call("kvc_seq_tree_nodes", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, nodes, "nodes"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", nodes, "nodes"));
    return c.sequences.tree_nodes(CallArray(sequences, n).span(), span_of(nodes, n));
  });
}

kvc_status kvc_seq_set_rope(kvc_cache* cache, int64_t n, const kvc_seq* sequences, int32_t set, kvc_error* error) {
  return cache_call("kvc_seq_set_rope", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    return c.sequences.set_rope(CallArray(sequences, n).span(), set);
  });
}

kvc_status kvc_seq_set_streaming(kvc_cache* cache, int64_t n, const kvc_seq* sequences, const int64_t* sink_tokens,
                                 const int64_t* window_tokens, uint32_t flags, kvc_error* error) {
  return cache_call("kvc_seq_set_streaming", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, window_tokens, "window_tokens"));
    return c.sequences.set_streaming(CallArray(sequences, n).span(), CallArray(sink_tokens, n).span(),
                                     CallArray(window_tokens, n).span(), flags);
  });
}

kvc_status kvc_seq_get_streaming(kvc_cache* cache, int64_t n, const kvc_seq* sequences, int64_t* sink_tokens,
                                 int64_t* window_tokens, kvc_error* error) {
  return cache_call("kvc_seq_get_streaming", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, sink_tokens, "sink_tokens"));
    KVC_TRY(check_array(n, window_tokens, "window_tokens"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", sink_tokens, "sink_tokens"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", window_tokens, "window_tokens"));
    KVC_TRY(check_disjoint(n, sink_tokens, "sink_tokens", window_tokens, "window_tokens"));
    return c.sequences.streaming(CallArray(sequences, n).span(), span_of(sink_tokens, n), span_of(window_tokens, n));
  });
}

kvc_status kvc_seq_max_append(kvc_cache* cache, int64_t n, const kvc_seq* sequences, int64_t* tokens,
                              kvc_error* error) {
  return cache_call("kvc_seq_max_append", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, tokens, "tokens"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", tokens, "tokens"));
    return c.sequences.max_append(CallArray(sequences, n).span(), span_of(tokens, n));
  });
}

kvc_status kvc_seq_exclusive_pages(kvc_cache* cache, int32_t group, int64_t n, const kvc_seq* sequences, int64_t* pages,
                                   kvc_error* error) {
  return cache_call("kvc_seq_exclusive_pages", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, pages, "pages"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", pages, "pages"));
    return c.sequences.exclusive_pages(group, CallArray(sequences, n).span(), span_of(pages, n));
  });
}

kvc_status kvc_seq_checkpoint(kvc_cache* cache, int64_t n, const kvc_seq* sequences, kvc_error* error) {
  return cache_call("kvc_seq_checkpoint", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    return c.sequences.checkpoint(CallArray(sequences, n).span());
  });
}

kvc_status kvc_seq_encoder_lengths(kvc_cache* cache, int32_t group, int64_t n, const kvc_seq* sequences,
                                   int64_t* lengths, kvc_error* error) {
  return cache_call("kvc_seq_encoder_lengths", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_array(n, sequences, "sequences"));
    KVC_TRY(check_array(n, lengths, "lengths"));
    KVC_TRY(check_disjoint(n, sequences, "sequences", lengths, "lengths"));
    return c.sequences.encoder_lengths(group, CallArray(sequences, n).span(), span_of(lengths, n));
  });
}
