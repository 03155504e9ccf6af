// One call of kvc_flash_attn_with_kvcache: its tensors, made from a setting, and its expected results. These follow the
// header alone: the token of each slot, what each query sees, and what is stored.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "wrappers.h"

namespace kvt {

enum class New { kNone, kEqual, kShorter, kLonger, kRagged };
enum class Pad { kNone, kLeft };
enum class Rows { kOwn, kPermuted, kTwice };
enum class Qv { kNone, kOneBuffer, kApart };

struct FlashSetting {
  DType q = DType::kF32, kv = DType::kF32, fresh = DType::kF32, out = DType::kF32;
  int rows = 3, hq = 6, hkv = 3, d = 64, dv = 64;
  int sq = 1, sk = 128;  // of row 0; other rows have fewer keys
  bool ragged_q = false;
  int page = 0;  // 0: contiguous
  bool hnd = false;
  uint32_t flags = 0;  // KVC_FLASH_ATTN_*
  int window_left = 0, window_right = 0, chunk = 0;
  double softcap = 0, scale = 0;
  int alibi = 0;  // 1: [Hq], 2: [B, Hq]
  bool sinks = false, descale = false;
  Pad pad = Pad::kNone;
  Rows which = Rows::kOwn;
  New append = New::kNone;
  int rotary_dim = 0;
  int splits = 0;
  Qv qv = Qv::kNone;
  bool scalar_lengths = false;
  uint32_t seed = 1;
};

std::string describe(const FlashSetting &setting);

class FlashCall {
 public:
  explicit FlashCall(const FlashSetting &setting);

  kvc_flash_attn_args args();
  // Makes the call, and compares all bytes of the cache, and the outputs of some or all queries and heads.
  void run_and_check(kvc_context *context, bool all = false);

  const FlashSetting setting;
  Array q, qv, k, v, k_cache, v_cache, joint, out, lse, cos, sin, alibi, sinks, q_descale, k_descale, v_descale;
  Indexes<> lengths, cache_rows, pads, table, cu_q, cu_new;

  int64_t new_tokens(int row) const {
    return cu_new.values[static_cast<size_t>(row) + 1] - cu_new.values[static_cast<size_t>(row)];
  }
  int64_t queries(int row) const {
    return cu_q.values[static_cast<size_t>(row) + 1] - cu_q.values[static_cast<size_t>(row)];
  }
  int64_t cached(int row) const { return lengths.values[setting.scalar_lengths ? 0 : static_cast<size_t>(row)]; }
  int64_t length(int row) const { return cached(row) + new_tokens(row); }
  int64_t pad(int row) const { return setting.pad == Pad::kNone ? 0 : pads.values[static_cast<size_t>(row)]; }
  // {page, slot} of a row's key.
  Index place(int row, int64_t key) const;
  bool sees(int row, int64_t query, int64_t key) const;
  void set_key(int row, int64_t key, int head, const std::vector<float> &k_row, const std::vector<float> &v_row);

 private:
  void make_lengths(std::mt19937 *random);
  void make_cache(std::mt19937 *random);
  void make_tokens(std::mt19937 *random);
  void store_expected(Array *k_expected, Array *v_expected) const;
  std::vector<float> query_of(int row, int64_t query, int head) const;
  void check_query(int row, int64_t query, int head) const;
  Index token(int row, int64_t i, int head, bool of_q) const;
  std::vector<float> rotated(std::vector<float> x, int64_t position, DType type) const;
};

}  // namespace kvt
