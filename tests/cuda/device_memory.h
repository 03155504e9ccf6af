// A call of the backend's table may only pass addresses that a GPU can reach. The emulated device reaches all of the
// host's memory, but a GPU reaches neither a thread's stack nor a program's static data. So a test that passes such an
// address ends here with the argument's name, also without a GPU.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "kvcache_backend.h"

namespace kvc::kernels::test {

struct Stack {
  Stack() {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    begin = static_cast<const char*>(low);
    end = begin + bytes;
  }
  const char *begin = nullptr, *end = nullptr;
};

inline void check_reached(const void* memory, const char* name) {
  thread_local const Stack stack;
  const char* const place = static_cast<const char*>(memory);
  Dl_info image;
  const bool on_stack = place >= stack.begin && place < stack.end;
  if (place == nullptr || (!on_stack && dladdr(place, &image) == 0)) return;
  std::fprintf(stderr, "%s: a GPU cannot reach %s\n", name, on_stack ? "a thread's stack" : "a program's static data");
  std::exit(1);
}

template <class Other>
void check_arguments(const Other&) {}  // of the host

inline void check_arguments(const kvc_backend_layer* layer) {
  check_reached(layer->k.data, "layer.k");
  check_reached(layer->v.data, "layer.v");
  check_reached(layer->k_scales.data, "layer.k_scales");
  check_reached(layer->v_scales.data, "layer.v_scales");
}
inline void check_arguments(const kvc_backend_rope* args) {
  check_reached(args->tables, "tables");
  check_reached(args->cos_sin, "cos_sin");
  check_reached(args->cos.data, "cos");
  check_reached(args->sin.data, "sin");
  check_reached(args->device_positions.data, "device_positions");
}
inline void check_arguments(const kvc_backend_append* args) {
  check_arguments(args->layer);
  check_reached(args->k.data, "k");
  check_reached(args->v.data, "v");
  check_reached(args->k_scale.data, "k_scale");
  check_reached(args->v_scale.data, "v_scale");
  check_reached(args->k_row_scales.data, "k_row_scales");
  check_reached(args->v_row_scales.data, "v_row_scales");
  check_reached(args->cos_sin, "cos_sin");
  check_reached(args->device_rows, "device_rows");
  check_reached(args->device_slots.data, "device_slots");
  check_reached(args->device_positions.data, "device_positions");
}
inline void check_arguments(const kvc_backend_attend* args) {
  check_arguments(args->layer);
  check_reached(args->q.data, "q");
  check_reached(args->qv.data, "qv");
  check_reached(args->out.data, "out");
  check_reached(args->lse, "lse");
  check_reached(args->plan->partials, "partials");
  check_reached(args->cos_sin, "cos_sin");
  check_reached(args->cos_sin_sinks, "cos_sin_sinks");
  check_reached(args->key_tables, "key_tables");
  check_reached(args->alibi_slopes, "alibi_slopes");
  check_reached(args->sinks, "sinks");
  check_reached(args->bias.relative, "bias.relative");
  check_reached(args->bias.keys, "bias.keys");
  check_reached(args->bias.mask, "bias.mask");
  check_reached(args->q_scales.data, "q_scales");
  check_reached(args->k_scales.data, "k_scales");
  check_reached(args->v_scales.data, "v_scales");
}
inline void check_arguments(const kvc_backend_gather* args) {
  check_arguments(args->layer);
  check_reached(args->k, "k");
  check_reached(args->v, "v");
  check_reached(args->k_scale, "k_scale");
  check_reached(args->v_scale, "v_scale");
}
inline void check_arguments(const kvc_backend_state& state) {
  check_reached(state.out.data, "out");
  check_reached(state.lse, "lse");
}
inline void check_arguments(const kvc_backend_merge* args) {
  for (int32_t i = 0; i < args->num_parts; ++i) check_arguments(args->parts[i]);
  check_arguments(args->result);
}
inline void check_arguments(const kvc_backend_states* args) {
  check_reached(args->pool, "pool");
  check_reached(args->rows, "rows");
}
inline void check_arguments(const kvc_backend_project* args) {
  check_reached(args->in.data, "in");
  check_reached(args->weights.data, "weights");
  check_reached(args->out.data, "out");
}

}  // namespace kvc::kernels::test
