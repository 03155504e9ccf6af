#include "multi_head_attention.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "key_mask.h"
#include "vectors.h"

namespace kvc_ort {
namespace {

enum Input { kQuery, kKey, kValue, kBias, kMask, kPastKey = 6, kPastValue };
enum Output { kOut, kPresentKey, kPresentValue };

// Queries of one head that one thread attends well, and how many such shares a thread needs. With fewer, the library
// may cut keys into parts, whose results must be merged.
constexpr int64_t kShareQueries = 128, kSharesOfThread = 2;

bool has_rank(const Operand& operand, size_t rank) { return operand.shape.size() == rank; }

}  // namespace

// One call's tensors.
struct MultiHeadAttention::Call {
  Operand query, key, value, bias, mask, past_key, past_value;
  Vectors q, k, v;         // what is attended: first as the inputs have it
  int64_t past = 0;        // cached tokens of each row
  std::vector<char> sums;  // q, k and v with the bias

  [[noreturn]] void refuse_shapes(int64_t heads) const {
    refuse("query, key and value have shapes " + query.text() + ", " + key.text() + " and " + value.text() +
           ", which do not fit each other and " + std::to_string(heads) + " heads");
  }
};

MultiHeadAttention::MultiHeadAttention(const OrtKernelInfo* info)
    : Kernel(info), heads_(info), causal_(int_attribute(info, "unidirectional", 0) == 1) {}

// Finds queries, keys and values in the layouts that the operator has: [B, S, heads * dims] each; Q, K and V in one
// tensor [B, S, heads, 3, dims]; K and V in one [B, L, heads, 2, dims]; K and V as [B, heads, L, dims].
void MultiHeadAttention::read(const OrtKernelContext* run, Call* call) const {
  call->query = input(run, kQuery);
  call->key = input(run, kKey);
  call->value = input(run, kValue);
  call->bias = input(run, kBias);
  call->mask = input(run, kMask);
  const Operand &query = call->query, &key = call->key, &value = call->value;
  const int64_t heads = heads_.q_heads;
  if (has_rank(query, 5) && !key && !value) {
    for (const auto& [vectors, part] : {std::pair(&call->q, 0), {&call->k, 1}, {&call->v, 2}}) {
      *vectors = tokens_first(query, heads, part, 3);
    }
  } else if (has_rank(query, 3) && has_rank(key, 5) && !value) {
    call->q = tokens_first(query, heads);
    call->k = tokens_first(key, heads, 0, 2);
    call->v = tokens_first(key, heads, 1, 2);
  } else if (has_rank(query, 3) && has_rank(key, 3) && has_rank(value, 3)) {
    call->q = tokens_first(query, heads);
    call->k = tokens_first(key, heads);
    call->v = tokens_first(value, heads);
  } else if (has_rank(query, 3) && has_rank(key, 4) && has_rank(value, 4)) {
    call->q = tokens_first(query, heads);
    call->k = heads_first(key);
    call->v = heads_first(value);
  } else {
    call->refuse_shapes(heads);
  }
  const Vectors &q = call->q, &k = call->k, &v = call->v;
  if (k.heads != heads || v.heads != heads || k.batch != q.batch || v.batch != q.batch || k.tokens != v.tokens ||
      k.dims != q.dims) {
    call->refuse_shapes(heads);
  }
  const int64_t width = heads * (q.dims + k.dims + v.dims);
  if (call->bias && call->bias.shape != std::vector<int64_t>{width}) {
    refuse("bias has shape " + call->bias.text() + ", but must be [" + std::to_string(width) + "]");
  }
}

void MultiHeadAttention::read_past(const OrtKernelContext* run, Call* call) const {
  call->past_key = input(run, kPastKey);
  call->past_value = input(run, kPastValue);
  if (!call->past_key && !call->past_value) return;
  const Vectors &k = call->k, &v = call->v;
  const bool fits = has_rank(call->past_key, 4) && !has_rank(call->key, 4);
  call->past = fits ? call->past_key.dim(2) : 0;
  const std::vector<int64_t> of_key = {k.batch, k.heads, call->past, k.dims};
  const std::vector<int64_t> of_value = {v.batch, v.heads, call->past, v.dims};
  if (!fits || call->past_key.shape != of_key || call->past_value.shape != of_value) {
    refuse("past_key and past_value have shapes " + call->past_key.text() + " and " + call->past_value.text() +
           ", but query, key and value are " + call->query.text() + ", " + call->key.text() + " and " +
           call->value.text());
  }
}

// Replaces q, k and v by their sums with the bias. Keys that are [B, heads, L, dims] are those of an earlier call, and
// complete.
void MultiHeadAttention::add_bias(const OrtKernelContext* run, Call* call) const {
  if (!call->bias) return;
  const bool complete = has_rank(call->key, 4);
  std::vector<Vectors*> parts = {&call->q};
  if (!complete) parts.insert(parts.end(), {&call->k, &call->v});
  int64_t bytes = 0;
  for (const Vectors* part : parts) bytes += part->bytes();
  call->sums.resize(static_cast<size_t>(bytes));
  const char* bias = static_cast<const char*>(call->bias.data);
  char* room = call->sums.data();
  for (Vectors* part : parts) {
    const Vectors sum = packed_like(*part, room);
    copy(run, *part, bias, sum);
    bias += part->heads * part->dims * static_cast<int64_t>(element_bytes(part->type));
    room += part->bytes();
    *part = sum;
  }
}

// If the node has a present, writes the past and the new keys there. They are attended there too.
void MultiHeadAttention::write_present(OrtKernelContext* run, Call* call) const {
  const struct {
    Output index;
    const Operand& past;
    Vectors* part;
  } sides[] = {{kPresentKey, call->past_key, &call->k}, {kPresentValue, call->past_value, &call->v}};
  for (const auto& [index, past, part] : sides) {
    const Operand present = output(run, index, {part->batch, part->heads, call->past + part->tokens, part->dims});
    if (!present) continue;
    const Vectors all = heads_first(present);
    if (call->past > 0) copy(run, heads_first(past), nullptr, all.from(0, call->past));
    copy(run, *part, nullptr, all.from(call->past, part->tokens));
    *part = all;
  }
}

void MultiHeadAttention::compute(OrtKernelContext* run, const AttentionContext& attention) const {
  Call call;
  read(run, &call);
  read_past(run, &call);
  const Operand result = output(run, kOut, {call.q.batch, call.q.tokens, heads_.q_heads * call.v.dims});
  add_bias(run, &call);
  write_present(run, &call);
  const Vectors results = tokens_first(result, heads_.q_heads);
  if (call.k.tokens == 0) std::memset(results.data, 0, static_cast<size_t>(results.bytes()));
  if (call.q.batch == 0 || call.q.tokens == 0 || call.k.tokens == 0) return;

  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  args.softmax_scale = heads_.scale;
  const int64_t shares = call.q.batch * call.q.heads * (call.q.tokens / kShareQueries);
  if (shares >= kSharesOfThread * attention.num_threads()) args.num_splits = 1;
  if (causal_) {
    // Query i sees the past and the new keys up to i. The library would align the last query with the last key.
    const int64_t seen = std::min(call.k.tokens, call.past + call.q.tokens);
    call.k.tokens = call.v.tokens = seen;
    args.flags = KVC_FLASH_ATTN_WINDOW_RIGHT;
    args.window_right = static_cast<int32_t>(call.past + call.q.tokens - seen);
  }
  KeyMask mask(call.mask, call.k);
  mask.set(&args);
  const View q = call.q.view(), out = results.view();
  const View k = mask.has_gaps() ? call.k.pages() : call.k.view();
  const View v = mask.has_gaps() ? call.v.pages() : call.v.view();
  args.q = q.get();
  args.k_cache = k.get();
  args.v_cache = v.get();
  args.out = out.get();
  attention.attend(run, args, name());
}

}  // namespace kvc_ort
