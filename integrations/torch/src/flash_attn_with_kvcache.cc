#include <algorithm>
#include <limits>
#include <vector>

#include "arguments.h"
#include "library.h"
#include "operators.h"

namespace kvc_torch {
namespace {

using Args = kvc_flash_attn_args;
constexpr auto kRequired = Field<Args>::kRequired;
constexpr Field<Args> kFields[] = {
    {"q", &Args::q, kRequired},
    {"k_cache", &Args::k_cache, kRequired, true},
    {"v_cache", &Args::v_cache, kRequired, true},
    {"k", &Args::k},
    {"v", &Args::v},
    {"qv", &Args::qv},
    {"cache_seqlens", &Args::cache_seqlens},
    {"cache_batch_idx", &Args::cache_batch_idx},
    {"cache_leftpad", &Args::cache_leftpad},
    {"block_table", &Args::block_table},
    {"cu_seqlens_q", &Args::cu_seqlens_q},
    {"cu_seqlens_k_new", &Args::cu_seqlens_k_new},
    {"rotary_cos", &Args::rotary_cos},
    {"rotary_sin", &Args::rotary_sin},
    {"rotary_seqlens", &Args::rotary_seqlens},
    {"q_descale", &Args::q_descale},
    {"k_descale", &Args::k_descale},
    {"v_descale", &Args::v_descale},
    {"alibi_slopes", &Args::alibi_slopes},
    {"sinks", &Args::sinks},
    {"indices", &Args::indices},
};

// Integers beyond int32 become its largest or smallest value, which the library refuses or treats alike.
int32_t saturate(int64_t value) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

// The arguments of the schema after its tensors.
void read_numbers(const StableIValue* stack, Args* args) {
  args->softmax_scale = take<std::optional<double>>(*stack++).value_or(0.0);
  if (take<bool>(*stack++)) args->flags |= KVC_FLASH_ATTN_CAUSAL;
  if (const int64_t left = take<int64_t>(*stack++); left >= 0) {
    args->flags |= KVC_FLASH_ATTN_WINDOW_LEFT;
    args->window_left = saturate(left);
  }
  if (const int64_t right = take<int64_t>(*stack++); right >= 0) {
    args->flags |= KVC_FLASH_ATTN_WINDOW_RIGHT;
    args->window_right = saturate(right);
  }
  args->attention_chunk = saturate(take<int64_t>(*stack++));
  args->softcap = take<double>(*stack++);
  if (take<bool>(*stack++)) args->flags |= KVC_FLASH_ATTN_ROTARY_INTERLEAVED;
  if (take<bool>(*stack++)) args->flags |= KVC_FLASH_ATTN_ALIBI_SIGNED;
  args->num_splits = saturate(take<int64_t>(*stack++));
}

// The results, which are empty if the library will refuse the ranks of q and v_cache.
std::vector<Tensor> new_results(const Tensor& q, const Args& args) {
  const int64_t* sizes = args.q->shape;
  const bool packed = args.cu_seqlens_q;
  if (args.q->ndim != (packed ? 3 : 4) || args.v_cache->ndim != 4) return {};
  std::vector<int64_t> shape(sizes, sizes + args.q->ndim);
  shape.back() = args.v_cache->shape[3];
  const std::vector<int64_t> lse_shape =
      packed ? std::vector{sizes[1], sizes[0]} : std::vector{sizes[0], sizes[2], sizes[1]};
  int32_t dtype = aoti_torch_dtype_bfloat16();  // for queries in float8
  if (args.q->dtype.bits > 8) TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(q.get(), &dtype));
  return {new_tensor(q, shape, dtype), new_tensor(q, lse_shape, aoti_torch_dtype_float32())};
}

}  // namespace

void flash_attn_with_kvcache(StableIValue* stack, uint64_t, uint64_t) {
  Tensors tensors(kFields, stack);
  Args args;
  kvc_flash_attn_args_init(&args);
  read_numbers(stack + std::size(kFields), &args);
  tensors.borrow(&args);
  const Tensor& q = *tensors[0];
  const std::vector<Tensor> results = new_results(q, args);
  DLTensor out, lse;
  if (!results.empty()) {
    out = view(results[0], "out", true);
    lse = view(results[1], "softmax_lse", true);
    args.out = &out;
    args.softmax_lse = &lse;
  }
  const Place place = place_of(q);
  kvc_error error = KVC_ERROR_INIT;
  check(library().flash_attn_with_kvcache(place.context, &args, place.stream, &error), error);
  stack[0] = give(results[0]);
  stack[1] = give(results[1]);
}

}  // namespace kvc_torch
