#include "stateless/merge_states.h"

#include <array>
#include <cinttypes>
#include <utility>
#include <vector>

#include "tensor/tensor_check.h"

namespace kvc {
namespace {

constexpr int32_t kFewParts = 8;  // up to this many parts are merged without an allocation

// Reads T, H and Dv of a call from the shape of its output.
Status read_shape(const DLTensor* out, RowsSpec* spec) {
  if (out == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "out is NULL");
  if (out->ndim != 3) return Status::error(KVC_ERROR_RANK, "out has %d dims, not 3", out->ndim);
  if (out->shape == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "out has no shape");
  const int64_t* shape = out->shape;
  if (shape[0] < 0 || shape[1] < 1 || shape[1] > INT32_MAX || shape[2] < 1 || shape[2] > INT32_MAX) {
    return Status::error(KVC_ERROR_SHAPE, "out has shape [%" PRId64 ", %" PRId64 ", %" PRId64 "]", shape[0], shape[1],
                         shape[2]);
  }
  spec->tokens = shape[0];
  spec->heads = shape[1];
  spec->dims = shape[2];
  return Status();
}

Status read_state(const DLTensor* out, const DLTensor* lse, RowsSpec spec, const char* out_name, const char* lse_name,
                  kvc_backend_state* state) {
  spec.name = out_name;
  KVC_TRY(check_rows(out, spec, &state->out));
  spec.name = lse_name;
  if (lse == nullptr && spec.written) return Status();
  return check_lse(lse, spec, &state->lse, &state->lse_token_stride, &state->lse_head_stride);
}

}  // namespace

Status merge_states(Context& context, const kvc_merge_args& args, void* stream) {
  KVC_TRY(context.check_stream(stream));
  if (args.num_parts < 1) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_parts %d is below 1", args.num_parts);
  if (args.outputs == nullptr || args.lses == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL with num_parts %d",
                         args.outputs == nullptr ? "outputs" : "lses", args.num_parts);
  }
  RowsSpec spec = {"out", 0, 0, 0, context.dl_device()};
  KVC_TRY(read_shape(args.out, &spec));
  kvc_backend_merge merge = {};
  spec.written = true;
  KVC_TRY(read_state(args.out, args.lse, spec, "out", "lse", &merge.result));
  spec.written = false;
  std::array<kvc_backend_state, kFewParts> few = {};
  std::vector<kvc_backend_state> many;
  for (int32_t i = 0; i < args.num_parts; ++i) {
    kvc_backend_state part = {};
    Status read = read_state(args.outputs[i], args.lses[i], spec, "a part's output", "a part's lse", &part);
    if (!read.ok()) return std::move(read).at(i);
    if (args.num_parts <= kFewParts) {
      few[static_cast<size_t>(i)] = part;
    } else {
      many.push_back(part);  // memory grows with the parts that were read, because num_parts alone could be huge
    }
  }
  merge.parts = many.empty() ? few.data() : many.data();
  merge.num_parts = args.num_parts;
  merge.num_tokens = spec.tokens;
  merge.num_heads = static_cast<int32_t>(spec.heads);
  merge.dims = static_cast<int32_t>(spec.dims);
  if (merge.num_tokens == 0) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().merge(context.device(), &merge, stream, &error), error);
}

}  // namespace kvc
