// See step/call_step.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/call_step.h"

#include <algorithm>

#include "kernels/cuda/attend/common/arrays.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kMostArrays = CallStep::kMostRanges - kNumPieces;  // beside the attend's
static_assert(kMostArrays >= 3);

void add_ranges(CallStep* call, const Piece* pieces, int count) {
  call->step = {};
  call->step.ranges = call->ranges;
  for (int i = 0; i < count; ++i) {
    const Piece& piece = pieces[i];
    if (piece.source == nullptr || piece.bytes == 0) continue;
    call->ranges[call->step.num_ranges++] = {static_cast<const char*>(piece.source), piece.bytes,
                                             static_cast<const char*>(piece.device)};
  }
  std::sort(call->ranges, call->ranges + call->step.num_ranges,
            [](const auto& a, const auto& b) { return a.host < b.host; });
}

void add_blocks(CallStep* call, const kvc_backend_attend& attend, const Made& made, const Piece* pieces) {
  call->blocks = {};
  call->blocks.items = attend.items;
  call->blocks.blocks = on_device<const AttendBlock>(pieces[kBlocks]);
  call->blocks.count = made.blocks;
  call->blocks.pages = on_device<const int32_t>(pieces[kPages]);
  call->blocks.page_begin = on_device<const int64_t>(pieces[kPageBegin]);
  call->step.blocks = &call->blocks;
  call->step.num_blocks = 1;
}

}  // namespace

kvc_status begin_call(kvc_backend_device* opened, const kvc_backend_array* arrays, int32_t num_arrays,
                      const kvc_backend_attend* attend, void* stream, const kvc_backend_step** step, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  *step = nullptr;
  if (num_arrays > kMostArrays) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "a call of %d index arrays", num_arrays);
  }
  Piece pieces[kMostArrays + kNumPieces];
  for (int32_t i = 0; i < num_arrays; ++i) pieces[i] = {arrays[i].data, arrays[i].bytes, nullptr, nullptr};
  Piece* const of_attend = pieces + num_arrays;
  const int count = num_arrays + (attend != nullptr ? kNumPieces : 0);
  Made made;
  kvc_status status = KVC_OK;
  if (attend != nullptr) status = find_arrays(*attend, device.many, &device.upload, of_attend, &made, error);
  if (status == KVC_OK) status = device.upload.take(pieces, count, stream, error);
  if (status != KVC_OK) return status;
  if (attend != nullptr) write_made(*attend, device.many, made, of_attend);
  status = device.upload.send(stream, error);
  if (status != KVC_OK) return status;
  const int slot = device.upload.lend();
  if (slot < 0) return KVC_OK;
  CallStep* const call = &device.calls[slot];
  add_ranges(call, pieces, count);
  if (attend != nullptr) add_blocks(call, *attend, made, of_attend);
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
