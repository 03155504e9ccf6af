#include "stateless/flash_attn_call.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "base/dtype_text.h"
#include "base/limits.h"
#include "kernels/common/stored_format.h"
#include "tensor/key_lists.h"
#include "tensor/tensor_overlap.h"

namespace kvc {
namespace {

constexpr int64_t kMaxRows = 1 << 20;
constexpr int32_t kMaxWindow = 1 << 30;
constexpr int32_t kMaxSplits = 256;
constexpr uint32_t kKnownFlags = KVC_FLASH_ATTN_CAUSAL | KVC_FLASH_ATTN_ROTARY_INTERLEAVED |
                                 KVC_FLASH_ATTN_WINDOW_LEFT | KVC_FLASH_ATTN_WINDOW_RIGHT | KVC_FLASH_ATTN_ALIBI_SIGNED;

Status contradiction(const char* given, const char* other) {
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and %s", given, other);
}

Status bad_dtype(const char* name, DLDataType t, const char* wanted) {
  return Status::error(KVC_ERROR_DTYPE, "%s has dtype %s, not %s", name, DtypeText(t).c_str(), wanted);
}

Status check_count(const char* what, int64_t n, int64_t most) {
  if (n <= most) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s: %" PRId64 " are more than %" PRId64, what, n, most);
}

Status check_option(double value, double smallest, const char* name) {
  if (value == 0.0 || (value >= smallest && value <= 1e30)) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %g is not 0 and not in %g..1e30", name, value, smallest);
}

Status check_number(int32_t value, int32_t most, const char* name) {
  if (value >= 0 && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %d is not in 0..%d", name, value, most);
}

// Returns the gap, in elements, between the last token of one row of the batch and the first token of the next row.
// Returns 0 if there is no gap.
int64_t row_stride_of(const TensorView& t) noexcept {
  return t.rank == 4 ? t.strides[0] - t.shape[1] * t.strides[1] : 0;
}

Status read_floats(const DLTensor* tensor, const char* name, int32_t rank, const int64_t* shape, const char* letters,
                   DLDevice device, bool dense, TensorView* out) {
  return check_tensor(tensor, {name, device, rank, shape, letters, dense, false, is_float32_dtype, "float32"}, out);
}

// Checks that an array has exactly one entry for each head.
Status check_one_each(const DLTensor& array, const char* name, int64_t heads) {
  if (array.shape[0] == heads) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s has shape [%" PRId64 "], not [heads] = [%" PRId64 "]", name, array.shape[0],
                       heads);
}

bool is_query_dtype(DLDataType dtype) { return is_float_dtype(dtype) || is_float8_dtype(dtype); }

}  // namespace

// Checks rows of tokens, which are batched or ragged like q.
Status FlashAttnCall::check_tokens(const DLTensor* tensor, const char* name, int64_t dims, bool written,
                                   TensorView* view) const {
  const int64_t heads = layer.num_q_heads;
  const int64_t batched[4] = {rows, row_queries, heads, dims}, ragged[3] = {tokens_, heads, dims};
  const bool is_ragged = row_queries < 0;
  return check_tensor(tensor,
                      {name, device_, is_ragged ? 3 : 4, is_ragged ? ragged : batched,
                       is_ragged ? "[tokens, heads, dims]" : "[rows, queries, heads, dims]", true, written,
                       written ? is_float_dtype : is_query_dtype,
                       written ? "float32, float16 or bfloat16" : "float32, float16, bfloat16 or float8"},
                      view);
}

Status FlashAttnCall::read_cache(const kvc_flash_attn_args& args) {
  appends = args.k != nullptr;
  if (appends != (args.v != nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL and %s is not: give both or neither", appends ? "v" : "k",
                         appends ? "k" : "v");
  }
  if (args.v_cache == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "v_cache is NULL");
  KVC_TRY(ForeignCache::read(args.k_cache, args.v_cache, appends, device_, &cache));
  capacity = std::min<int64_t>(cache.layer.page_size, kMaxLength);
  if (args.block_table == nullptr) return Status();
  KVC_TRY(IndexTable::read(args.block_table, {"block_table", device_}, "[rows, max_pages]", true, &block_table));
  capacity = std::min(cache.layer.page_size * std::min(block_table.num_columns(), kMaxLength), kMaxLength);
  return Status();
}

Status FlashAttnCall::read_queries(const kvc_flash_attn_args& args) {
  static constexpr int64_t kAny[4] = {-1, -1, -1, -1};
  const bool ragged = args.cu_seqlens_q != nullptr;
  KVC_TRY(check_tensor(
      args.q,
      {"q", device_, ragged ? 3 : 4, kAny, ragged ? "[tokens, heads, dims]" : "[rows, queries, heads, dims]", true,
       false, is_query_dtype, "float32, float16, bfloat16 or float8"},
      &q));
  const int64_t *shape = q.shape, heads = shape[q.rank - 2], dims = shape[q.rank - 1], kv_heads = layer.num_kv_heads;
  if (dims != layer.head_dim) {
    return Status::error(KVC_ERROR_SHAPE, "q has %" PRId64 " dims, k_cache %d", dims, layer.head_dim);
  }
  if (heads < 1 || heads > 65536 || heads % kv_heads != 0) {
    return Status::error(KVC_ERROR_SHAPE, "q has %" PRId64 " heads, which is no multiple of k_cache's %" PRId64, heads,
                         kv_heads);
  }
  layer.num_q_heads = static_cast<int32_t>(heads);
  KVC_TRY(IndexTensor::read(args.cu_seqlens_q, {"cu_seqlens_q", device_}, &cu_seqlens_q));
  if (ragged && cu_seqlens_q.size() < 1) return Status::error(KVC_ERROR_SHAPE, "cu_seqlens_q is empty, not [rows + 1]");
  rows = ragged ? cu_seqlens_q.size() - 1 : shape[0];
  row_queries = ragged ? -1 : shape[1];
  KVC_TRY(check_count("rows", rows, kMaxRows));
  KVC_TRY(check_count("queries",
                      ragged      ? shape[0]
                      : rows == 0 ? 0
                                  : row_queries,
                      kMaxLength / std::max<int64_t>(rows, 1)));
  tokens_ = ragged ? shape[0] : rows * row_queries;
  attend.q = rows_of(q);
  attend.q_row_stride = row_stride_of(q);
  if (args.qv == nullptr) return Status();
  KVC_TRY(check_tokens(args.qv, "qv", layer.v_head_dim, false, &qv));
  if (!same_dtype(qv.dtype, q.dtype)) return bad_dtype("qv", qv.dtype, "that of q");
  attend.qv = rows_of(qv);
  attend.qv_row_stride = row_stride_of(qv);
  return Status();
}

Status FlashAttnCall::read_new(const kvc_flash_attn_args& args) {
  if (!appends) {
    if (args.rotary_cos != nullptr || args.rotary_sin != nullptr) return contradiction("rotary_cos", "k is not");
    return Status();  // rotary_seqlens is ignored, as in FlashAttention 3
  }
  const bool ragged = args.cu_seqlens_k_new != nullptr;
  KVC_TRY(IndexTensor::read(args.cu_seqlens_k_new, {"cu_seqlens_k_new", device_, rows + 1}, &cu_seqlens_k_new));
  const auto read = [&](const DLTensor* tensor, const char* name, int64_t tokens, int64_t dims, TensorView* view) {
    const int64_t heads = cache.layer.num_kv_heads;
    const int64_t batched[4] = {rows, tokens, heads, dims}, packed[3] = {tokens, heads, dims};
    KVC_TRY(check_tensor(tensor,
                         {name, device_, ragged ? 3 : 4, ragged ? packed : batched,
                          ragged ? "[tokens, heads, dims]" : "[rows, tokens, heads, dims]", true, false, is_float_dtype,
                          "float32, float16, bfloat16 or that of the cache", kernels::stored_dtype(cache.layer)},
                         view));
    return Status();
  };
  KVC_TRY(read(args.k, "k", -1, cache.layer.head_dim, &k));
  KVC_TRY(read(args.v, "v", k.shape[ragged ? 0 : 1], cache.layer.v_head_dim, &v));
  row_new = ragged ? -1 : k.shape[1];
  KVC_TRY(check_count("new tokens", ragged ? k.shape[0] : row_new, kMaxLength / std::max<int64_t>(rows, 1)));
  KVC_TRY(RotaryTables::read(args.rotary_cos, args.rotary_sin, cache.layer.head_dim, device_, &rotary));
  if (!rotary.given()) return Status();  // rotary_seqlens is ignored
  KVC_TRY(IndexTensor::read(args.rotary_seqlens, {"rotary_seqlens", device_, rows, true}, &rotary_seqlens));
  if (!is_float_dtype(q.dtype) || !is_float_dtype(k.dtype)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "rotary_cos with float8 %s: rotate before quantising",
                         is_float_dtype(q.dtype) ? "k" : "q");
  }
  const auto set_rotation = [&](kvc_backend_layer* target, int32_t offset) {
    target->rope_class = 0;
    target->rope_dim = rotary.rotary_dim();
    target->rope_offset = offset;
    target->rope_interleaved = (args.flags & KVC_FLASH_ATTN_ROTARY_INTERLEAVED) != 0;
  };
  set_rotation(&cache.layer, 0);
  set_rotation(&layer, qv.rank != 0 ? cache.layer.v_head_dim : 0);
  return Status();
}

Status FlashAttnCall::read_indexes(const kvc_flash_attn_args& args) {
  if (args.cache_seqlens != nullptr && args.seqused_k != nullptr) {
    return contradiction("cache_seqlens", "so is seqused_k, its other name");
  }
  const bool other_name = args.cache_seqlens == nullptr && args.seqused_k != nullptr;
  KVC_TRY(IndexTensor::read(other_name ? args.seqused_k : args.cache_seqlens,
                            {other_name ? "seqused_k" : "cache_seqlens", device_, rows, true}, &cache_seqlens));
  if (appends && !cache_seqlens.given()) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "cache_seqlens is NULL, and k is given: it says where k is appended");
  }
  KVC_TRY(IndexTensor::read(args.cache_batch_idx, {"cache_batch_idx", device_, rows}, &batch_idx));
  KVC_TRY(IndexTensor::read(args.cache_leftpad, {"cache_leftpad", device_, rows, true}, &leftpad));
  const int64_t cache_rows = paged() ? block_table.num_rows() : cache.layer.num_pages;
  if (batch_idx.given() || cache_rows >= rows || args.indices != nullptr) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " rows, and q %" PRId64, paged() ? "block_table" : "k_cache",
                       cache_rows, rows);
}

Status FlashAttnCall::read_outputs(const kvc_flash_attn_args& args) {
  KVC_TRY(check_tokens(args.out, "out", layer.v_head_dim, true, &out));
  attend.out = rows_of(out);
  attend.out_row_stride = row_stride_of(out);
  if (args.softmax_lse == nullptr) return Status();
  const bool ragged = row_queries < 0;
  const int64_t batched[3] = {rows, layer.num_q_heads, row_queries}, packed[2] = {layer.num_q_heads, tokens_};
  KVC_TRY(
      check_tensor(args.softmax_lse,
                   {"softmax_lse", device_, ragged ? 2 : 3, ragged ? packed : batched,
                    ragged ? "[heads, tokens]" : "[rows, heads, queries]", false, true, is_float32_dtype, "float32"},
                   &lse));
  attend.lse = reinterpret_cast<float*>(lse.data);
  attend.lse_token_stride = lse.strides[lse.rank - 1];
  attend.lse_head_stride = lse.strides[lse.rank - 2];
  attend.lse_row_stride = ragged ? 0 : lse.strides[0] - row_queries * lse.strides[2];
  return Status();
}

Status FlashAttnCall::read_scales(const kvc_flash_attn_args& args) {
  const auto read = [&](const DLTensor* tensor, const char* name, DLDataType scaled, TensorView* view,
                        kvc_backend_row_scales* scales) {
    if (tensor == nullptr) return Status();
    if (!is_float8_dtype(scaled)) return contradiction(name, "what it scales is not float8");
    const int64_t shape[2] = {rows, layer.num_kv_heads};
    KVC_TRY(read_floats(tensor, name, 2, shape, "[rows, kv heads]", device_, false, view));
    *scales = {reinterpret_cast<const float*>(view->data), view->strides[0], view->strides[1]};
    return Status();
  };
  KVC_TRY(read(args.q_descale, "q_descale", q.dtype, &q_descale, &attend.q_scales));
  KVC_TRY(read(args.k_descale, "k_descale", kernels::stored_dtype(layer), &k_descale, &attend.k_scales));
  KVC_TRY(read(args.v_descale, "v_descale", kernels::stored_dtype(layer), &v_descale, &attend.v_scales));
  unlike_scales = appends && (args.k_descale != nullptr || args.v_descale != nullptr);
  if (qv.rank == 0 || (args.k_descale == nullptr && args.v_descale == nullptr)) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "qv with k_descale or v_descale: a score has parts of unlike scales");
}

Status FlashAttnCall::read_options(const kvc_flash_attn_args& args) {
  if ((args.flags & ~kKnownFlags) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  KVC_TRY(check_option(args.softmax_scale, 1e-30, "softmax_scale"));
  KVC_TRY(check_option(args.softcap, 1e-6, "softcap"));
  KVC_TRY(check_number(args.window_left, INT32_MAX, "window_left"));
  KVC_TRY(check_number(args.window_right, INT32_MAX, "window_right"));
  KVC_TRY(check_number(args.attention_chunk, INT32_MAX, "attention_chunk"));
  KVC_TRY(check_number(args.num_splits, kMaxSplits, "num_splits"));
  causal = (args.flags & KVC_FLASH_ATTN_CAUSAL) != 0;
  const auto flag_of = [&](uint32_t flag, int32_t value, const char* name) {
    return (args.flags & flag) != 0 || value == 0 ? Status() : contradiction(name, "its flag is not");
  };
  KVC_TRY(flag_of(KVC_FLASH_ATTN_WINDOW_LEFT, args.window_left, "window_left"));
  KVC_TRY(flag_of(KVC_FLASH_ATTN_WINDOW_RIGHT, args.window_right, "window_right"));
  if ((args.flags & KVC_FLASH_ATTN_WINDOW_LEFT) != 0)
    layer.window_tokens = std::min(args.window_left, kMaxWindow - 1) + 1;
  if ((args.flags & KVC_FLASH_ATTN_WINDOW_RIGHT) != 0) window_right = std::min(args.window_right, kMaxWindow);
  if (causal) window_right = 0;
  if (window_right < 0) flags |= KVC_ATTEND_NON_CAUSAL;
  if ((args.flags & KVC_FLASH_ATTN_ALIBI_SIGNED) != 0) flags |= KVC_ATTEND_ALIBI_SIGNED;
  layer.chunk_tokens = std::min(args.attention_chunk, kMaxWindow);
  num_splits = args.num_splits;
  attend.softmax_scale = args.softmax_scale != 0.0 ? args.softmax_scale : 1.0 / std::sqrt(layer.head_dim);
  attend.softcap = args.softcap;
  const int64_t shape[2] = {rows, layer.num_q_heads};
  if (args.alibi_slopes != nullptr) {
    const int32_t rank = args.alibi_slopes->ndim == 2 ? 2 : 1;
    KVC_TRY(read_floats(args.alibi_slopes, "alibi_slopes", rank, shape + 2 - rank,
                        rank == 2 ? "[rows, heads]" : "[heads]", device_, true, &alibi_slopes));
    if (rank == 1) KVC_TRY(check_one_each(*args.alibi_slopes, "alibi_slopes", layer.num_q_heads));
    attend.alibi_slopes = reinterpret_cast<const float*>(alibi_slopes.data);
    attend.alibi_row_stride = rank == 2 ? alibi_slopes.strides[0] : 0;
  }
  if (args.sinks == nullptr) return Status();
  KVC_TRY(check_tensor(
      args.sinks,
      {"sinks", device_, 1, shape + 1, "[heads]", true, false, is_float_dtype, "float32, float16 or bfloat16"},
      &sinks));
  KVC_TRY(check_one_each(*args.sinks, "sinks", layer.num_q_heads));
  if (sinks.dtype.bits == 32) attend.sinks = reinterpret_cast<const float*>(sinks.data);
  return Status();
}

Status FlashAttnCall::read_lists(const kvc_flash_attn_args& args, const kvc_backend& backend) {
  if (args.indices == nullptr) return Status();
  KVC_TRY(check_attends_lists(backend));
  const struct {
    bool given;
    const char* name;
  } needs_positions[] = {{args.k != nullptr, "k"},
                         {args.block_table != nullptr, "block_table"},
                         {args.cache_seqlens != nullptr, "cache_seqlens"},
                         {args.seqused_k != nullptr, "seqused_k"},
                         {args.cache_batch_idx != nullptr, "cache_batch_idx"},
                         {args.cache_leftpad != nullptr, "cache_leftpad"},
                         {args.alibi_slopes != nullptr, "alibi_slopes"},
                         {args.attention_chunk != 0, "attention_chunk"},
                         {(args.flags & KVC_FLASH_ATTN_CAUSAL) != 0, "causal"},
                         {(args.flags & KVC_FLASH_ATTN_WINDOW_LEFT) != 0, "window_left"},
                         {(args.flags & KVC_FLASH_ATTN_WINDOW_RIGHT) != 0, "window_right"}};
  for (const auto& option : needs_positions) {
    if (option.given) return contradiction(option.name, "indices lists slots, which have no positions");
  }
  const bool ragged = row_queries < 0;
  const int64_t batched[4] = {rows, row_queries, -1, -1}, packed[3] = {tokens_, -1, -1};
  KVC_TRY(read_key_lists(args.indices,
                         {"indices", device_, ragged ? 3 : 4, ragged ? packed : batched,
                          ragged ? "[tokens, 1 or kv heads, entries]" : "[rows, queries, 1 or kv heads, entries]"},
                         layer.num_kv_heads, 1, &indices, &attend.lists));
  attend.lists.physical = 1;
  capacity = attend.lists.num_entries;
  // If no lengths are on the host, the device makes the plan, so that the call can be recorded.
  indexes_on_device = !host_reads_lists() && !(cu_seqlens_q.given() && cu_seqlens_q.on_host());
  return Status();
}

// Index tensors must be all on the host, or all on the device. Single numbers may be on the host in either case.
Status FlashAttnCall::check_index_devices() {
  const char *host = nullptr, *device = nullptr;
  const auto place = [&](const char* name, bool on_host) { (on_host ? host : device) = name; };
  if (paged()) place("block_table", block_table.on_host());
  for (const IndexTensor* index :
       {&cache_seqlens, &batch_idx, &leftpad, &rotary_seqlens, &cu_seqlens_q, &cu_seqlens_k_new}) {
    if (index->given() && !index->constant()) place(index->name(), index->on_host());
  }
  indexes_on_device = device != nullptr;
  if (host == nullptr || device == nullptr) return Status();
  return Status::error(KVC_ERROR_DEVICE, "%s is on the host and %s on the device: put all index tensors on one of them",
                       host, device);
}

Status FlashAttnCall::check_disjoint() const {
  const auto given = [](const TensorView& t) { return t.rank != 0 ? &t : nullptr; };
  const NamedTensor written[4] = {{"out", &out},
                                  {"softmax_lse", given(lse)},
                                  {"k_cache", appends ? &cache.k : nullptr},
                                  {"v_cache", appends ? &cache.v : nullptr}};
  const NamedTensor read[] = {{"q", &q},
                              {"qv", given(qv)},
                              {"k", given(k)},
                              {"v", given(v)},
                              {"k_cache", appends ? nullptr : &cache.k},
                              {"v_cache", appends ? nullptr : &cache.v},
                              {"rotary_cos", given(rotary.cos)},
                              {"rotary_sin", given(rotary.sin)},
                              {"block_table", block_table.tensor()},
                              {"q_descale", given(q_descale)},
                              {"k_descale", given(k_descale)},
                              {"v_descale", given(v_descale)},
                              {"alibi_slopes", given(alibi_slopes)},
                              {"sinks", given(sinks)},
                              {"indices", given(indices)},
                              {cache_seqlens.name(), cache_seqlens.tensor()},
                              {batch_idx.name(), batch_idx.tensor()},
                              {leftpad.name(), leftpad.tensor()},
                              {rotary_seqlens.name(), rotary_seqlens.tensor()},
                              {cu_seqlens_q.name(), cu_seqlens_q.tensor()},
                              {cu_seqlens_k_new.name(), cu_seqlens_k_new.tensor()}};
  return check_overlaps(written, 4, read, static_cast<int>(sizeof read / sizeof read[0]));
}

Status FlashAttnCall::read(const kvc_flash_attn_args& args, const Context& context, FlashAttnCall* out) {
  FlashAttnCall& call = *out;
  call.device_ = context.dl_device();
  KVC_TRY(call.read_cache(args));
  call.layer = call.cache.layer;
  KVC_TRY(call.read_queries(args));
  KVC_TRY(call.read_new(args));
  if (call.qv.rank != 0) {
    kvc_backend_layer& layer = call.layer;
    const TensorView &k = call.cache.k, &v = call.cache.v;
    layer.head_dim += layer.v_head_dim;
    bool one_row = layer.num_kv_heads == 1 && k.data == v.data + layer.v.row_bytes;
    for (int dim = 0; dim < 2; ++dim) one_row = one_row && (k.shape[dim] <= 1 || k.strides[dim] == v.strides[dim]);
    layer.row_kind = one_row ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_LATENT_SPLIT;
    const int64_t k_row_bytes = layer.k.row_bytes;
    if (one_row) layer.k = layer.v, layer.k.row_bytes += k_row_bytes;
  }
  KVC_TRY(call.read_indexes(args));
  KVC_TRY(call.check_index_devices());
  KVC_TRY(call.read_outputs(args));
  KVC_TRY(call.read_options(args));
  KVC_TRY(call.read_scales(args));
  KVC_TRY(call.read_lists(args, context.backend()));
  KVC_TRY(call.check_disjoint());
  call.layer.softmax_scale = static_cast<float>(call.attend.softmax_scale);
  call.attend.layer = &call.layer;
  kvc_error error = KVC_ERROR_INIT;
  for (const kvc_backend_layer* layer : {&call.cache.layer, &call.layer}) {
    KVC_TRY(Status::from(context.backend().check_layer(context.device(), layer, &error), error));
  }
  return Status();
}

}  // namespace kvc
