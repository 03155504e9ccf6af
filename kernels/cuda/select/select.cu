// select: scores the keys that queries see, and takes the entries with the highest scores. It processes as many queries
// at a time as the scratch has room for. The result does not depend on how the queries are divided.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/mask.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/select/call.cuh"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {
namespace {

// Returns the largest number of keys in the range of a query. Reads the plan's arrays on the host.
int64_t most_keys(const kvc_backend_attend& args) {
  const kvc_backend_rows& rows = args.plan->arrays.rows;
  int64_t most = 0;
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    if (rows.kv_lengths[row] < 0) continue;
    kvc_backend_item item = {};
    item.row = row;
    item.key_end = INT32_MAX;
    for (int32_t query = 0; query < rows.token_begin[row + 1] - rows.token_begin[row]; ++query) {
      const KeyRange keys = query_mask(&args, &item, row, query).keys;
      if (keys.end - keys.begin > most) most = keys.end - keys.begin;
    }
  }
  return most;
}

// Runs both kernels for as many queries and lists at a time as the scratch has room for.
kvc_status select_all(const Device& device, SelectCall* call, int64_t most, void* stream, kvc_error* error) {
  constexpr int32_t kMostQueries = 65535;  // the limit of a grid's second dimension
  const kvc_backend_select& args = call->select;
  call->orders = static_cast<uint32_t*>(args.scratch);
  call->stride = most > 0 ? most : 1;
  const int64_t fitting = args.scratch_bytes / (call->stride * static_cast<int64_t>(sizeof(uint32_t)));
  if (fitting < 1) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "scores of %lld keys, and the scratch has %lld bytes",
                static_cast<long long>(most), static_cast<long long>(args.scratch_bytes));
  }
  const int32_t lists = fitting < call->lists ? static_cast<int32_t>(fitting) : call->lists;
  int64_t queries = lists < call->lists ? 1 : fitting / call->lists;
  if (queries > kMostQueries) queries = kMostQueries;
  const int32_t tokens = args.plan->arrays.rows.num_tokens;
  for (int32_t token = 0; token < tokens; token += static_cast<int32_t>(queries)) {
    const int32_t count = tokens - token < queries ? tokens - token : static_cast<int32_t>(queries);
    call->token_begin = token;
    for (int32_t list = 0; list < call->lists; list += lists) {
      call->list_begin = list;
      call->list_end = call->lists - list < lists ? call->lists : list + lists;
      kvc_status status = launch_scores(device, *call, count, call->stride, stream, error);
      if (status == KVC_OK) status = launch_choice(*call, count, stream, error);
      if (status != KVC_OK) return status;
    }
  }
  return KVC_OK;
}

}  // namespace

kvc_status select(kvc_backend_device* opened, const kvc_backend_select* args, void* stream, kvc_error* error) {
  if (args->cancel_host != nullptr && __atomic_load_n(args->cancel_host, __ATOMIC_RELAXED) != 0) {
    return fail(error, KVC_ERROR_CANCELLED, "select was cancelled");
  }
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  // Captures are refused, because a replay would use the rows and lengths of this step.
  const kvc_status outside = check_not_captured(stream, "select uses the rows of this step only", error);
  if (outside != KVC_OK) return outside;
  SelectCall call = {};
  call.select = *args;
  call.attend.layer = *args->layer;
  call.attend.plan = plan_on_device(*args->plan);
  call.attend.args.layer = args->layer;
  call.attend.args.plan = args->plan;
  call.attend.args.q = args->q;
  call.attend.args.cos_sin = args->cos_sin;
  call.attend.args.lists = args->candidates;
  call.lists = args->rule == KVC_SELECT_EACH_HEAD ? args->layer->num_q_heads : 1;
  int64_t most = most_keys(call.attend.args);
  if (args->candidates.block_tokens == 0) return select_all(device, &call, most, stream, error);
  void* memory = nullptr;
  kvc_status status = list_keys(device, nullptr, call.lists, &call.attend, stream, &memory, error);
  if (call.attend.listed.most < most) most = call.attend.listed.most;
  if (status == KVC_OK) status = select_all(device, &call, most, stream, error);
  kvc_error unsaid = KVC_ERROR_INIT;
  const kvc_status given =
      memory == nullptr ? KVC_OK : device.scratch.give(memory, stream, status == KVC_OK ? error : &unsaid);
  return status == KVC_OK ? given : status;
}

}  // namespace kvc::kernels::cuda
