// merge: normalised results of attention over disjoint keys, by their LSE, left to right into the result.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/merge.h"

#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kItemFloats = 16 * 1024;  // outputs of a work item, each part counted
constexpr int64_t kSmallItems = 4;          // done before a sleeping worker would have come

struct Job {
  const kvc_backend_merge* args;
  const kvc_backend_device* device;
  int64_t rows_per_item;
};

float* output_of(const kvc_backend_state& state, int64_t token, int64_t head) {
  return static_cast<float*>(state.out.data) + token * state.out.token_stride + head * state.out.head_stride;
}

float* lse_of(const kvc_backend_state& state, int64_t token, int64_t head) {
  return state.lse + token * state.lse_token_stride + head * state.lse_head_stride;
}

// A finished part is the state (m = LSE, l = 1, o = output). out: where the result goes, or a row of scratch.
void merge_row(const kvc_backend_merge& args, int64_t token, int64_t head, float* out) {
  const float* first = output_of(args.parts[0], token, head);
  const size_t bytes = static_cast<size_t>(args.dims) * sizeof(float);
  float m = *lse_of(args.parts[0], token, head), l = m == -INFINITY ? 0.0f : 1.0f;
  if (l == 0.0f) {
    memset(out, 0, bytes);
  } else if (out != first) {
    memcpy(out, first, bytes);
  }
  for (int32_t i = 1; i < args.num_parts; ++i) {
    const float lse = *lse_of(args.parts[i], token, head);
    if (lse != -INFINITY) merge_state(out, &m, &l, output_of(args.parts[i], token, head), lse, 1.0f, args.dims);
  }
  const FinalState final = final_state(static_cast<double>(m), static_cast<double>(l), nullptr);
  const float scale = static_cast<float>(final.scale);
  for (int32_t d = 0; d < args.dims; ++d) out[d] *= scale;
  if (args.result.lse != nullptr) *lse_of(args.result, token, head) = final.lse;
}

void run_item(void* arg, int64_t index, int32_t worker) {
  const Job& job = *static_cast<const Job*>(arg);
  const DefaultFloatEnvironment environment;
  const int64_t rows = job.args->num_tokens * job.args->num_heads, begin = index * job.rows_per_item;
  const int64_t end = begin + job.rows_per_item < rows ? begin + job.rows_per_item : rows;
  const kvc_backend_tensor& result = job.args->result.out;
  const Type type = type_of(result.dtype);
  float* scratch = job.device->scratch[worker].row;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / job.args->num_heads, head = row % job.args->num_heads;
    if (type == Type::kF32) {
      merge_row(*job.args, token, head, output_of(job.args->result, token, head));
      continue;
    }
    merge_row(*job.args, token, head, scratch);
    unsigned char* out = static_cast<unsigned char*>(result.data) +
                         (token * result.token_stride + head * result.head_stride) * type_bytes(type);
    job.device->implementation->convert_row(type, out, Type::kF32, scratch, job.args->dims);
  }
}

}  // namespace

kvc_status merge(kvc_backend_device* device, const kvc_backend_merge* args, void*, kvc_error*) {
  const int64_t rows = args->num_tokens * args->num_heads;
  const int64_t row_floats = static_cast<int64_t>(args->num_parts) * args->dims;
  Job job = {args, device, kItemFloats / row_floats + 1};
  const int64_t items = (rows + job.rows_per_item - 1) / job.rows_per_item;
  const int32_t effort = items == 1 ? KVC_EFFORT_TINY : items <= kSmallItems ? KVC_EFFORT_SMALL : KVC_EFFORT_LARGE;
  if (items > 0) device->host->run(device->host->self, items, effort, run_item, &job);
  return KVC_OK;
}

}  // namespace kvc::kernels
