#include "paged_attention.h"

#include <cstring>

namespace kvc_ort {
namespace {

enum Input {
  kQuery,
  kKey,
  kValue,
  kKeyCache,
  kValueCache,
  kCumulative,
  kPastLengths,
  kBlockTable,
  kCos,
  kSin,
  kSink = 11
};

// The cache that the call writes: the output, if the node has it, with the contents of the input.
Operand written_cache(OrtKernelContext* run, const Operand& cache, size_t output_index) {
  const Operand out = output(run, output_index, cache.shape);
  if (!out || out.data == cache.data) return cache;
  size_t bytes = element_bytes(cache.type);
  for (const int64_t dim : cache.shape) bytes *= static_cast<size_t>(dim);
  std::memcpy(const_cast<void*>(out.data), cache.data, bytes);
  return out;
}

View vector_of(const Operand& operand, const char* name) {
  expect_rank(operand, 1, name);
  return View(operand, {operand.dim(0)}, {1});
}

View rows_of_heads(const Operand& operand, int64_t heads, int64_t dims, int64_t first) {
  return View(operand, {operand.dim(0), heads, dims}, {operand.dim(1), dims, 1}, first);
}

View pages_of(const Operand& cache) {
  const std::vector<int64_t>& shape = cache.shape;
  return View(cache, {shape[0], shape[1], shape[2], shape[3]},
              {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1});
}

}  // namespace

void PagedAttention::compute(OrtKernelContext* run, const AttentionContext& attention) const {
  const Operand query = input(run, kQuery), key = input(run, kKey), value = input(run, kValue);
  const Operand key_cache = input(run, kKeyCache), value_cache = input(run, kValueCache),
                table = input(run, kBlockTable);
  const Operand sink = input(run, kSink), cos = input(run, kCos), sin = input(run, kSin);
  expect_rank(query, 2, "query");
  expect_rank(key_cache, 4, "key_cache");
  expect_rank(value_cache, 4, "value_cache");
  expect_rank(table, 2, "block_table");
  const bool packed = !key;
  const int64_t q_heads = heads_.q_heads, kv_heads = heads_.kv_heads, dims = key_cache.dim(3);
  const int64_t query_width = (q_heads + (packed ? 2 * kv_heads : 0)) * dims;
  const std::vector<int64_t> of_new = {query.dim(0), kv_heads * dims};
  if (query.dim(1) != query_width ||
      (packed ? static_cast<bool>(value) : key.shape != of_new || value.shape != of_new)) {
    refuse("query, key and value have shapes " + query.text() + ", " + key.text() + " and " + value.text() + ", but " +
           std::to_string(q_heads) + " and " + std::to_string(kv_heads) + " heads of " + std::to_string(dims) +
           " dims are needed");
  }
  const Operand result = output(run, 0, {query.dim(0), q_heads * dims});
  const Operand keys = written_cache(run, key_cache, 1), values = written_cache(run, value_cache, 2);
  if (query.dim(0) == 0) return;

  const Operand& new_keys = packed ? query : key;
  const Operand& new_values = packed ? query : value;
  const View q = rows_of_heads(query, q_heads, dims, 0);
  const View k = rows_of_heads(new_keys, kv_heads, dims, packed ? q_heads * dims : 0);
  const View v = rows_of_heads(new_values, kv_heads, dims, packed ? (q_heads + kv_heads) * dims : 0);
  const View out = rows_of_heads(result, q_heads, dims, 0);
  const View k_cache = pages_of(keys), v_cache = pages_of(values);
  const View starts = vector_of(input(run, kCumulative), "cumulative_sequence_length");
  const View lengths = vector_of(input(run, kPastLengths), "past_seqlens");
  const View pages(table, {table.dim(0), table.dim(1)}, {table.dim(1), 1});

  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  set_heads(heads_, &args);
  args.q = q.get();
  args.k = k.get();
  args.v = v.get();
  args.out = out.get();
  args.k_cache = k_cache.get();
  args.v_cache = v_cache.get();
  args.cu_seqlens_q = starts.get();
  args.cu_seqlens_k_new = starts.get();
  args.cache_seqlens = lengths.get();
  args.block_table = pages.get();
  const RotaryTable rotary(heads_, cos, sin, &args);
  std::optional<View> sinks;
  if (sink) {
    expect_rank(sink, 1, "head_sink");
    sinks.emplace(sink, std::initializer_list<int64_t>{sink.dim(0)}, std::initializer_list<int64_t>{1});
    args.sinks = sinks->get();
  }
  attention.attend(run, args, name());
}

}  // namespace kvc_ort
