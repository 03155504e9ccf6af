// One attend of a backend's table, as the library makes it: if the backend needs it, the plan is staged first.
#pragma once

#include "kernels/common/mask.h"
#include "kvcache_backend.h"

namespace kvc::kernels::test {

// Whether kvc_backend_plan.exact_items may be 1.
inline bool has_exact_items(const kvc_backend_plan& plan) {
  const kvc_backend_rows& rows = plan.arrays.rows;
  if (rows.tree_begin != nullptr || plan.num_spans > 0) return false;
  kvc_backend_attend args = {};
  args.plan = &plan;
  args.layer = plan.layer;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
    if (item.q_end - item.q_begin != 1) continue;
    const KeyRange keys = query_mask(&args, &item, item.row, item.q_begin).keys;
    if (keys.begin != item.key_begin || keys.end != item.key_end) return false;
  }
  return true;
}

// plan: with its arrays on the host, its sizes, layer and partials.
inline kvc_status staged_attend(const kvc_backend* backend, kvc_backend_device* device, kvc_backend_attend args,
                                kvc_backend_plan plan, void* stream, kvc_error* error) {
  args.plan = &plan;
  if (args.lists.block_tokens == 0) plan.exact_items = has_exact_items(plan) ? 1 : 0;
  if (backend->begin_call == nullptr) return backend->attend(device, &args, stream, error);
  const kvc_backend_step* step = nullptr;
  const kvc_status begun = backend->begin_call(device, nullptr, 0, &plan, stream, &step, error);
  if (begun != KVC_OK) return begun;
  const kvc_status attended = backend->attend(device, &args, stream, error);
  kvc_error unsaid = KVC_ERROR_INIT;  // the first failure is reported
  const kvc_status ended = backend->end_call(device, step, stream, attended == KVC_OK ? error : &unsaid);
  return attended != KVC_OK ? attended : ended;
}

}  // namespace kvc::kernels::test
