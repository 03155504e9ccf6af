#include "group_query_attention.h"

#include <algorithm>
#include <cstring>

namespace kvc_ort {
namespace {

enum Input { kQuery, kKey, kValue, kPastKey, kPastValue, kSeqlens, kTotalLength, kCos, kSin, kSink = 11 };
enum Output { kOut, kPresentKey, kPresentValue };

}  // namespace

// One call's tensors and sizes.
struct GroupQueryAttention::Call {
  Operand query, key, value, past_key, past_value, seqlens, total, cos, sin, sink;
  Operand out, present_key, present_value;
  bool packed = false;  // query has Q, K and V of each token
  int64_t batch = 0, tokens = 0, dims = 0, past_room = 0, present_room = 0;
  std::vector<int32_t> cached;  // [batch]: tokens of each row before the new ones
};

GroupQueryAttention::GroupQueryAttention(const OrtKernelInfo* info)
    : Kernel(info), heads_(info), smooth_(int_attribute(info, "smooth_softmax", 0) == 1) {
  if (smooth_) zero_sinks_.resize(static_cast<size_t>(heads_.q_heads));
}

// Reads and checks the inputs. The library checks the rest.
void GroupQueryAttention::read(const OrtKernelContext* run, Call* call) const {
  call->query = input(run, kQuery);
  call->key = input(run, kKey);
  call->value = input(run, kValue);
  call->past_key = input(run, kPastKey);
  call->past_value = input(run, kPastValue);
  call->seqlens = input(run, kSeqlens);
  call->total = input(run, kTotalLength);
  call->cos = input(run, kCos);
  call->sin = input(run, kSin);
  call->sink = input(run, kSink);
  expect_rank(call->query, 3, "query");
  call->batch = call->query.dim(0);
  call->tokens = call->query.dim(1);
  call->packed = !call->key;
  const int64_t heads = heads_.q_heads + (call->packed ? 2 * heads_.kv_heads : 0);
  if (call->query.dim(2) % heads != 0) {
    refuse("query has shape " + call->query.text() + ", but its last dimension must be a multiple of " +
           std::to_string(heads) + " heads");
  }
  call->dims = call->query.dim(2) / heads;
  const std::vector<int64_t> of_new = {call->batch, call->tokens, heads_.kv_heads * call->dims};
  for (const Operand* operand : {&call->key, &call->value}) {
    if (call->packed ? static_cast<bool>(*operand) : operand->shape != of_new) {
      refuse("key and value have shapes " + call->key.text() + " and " + call->value.text() + ", but query is " +
             call->query.text());
    }
  }
  if (call->past_key) {
    expect_rank(call->past_key, 4, "past_key");
    call->past_room = call->past_key.dim(2);
    const std::vector<int64_t> of_past = {call->batch, heads_.kv_heads, call->past_room, call->dims};
    if (call->past_key.shape != of_past || call->past_value.shape != of_past) {
      refuse("past_key and past_value have shapes " + call->past_key.text() + " and " + call->past_value.text() +
             ", but query is " + call->query.text() + " with " + std::to_string(heads_.kv_heads) + " heads of " +
             std::to_string(call->dims));
    }
  }
  int64_t count = 1;
  for (const int64_t dim : call->seqlens.shape) count *= dim;
  if (count != call->batch)
    refuse("seqlens_k has shape " + call->seqlens.text() + ", but there are " + std::to_string(call->batch) + " rows");
  if (std::any_of(call->total.shape.begin(), call->total.shape.end(), [](int64_t dim) { return dim != 1; })) {
    refuse("total_sequence_length has shape " + call->total.text() + ", but must be one number");
  }
  const int64_t total = *static_cast<const int32_t*>(call->total.data);
  const int32_t* seqlens = static_cast<const int32_t*>(call->seqlens.data);
  call->present_room = std::max(call->past_room, total);
  call->cached.resize(static_cast<size_t>(call->batch));
  for (int64_t row = 0; row < call->batch; row++) {
    const int64_t length = int64_t{seqlens[row]} + 1;  // with the new tokens; padding follows them
    const int64_t cached = std::max<int64_t>(length - call->tokens, 0);
    if (length < 1 || length > total || cached > call->past_room) {
      refuse("seqlens_k[" + std::to_string(row) + "] is " + std::to_string(length - 1) +
             ", but total_sequence_length is " + std::to_string(total) + " and past_key has room for " +
             std::to_string(call->past_room) + " tokens");
    }
    call->cached[static_cast<size_t>(row)] = static_cast<int32_t>(cached);
  }
}

// Fills the present's rows with the past, and with zeros after the new tokens.
void GroupQueryAttention::copy_past(const OrtKernelContext* run, const Call& call) const {
  const int64_t row_bytes = call.dims * static_cast<int64_t>(element_bytes(call.query.type));
  const auto copy = [&](const Operand& past, const Operand& present, int64_t head, int64_t cached) {
    char* to = static_cast<char*>(const_cast<void*>(present.data)) + head * call.present_room * row_bytes;
    if (cached > 0) {
      std::memcpy(to, static_cast<const char*>(past.data) + head * call.past_room * row_bytes,
                  static_cast<size_t>(cached * row_bytes));
    }
    const int64_t used = std::min(cached + call.tokens, call.present_room);
    std::memset(to + used * row_bytes, 0, static_cast<size_t>((call.present_room - used) * row_bytes));
  };
  const bool shared_key = call.past_key.data == call.present_key.data;
  const bool shared_value = call.past_value.data == call.present_value.data;
  if (shared_key && shared_value) return;
  parallel_for(run, call.batch * heads_.kv_heads, [&](int64_t head) {
    const int64_t cached = call.cached[static_cast<size_t>(head / heads_.kv_heads)];
    if (!shared_key) copy(call.past_key, call.present_key, head, cached);
    if (!shared_value) copy(call.past_value, call.present_value, head, cached);
  });
}

void GroupQueryAttention::compute(OrtKernelContext* run, const AttentionContext& attention) const {
  Call call;
  read(run, &call);
  const int64_t batch = call.batch, tokens = call.tokens, dims = call.dims, room = call.present_room;
  const int64_t q_heads = heads_.q_heads, kv_heads = heads_.kv_heads;
  call.out = output(run, kOut, {batch, tokens, q_heads * dims});
  call.present_key = output(run, kPresentKey, {batch, kv_heads, room, dims});
  call.present_value = output(run, kPresentValue, {batch, kv_heads, room, dims});
  copy_past(run, call);
  if (batch == 0 || tokens == 0) return;

  const int64_t token_stride = call.query.dim(2);  // of packed rows: Q, then K, then V
  const int64_t new_stride = call.packed ? token_stride : kv_heads * dims;
  const Operand& key = call.packed ? call.query : call.key;
  const Operand& value = call.packed ? call.query : call.value;
  const int64_t first_key = call.packed ? q_heads * dims : 0;
  const int64_t first_value = call.packed ? (q_heads + kv_heads) * dims : 0;
  const View q(call.query, {batch, tokens, q_heads, dims}, {tokens * token_stride, token_stride, dims, 1});
  const View k(key, {batch, tokens, kv_heads, dims}, {tokens * new_stride, new_stride, dims, 1}, first_key);
  const View v(value, {batch, tokens, kv_heads, dims}, {tokens * new_stride, new_stride, dims, 1}, first_value);
  const View out(call.out, {batch, tokens, q_heads, dims}, {tokens * q_heads * dims, q_heads * dims, dims, 1});
  const View k_cache(call.present_key, {batch, room, kv_heads, dims}, {kv_heads * room * dims, dims, room * dims, 1});
  const View v_cache(call.present_value, {batch, room, kv_heads, dims}, {kv_heads * room * dims, dims, room * dims, 1});
  const View cached(call.cached.data(), {kDLInt, 32, 1}, {batch}, {1});

  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  set_heads(heads_, &args);
  args.q = q.get();
  args.k = k.get();
  args.v = v.get();
  args.out = out.get();
  args.k_cache = k_cache.get();
  args.v_cache = v_cache.get();
  args.cache_seqlens = cached.get();
  const RotaryTable rotary(heads_, call.cos, call.sin, &args);
  const View sink =
      call.sink ? View(call.sink, {q_heads}, {1}) : View(zero_sinks_.data(), {kDLFloat, 32, 1}, {q_heads}, {1});
  if (call.sink || smooth_) args.sinks = sink.get();
  attention.attend(run, args, name());
}

}  // namespace kvc_ort
