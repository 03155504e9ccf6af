#include "stateless/append_slots.h"

#include <algorithm>
#include <cinttypes>

#include "base/dtype_text.h"
#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"
#include "stateless/staged_call.h"
#include "tensor/tensor_overlap.h"

namespace kvc {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 26;

struct AppendSlotsCall {
  ForeignCache cache;
  TensorView k, v, k_scale, v_scale;
  IndexTensor slots, positions;
  RotaryTables rotary;
  bool latent = false;  // rows [latent | rotary] of one tensor
};

Status read_rows(const DLTensor* tensor, const char* name, int64_t tokens, int64_t heads, int64_t dims,
                 DLDataType stored, DLDevice device, TensorView* out) {
  const int64_t shape[3] = {tokens, heads, dims};
  return check_tensor(tensor,
                      {name, device, 3, shape, "[tokens, heads, dims]", true, false, is_float_dtype,
                       "float32, float16, bfloat16 or that of the cache", stored},
                      out);
}

// Reads one scale for all heads, or one scale for each head.
Status read_scale(const DLTensor* tensor, const char* name, const kvc_backend_layer& layer, DLDevice device,
                  TensorView* out, kvc_backend_scales* scales) {
  if (tensor == nullptr) return Status();
  if (kernels::place_of_scales(layer.format) != KVC_BACKEND_SCALES_APART) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and the cache is not float8", name);
  }
  static constexpr int64_t kAny = -1;
  KVC_TRY(
      check_tensor(tensor, {name, device, 1, &kAny, "[1] or [heads]", false, false, is_float32_dtype, "float32"}, out));
  if (out->shape[0] != 1 && out->shape[0] != layer.num_kv_heads) {
    return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " elements, not 1 or %d", name, out->shape[0],
                         layer.num_kv_heads);
  }
  *scales = {out->data, 0, out->shape[0] == 1 ? 0 : out->strides[0] * element_bytes(out->dtype), 0, 0};
  return Status();
}

Status read_rotation(const kvc_append_slots_args& args, DLDevice device, AppendSlotsCall* call) {
  kvc_backend_layer& layer = call->cache.layer;
  const int32_t offset = call->latent ? layer.v_head_dim : 0;
  KVC_TRY(RotaryTables::read(args.rotary_cos, args.rotary_sin, layer.head_dim - offset, device, &call->rotary));
  KVC_TRY(IndexTensor::read(args.positions, {"positions", device, call->slots.size()}, &call->positions));
  if (call->rotary.given() != call->positions.given()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and %s is not",
                         call->rotary.given() ? "rotary_cos" : "positions",
                         call->rotary.given() ? "positions" : "rotary_cos");
  }
  if (!call->rotary.given()) return Status();
  if (call->positions.on_host() != call->slots.on_host()) {
    return Status::error(KVC_ERROR_DEVICE, "slot_mapping is on the %s, and positions on the %s: both on one of them",
                         call->slots.on_host() ? "host" : "device", call->positions.on_host() ? "host" : "device");
  }
  if (!is_float_dtype(call->k.dtype)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "rotary_cos with float8 k: rotate before quantising");
  }
  layer.rope_class = 0;
  layer.rope_dim = call->rotary.rotary_dim();
  layer.rope_offset = offset;
  layer.rope_interleaved = (args.flags & KVC_APPEND_SLOTS_ROTARY_INTERLEAVED) != 0;
  return Status();
}

// Reads the latent part of MLA rows, and describes these rows in the layer: the leading dims of K are V.
Status read_latent(const kvc_append_slots_args& args, DLDevice device, AppendSlotsCall* call) {
  kvc_backend_layer& layer = call->cache.layer;
  static constexpr int64_t kAny[3] = {-1, -1, -1};
  TensorView latent;
  KVC_TRY(check_tensor(args.v, {"v", device, 3, kAny, "[tokens, 1, latent dims]"}, &latent));
  const int64_t latent_dims = latent.shape[2];
  if (layer.num_kv_heads != 1 || latent_dims < 1 || latent_dims >= layer.head_dim) {
    return Status::error(KVC_ERROR_SHAPE,
                         "v_cache is NULL, and v has %" PRId64
                         " dims: not the latent part of a k_cache of %d heads of "
                         "%d dims",
                         latent_dims, layer.num_kv_heads, layer.head_dim);
  }
  if (args.v_scale != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "v_scale is given, and v_cache is NULL: k_scale scales whole rows");
  }
  layer.v_head_dim = static_cast<int32_t>(latent_dims);
  layer.row_kind = KVC_BACKEND_ROW_LATENT;
  layer.v = layer.k;
  layer.v.row_bytes = kernels::row_bytes(layer.format.v, layer.v_head_dim);
  return Status();
}

Status read_call(const kvc_append_slots_args& args, DLDevice device, AppendSlotsCall* call) {
  if ((args.flags & ~uint32_t{KVC_APPEND_SLOTS_ROTARY_INTERLEAVED}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  if (args.slot_mapping == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "slot_mapping is NULL");
  KVC_TRY(IndexTensor::read(args.slot_mapping, {"slot_mapping", device}, &call->slots));
  // A slot_mapping with stride 0 can give any number of tokens with one element. Each token takes memory in this call,
  // so the number of tokens is limited.
  if (call->slots.size() > kMaxTokens) {
    return Status::error(KVC_ERROR_SHAPE, "slot_mapping has %" PRId64 " tokens, more than %" PRId64, call->slots.size(),
                         kMaxTokens);
  }
  KVC_TRY(ForeignCache::read(args.k_cache, args.v_cache, true, device, &call->cache));
  call->latent = args.v_cache == nullptr;
  if (call->latent) KVC_TRY(read_latent(args, device, call));
  kvc_backend_layer& layer = call->cache.layer;
  const int64_t tokens = call->slots.size(), k_dims = layer.head_dim - (call->latent ? layer.v_head_dim : 0);
  const DLDataType stored = call->latent ? DLDataType{kDLFloat, 32, 1} : kernels::stored_dtype(layer);
  KVC_TRY(read_rows(args.k, "k", tokens, layer.num_kv_heads, k_dims, stored, device, &call->k));
  KVC_TRY(read_rows(args.v, "v", tokens, layer.num_kv_heads, layer.v_head_dim, stored, device, &call->v));
  KVC_TRY(read_scale(args.k_scale, "k_scale", layer, device, &call->k_scale, &layer.k_scales));
  KVC_TRY(read_scale(args.v_scale, "v_scale", layer, device, &call->v_scale, &layer.v_scales));
  if (call->latent) layer.v_scales = layer.k_scales;
  KVC_TRY(read_rotation(args, device, call));
  const auto given = [](const TensorView& t) { return t.rank != 0 ? &t : nullptr; };
  const NamedTensor written[2] = {{"k_cache", &call->cache.k}, {"v_cache", given(call->cache.v)}};
  const NamedTensor read[8] = {{"k", &call->k},
                               {"v", &call->v},
                               {"slot_mapping", call->slots.tensor()},
                               {"k_scale", given(call->k_scale)},
                               {"v_scale", given(call->v_scale)},
                               {"rotary_cos", given(call->rotary.cos)},
                               {"rotary_sin", given(call->rotary.sin)},
                               {"positions", call->positions.tensor()}};
  return check_overlaps(written, 2, read, 8);
}

// Reads and checks slots and positions that are on the host.
Status check_values(const AppendSlotsCall& call, StatelessScratch* scratch) {
  const int64_t tokens = call.slots.size(), most = call.cache.layer.num_pages * call.cache.layer.page_size;
  scratch->slots.resize(static_cast<size_t>(tokens));
  scratch->rotations.assign(call.rotary.given() ? static_cast<size_t>(tokens) : 0, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t slot = call.slots[t];
    if (slot >= most) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE,
                           "slot_mapping[%" PRId64 "] is %" PRId64 "; k_cache has %" PRId64 " slots", t, slot, most)
          .at(t);
    }
    scratch->slots[static_cast<size_t>(t)] = slot;
    if (!call.rotary.given() || slot < 0) continue;
    const int64_t position = call.positions[t];
    if (position < 0 || position >= call.rotary.positions()) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE,
                           "positions[%" PRId64 "] is %" PRId64 "; rotary_cos has %" PRId64 " positions", t, position,
                           call.rotary.positions())
          .at(t);
    }
    scratch->rotations[static_cast<size_t>(t)] = static_cast<int32_t>(position);
  }
  return Status();
}

}  // namespace

Status append_slots(const std::shared_ptr<Context>& context, StatelessScratch& scratch,
                    const kvc_append_slots_args& args, void* stream) {
  KVC_TRY(context->check_stream(stream));
  AppendSlotsCall call;
  KVC_TRY(read_call(args, context->dl_device(), &call));
  kvc_error error = KVC_ERROR_INIT;
  const kvc_backend& backend = context->backend();
  KVC_TRY(Status::from(backend.check_layer(context->device(), &call.cache.layer, &error), error));
  const int64_t tokens = call.slots.size();
  kvc_backend_append append = {};
  append.layer = &call.cache.layer;
  append.num_tokens = tokens;
  append.k = rows_of(call.k);
  append.v = rows_of(call.v);
  const bool on_host = call.slots.on_host();
  if (on_host) {
    KVC_TRY(check_values(call, &scratch));
  } else {
    append.device_slots = call.slots.on_device();
    if (call.rotary.given()) {
      append.device_positions = call.positions.on_device();
      append.num_positions = call.rotary.positions();
    }
  }
  if (tokens == 0) return Status();
  CallMemory memory(context, stream);
  StagedCall staged(*context, stream);
  const int32_t* rotations = nullptr;
  if (on_host) {
    kvc_backend_array arrays[] = {array_of(scratch.slots.data(), tokens),
                                  array_of(scratch.rotations.data(), static_cast<int64_t>(scratch.rotations.size()))};
    KVC_TRY(staged.begin(arrays, nullptr));
    append.step = staged.step();
    append.slots = for_backend<int64_t>(arrays[0]);
    rotations = for_backend<int32_t>(arrays[1]);
  }
  if (call.rotary.given()) {
    const int64_t floats = call.rotary.cos_sin_floats(tokens);
    KVC_TRY(memory.take(scratch, CallMemory::bytes_of<float>(floats)));
    float* const cos_sin = memory.next<float>(floats);
    append.cos_sin = cos_sin;
    KVC_TRY(on_host ? call.rotary.rows_at(*context, rotations, tokens, staged.step(), stream, cos_sin)
                    : call.rotary.rows_at(*context, call.positions.on_device(), tokens, stream, cos_sin));
  }
  KVC_TRY(Status::from(backend.append(context->device(), &append, stream, &error), error));
  return staged.end();
}

}  // namespace kvc
