// Section 7 of the header: forward steps.
#include "api/boundary.h"
#include "stateless/merge_states.h"

using namespace kvc;
using namespace kvc::api;

kvc_status kvc_cache_can_fit(kvc_cache* cache, const kvc_batch* batch, kvc_error* error) {
  return cache_call("kvc_cache_can_fit", cache, error, [&](Cache& c) -> Status {
    kvc_batch known;
    KVC_TRY(read_struct(batch, "batch", &known));
    return c.steps.can_fit(known);
  });
}

kvc_status kvc_forward_begin(kvc_cache* cache, const kvc_batch* batch, void* stream, kvc_forward* forward,
                             kvc_error* error) {
  return cache_call("kvc_forward_begin", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(forward, "forward"));
    kvc_batch known;
    KVC_TRY(read_struct(batch, "batch", &known));
    return c.steps.begin(known, stream, forward);
  });
}

kvc_status kvc_forward_append(kvc_cache* cache, kvc_forward forward, int32_t layer, const kvc_append_args* args,
                              kvc_error* error) {
  return cache_call("kvc_forward_append", cache, error, [&](Cache& c) -> Status {
    kvc_append_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return c.steps.in_step(forward, false, [&](Step& step) { return step.append(layer, known); });
  });
}

kvc_status kvc_forward_attend(kvc_cache* cache, kvc_forward forward, int32_t layer, const kvc_attend_args* args,
                              kvc_error* error) {
  return cache_call("kvc_forward_attend", cache, error, [&](Cache& c) -> Status {
    kvc_attend_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return c.steps.in_layer(forward, layer, [&](Step& step) { return step.attend(layer, known); });
  });
}

kvc_status kvc_forward_select(kvc_cache* cache, kvc_forward forward, int32_t layer, const kvc_select_args* args,
                              kvc_error* error) {
  return cache_call("kvc_forward_select", cache, error, [&](Cache& c) -> Status {
    kvc_select_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return c.steps.in_layer(forward, layer, [&](Step& step) { return step.select(layer, known); });
  });
}

kvc_status kvc_forward_load_state(kvc_cache* cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                  const DLTensor* tensor, kvc_error* error) {
  return cache_call("kvc_forward_load_state", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(tensor, "tensor"));
    return c.steps.in_layer(forward, layer,
                            [&](Step& step) { return step.copy_state(layer, state, token, tensor, false); });
  });
}

kvc_status kvc_forward_store_state(kvc_cache* cache, kvc_forward forward, int32_t layer, int32_t state, int32_t token,
                                   const DLTensor* tensor, kvc_error* error) {
  return cache_call("kvc_forward_store_state", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(tensor, "tensor"));
    return c.steps.in_step(forward, false,
                           [&](Step& step) { return step.copy_state(layer, state, token, tensor, true); });
  });
}

kvc_status kvc_merge_states(kvc_context* context, const kvc_merge_args* args, void* stream, kvc_error* error) {
  return call("kvc_merge_states", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    kvc_merge_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return merge_states(*context->context, known, stream);
  });
}

kvc_status kvc_forward_end(kvc_cache* cache, kvc_forward forward, kvc_error* error) {
  return cache_call("kvc_forward_end", cache, error, [&](Cache& c) { return c.steps.end(forward); });
}

kvc_status kvc_forward_abort(kvc_cache* cache, kvc_forward forward, kvc_error* error) {
  return cache_call("kvc_forward_abort", cache, error, [&](Cache& c) { return c.steps.abort(forward); });
}

kvc_status kvc_forward_cancel(kvc_cache* cache, kvc_forward forward, kvc_error* error) {
  return cache_call("kvc_forward_cancel", cache, error, [&](Cache& c) { return c.steps.cancel(forward); });
}

kvc_status kvc_forward_get_info(kvc_cache* cache, kvc_forward forward, kvc_forward_info* info, kvc_error* error) {
  return cache_call("kvc_forward_get_info", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(info, "info"));
    kvc_forward_info out;
    kvc_forward_info_init(&out);
    KVC_TRY(c.steps.info(forward, &out));
    write_struct(out, info);
    return Status();
  });
}

kvc_status kvc_graph_create(kvc_cache* cache, const kvc_graph_config* config, kvc_forward* graph, kvc_error* error) {
  return cache_call("kvc_graph_create", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(graph, "graph"));
    kvc_graph_config known;
    KVC_TRY(read_struct(config, "config", &known));
    return c.steps.create_graph(known, graph);
  });
}

kvc_status kvc_graph_destroy(kvc_cache* cache, kvc_forward graph, kvc_error* error) {
  return cache_call("kvc_graph_destroy", cache, error, [&](Cache& c) { return c.steps.destroy_graph(graph); });
}

kvc_status kvc_forward_describe(kvc_cache* cache, kvc_forward forward, char* buffer, int64_t capacity, int64_t* length,
                                kvc_error* error) {
  return cache_call("kvc_forward_describe", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_buffer(buffer, capacity, "buffer"));
    std::string text;
    KVC_TRY(c.steps.in_step(forward, true, [&](Step& step) { return step.describe(&text); }));
    return write_text(text, buffer, capacity, length);
  });
}
