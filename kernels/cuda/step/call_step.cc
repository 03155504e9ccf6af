// See step/call_step.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/call_step.h"

#include <algorithm>

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

kvc_status begin_call(kvc_backend_device* opened, kvc_backend_array* arrays, int32_t num_arrays, kvc_backend_plan* plan,
                      void* stream, const kvc_backend_step** step, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  *step = nullptr;
  if (num_arrays > CallStep::kMostArrays) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "a call of %d index arrays", num_arrays);
  }
  PlanPieces of_plan(device.many);
  if (plan != nullptr) {
    const kvc_status listed = of_plan.list_all(plan, &device.upload, error);
    if (listed != KVC_OK) return listed;
  }
  Piece pieces[PlanPieces::kMost + CallStep::kMostArrays];
  const int count = of_plan.count() + num_arrays;
  std::copy_n(of_plan.pieces(), of_plan.count(), pieces);
  for (int32_t i = 0; i < num_arrays; ++i) {
    pieces[of_plan.count() + i] = {arrays[i].data, arrays[i].bytes, nullptr, nullptr};
  }
  const kvc_status taken = device.upload.take(pieces, count, stream, error);
  if (taken != KVC_OK) return taken;
  const int slot = device.upload.taken_slot();
  if (slot < 0) return KVC_OK;
  CallStep* const call = &device.calls[slot];
  call->step = {};
  std::copy_n(pieces, of_plan.count(), of_plan.pieces());
  if (plan != nullptr) of_plan.write(plan, &call->staged);
  for (int32_t i = 0; i < num_arrays; ++i) arrays[i].device = pieces[of_plan.count() + i].device;
  const kvc_status sent = device.upload.send(stream, error);
  if (sent != KVC_OK) return sent;
  device.upload.lend();
  *step = &call->step;
  return KVC_OK;
}

kvc_status end_call(kvc_backend_device* opened, const kvc_backend_step* step, void* stream, kvc_error* error) {
  if (step == nullptr) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  const auto slot = reinterpret_cast<const CallStep*>(step) - device.calls;
  return device.upload.give(static_cast<int>(slot), stream, error);
}

}  // namespace kvc::kernels::cuda
