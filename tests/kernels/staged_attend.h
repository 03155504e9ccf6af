// One attend of a backend's table, as the library makes it: if the backend needs it, the plan is staged first.
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels::test {

// plan: with its arrays on the host, its sizes, layer and partials.
inline kvc_status staged_attend(const kvc_backend* backend, kvc_backend_device* device, kvc_backend_attend args,
                                kvc_backend_plan plan, void* stream, kvc_error* error) {
  args.plan = &plan;
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
