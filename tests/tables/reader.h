// Reads exported tables as a foreign kernel would, by the documentation of FlashAttention (block table, cache_seqlens,
// leftpad, bottom-right causality, windows) and FlashInfer (indptr, indices, last_page_len). It shares no code with the
// library.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kvcache.h"

namespace kvt {

using Slots = std::vector<int64_t>;

inline int64_t int_at(const DLTensor &t, int64_t i) {
  const char *data = static_cast<const char *>(t.data) + t.byte_offset;
  const int64_t at = i * (t.strides ? t.strides[0] : 1);
  return t.dtype.bits == 64 ? reinterpret_cast<const int64_t *>(data)[at] : reinterpret_cast<const int32_t *>(data)[at];
}
inline std::vector<int64_t> ints(const DLTensor &t) {
  std::vector<int64_t> values;
  for (int64_t i = 0; t.ndim == 1 && i < t.shape[0]; i++) values.push_back(int_at(t, i));
  return values;
}
inline int64_t int_at(const DLTensor &t, int64_t i, int64_t j) {
  const auto *data = reinterpret_cast<const int32_t *>(static_cast<const char *>(t.data) + t.byte_offset);
  return data[i * t.strides[0] + j * t.strides[1]];
}

// Whether columns [from, to) of row i, which are contiguous, all have the value. (Tables of graphs have a thousand
// columns of padding, and an expectation for each would take most of the test's time.)
inline bool all_are(int32_t value, const DLTensor &t, int64_t i, int64_t from, int64_t to) {
  if (from >= to) return true;
  const auto *data = reinterpret_cast<const int32_t *>(static_cast<const char *>(t.data) + t.byte_offset);
  const int32_t *first = data + i * t.strides[0] + from;
  const auto others = static_cast<size_t>(to - from - 1);
  return t.strides[1] == 1 && *first == value && std::memcmp(first, first + 1, others * sizeof(int32_t)) == 0;
}

// All tensors that a table may have, except for sinks.
inline std::vector<const DLTensor *> tensors(const kvc_tables &t) {
  return {&t.block_table,  &t.cache_seqlens, &t.cu_seqlens_q, &t.cu_seqlens_k,   &t.indptr,
          &t.indices,      &t.last_page_len, &t.key_starts,   &t.leftpad,        &t.batch_rows,
          &t.slot_mapping, &t.positions,     &t.last_rows,    &t.generation_word};
}

// The slots of row r up to its last key, with leftpad and hole.
inline Slots dense_row(const kvc_tables &t, int64_t r) {
  Slots slots;
  for (int64_t i = 0; i < int_at(t.cache_seqlens, r); i++) {
    slots.push_back(int_at(t.block_table, r, i / t.page_size) * t.page_size + i % t.page_size);
  }
  return slots;
}
inline Slots csr_row(const kvc_tables &t, int64_t r) {
  Slots slots;
  const int64_t begin = int_at(t.indptr, r), end = int_at(t.indptr, r + 1), last = int_at(t.last_page_len, r);
  if (begin == end) {
    EXPECT_EQ(last, 0);
  } else {
    EXPECT_GE(last, 1);
    EXPECT_LE(last, t.page_size);
  }
  for (int64_t i = begin; i < end; i++) {
    const int64_t page = int_at(t.indices, i), count = i + 1 < end ? t.page_size : last;
    for (int64_t offset = 0; offset < count; offset++) slots.push_back(page * t.page_size + offset);
  }
  return slots;
}

// The slots that each query sees: [T] lists. window: the one that the kernel gets (0 = none), for rows of several
// queries.
inline std::vector<Slots> read_tables(const kvc_tables &t, int64_t num_tokens, int64_t window) {
  std::vector<Slots> seen(static_cast<size_t>(num_tokens));
  EXPECT_EQ(int_at(t.cu_seqlens_q, 0), 0);
  EXPECT_EQ(int_at(t.cu_seqlens_k, 0), 0);
  int64_t max_q = 0, max_k = 0;
  for (int64_t r = 0; r < t.num_rows; r++) {
    const bool dense = t.block_table.ndim == 2;
    const Slots all = dense ? dense_row(t, r) : csr_row(t, r);
    if (dense && t.indptr.ndim) {
      EXPECT_EQ(csr_row(t, r), all) << "row " << r << " by its block table and by its CSR";
    }
    const int64_t leftpad = int_at(t.leftpad, r), keys = static_cast<int64_t>(all.size());
    const int64_t sinks = t.sink_tokens.ndim ? int_at(t.sink_tokens, r) : 0;
    const int64_t hole = t.hole_tokens.ndim ? int_at(t.hole_tokens, r) : 0;
    EXPECT_EQ(int_at(t.cu_seqlens_k, r + 1) - int_at(t.cu_seqlens_k, r), keys - leftpad - hole) << "row " << r;
    const int64_t begin = int_at(t.cu_seqlens_q, r), queries = int_at(t.cu_seqlens_q, r + 1) - begin;
    max_q = std::max(max_q, queries);
    max_k = std::max(max_k, keys);
    for (int64_t i = 0; i < queries; i++) {
      const int64_t end = t.causal ? keys - queries + i + 1 : keys;
      const int64_t first = window > 0 ? std::max(leftpad, end - window) : leftpad;
      for (int64_t j = 0; j < end; j++) {
        const bool sink = j < sinks, behind = j < sinks + hole;
        if (sink || (!behind && j >= first))
          seen[static_cast<size_t>(begin + i)].push_back(all[static_cast<size_t>(j)]);
      }
    }
  }
  EXPECT_EQ(int_at(t.cu_seqlens_q, t.num_rows), num_tokens);
  EXPECT_LE(max_q, t.max_seqlen_q);
  EXPECT_LE(max_k, t.max_seqlen_k);
  return seen;
}

// Attention of one query over slots whose K and V are made from `token`, in float64: output and LSE.
struct State {
  double out = 0, lse = -INFINITY;
};
template <class TokenOf>
State attend(int64_t query, const Slots &slots, TokenOf token) {
  double sum = 0, out = 0;
  for (const int64_t slot : slots) {
    const auto x = static_cast<double>(token(slot));
    const double weight = std::exp(std::sin(x * 0.7 + static_cast<double>(query)));
    sum += weight;
    out += weight * std::cos(x * 1.3);
  }
  return sum > 0 ? State{out / sum, std::log(sum)} : State{};
}
inline State merge(const State &a, const State &b) {
  if (std::isinf(a.lse)) return b;
  if (std::isinf(b.lse)) return a;
  const double most = std::max(a.lse, b.lse), x = std::exp(a.lse - most), y = std::exp(b.lse - most);
  return {(a.out * x + b.out * y) / (x + y), most + std::log(x + y)};
}

}  // namespace kvt
