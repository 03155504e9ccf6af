// merge() merges normalised attention outputs over disjoint keys by their LSE, from left to right.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/merge.h"

#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kItemFloats = 16 * 1024;         // floats that a work item reads, in all parts
constexpr int64_t kSmallItems = 4;                 // this many items take less time than the wake-up of a worker
constexpr int32_t kScratchDims = kMaxHeadDim / 2;  // half of Scratch::row: one half is for the result, one for a part

struct Job {
  const kvc_backend_merge* args;
  const kvc_backend_device* device;
  int64_t rows_per_item;
  int32_t dims_at_once;  // dims of a row that are merged together; all dims if nothing is converted
};

unsigned char* output_of(const kvc_backend_state& state, int64_t token, int64_t head, int32_t dim) {
  const int64_t element = token * state.out.token_stride + head * state.out.head_stride + dim;
  return static_cast<unsigned char*>(state.out.data) + element * element_bytes(type_of(state.out.dtype));
}

float* lse_of(const kvc_backend_state& state, int64_t token, int64_t head) {
  return state.lse + token * state.lse_token_stride + head * state.lse_head_stride;
}

bool is_float32(const kvc_backend_state& state) { return type_of(state.out.dtype) == Type::kF32; }

bool all_float32(const kvc_backend_merge& args) {
  bool all = is_float32(args.result);
  for (int32_t i = 0; i < args.num_parts; ++i) all = all && is_float32(args.parts[i]);
  return all;
}

// Some dims of one row: [begin, begin + count).
struct Dims {
  int64_t token, head;
  int32_t begin, count;
};

// Merges some dims of a row into `out`, and returns the merged state's scale and LSE. A part with LSE x counts as the
// state m = x, l = 1, o = output. converted: scratch of [count] floats, for parts that are not float32.
FinalState merge_dims(const Job& job, const Dims& dims, float* out, float* converted) {
  const kvc_backend_merge& args = *job.args;
  const auto to_float32 = [&](const kvc_backend_state& part, float* row) {
    const unsigned char* from = output_of(part, dims.token, dims.head, dims.begin);
    job.device->implementation->convert_row(Type::kF32, row, type_of(part.out.dtype), from, dims.count);
  };
  const kvc_backend_state& first = args.parts[0];
  float m = *lse_of(first, dims.token, dims.head), l = m == -INFINITY ? 0.0f : 1.0f;
  if (l == 0.0f) {
    memset(out, 0, static_cast<size_t>(dims.count) * sizeof(float));
  } else if (out != reinterpret_cast<float*>(output_of(first, dims.token, dims.head, dims.begin))) {
    to_float32(first, out);
  }
  for (int32_t i = 1; i < args.num_parts; ++i) {
    const kvc_backend_state& part = args.parts[i];
    const float lse = *lse_of(part, dims.token, dims.head);
    if (lse == -INFINITY) continue;
    const float* row = reinterpret_cast<float*>(output_of(part, dims.token, dims.head, dims.begin));
    if (!is_float32(part)) {
      to_float32(part, converted);
      row = converted;
    }
    merge_state(out, &m, &l, row, lse, 1.0f, dims.count);
  }
  const FinalState final = final_state(static_cast<double>(m), static_cast<double>(l), nullptr);
  const float scale = static_cast<float>(final.scale);
  for (int32_t d = 0; d < dims.count; ++d) out[d] *= scale;
  return final;
}

// Merges a row, at most dims_at_once dims at a time. The result may overwrite the first part, so the LSE is written
// after all dims are merged.
void merge_row(const Job& job, int64_t token, int64_t head, float* scratch) {
  const kvc_backend_state& result = job.args->result;
  const bool in_place = is_float32(result);
  FinalState final = {};
  for (int32_t begin = 0; begin < job.args->dims; begin += job.dims_at_once) {
    const int32_t rest = job.args->dims - begin;
    const Dims dims = {token, head, begin, rest < job.dims_at_once ? rest : job.dims_at_once};
    unsigned char* const to = output_of(result, token, head, begin);
    float* const merged = in_place ? reinterpret_cast<float*>(to) : scratch;
    final = merge_dims(job, dims, merged, scratch + kScratchDims);
    if (!in_place) {
      job.device->implementation->convert_row(type_of(result.out.dtype), to, Type::kF32, merged, dims.count);
    }
  }
  if (result.lse != nullptr) *lse_of(result, token, head) = final.lse;
}

void run_item(void* arg, int64_t index, int32_t worker) {
  const Job& job = *static_cast<const Job*>(arg);
  const DefaultFloatEnvironment environment;
  const int64_t rows = job.args->num_tokens * job.args->num_heads, begin = index * job.rows_per_item;
  const int64_t end = begin + job.rows_per_item < rows ? begin + job.rows_per_item : rows;
  for (int64_t row = begin; row < end; ++row) {
    merge_row(job, row / job.args->num_heads, row % job.args->num_heads, job.device->scratch[worker].row);
  }
}

}  // namespace

kvc_status merge(kvc_backend_device* device, const kvc_backend_merge* args, void*, kvc_error*) {
  const int64_t rows = args->num_tokens * args->num_heads;
  const int64_t row_floats = static_cast<int64_t>(args->num_parts) * args->dims;
  Job job = {args, device, kItemFloats / row_floats + 1, all_float32(*args) ? args->dims : kScratchDims};
  const int64_t items = (rows + job.rows_per_item - 1) / job.rows_per_item;
  const int32_t effort = items == 1 ? KVC_EFFORT_TINY : items <= kSmallItems ? KVC_EFFORT_SMALL : KVC_EFFORT_LARGE;
  if (items > 0) device->host->run(device->host->self, items, effort, run_item, &job);
  return KVC_OK;
}

}  // namespace kvc::kernels
