// The rows of a batch, and a small shape, for tests of WorkPlan.
#pragma once

#include <vector>

#include "plan/work_plan.h"

namespace kvc {

struct RowBatch {
  std::vector<int32_t> token_begin = {0};
  std::vector<int32_t> kv_lengths;

  void add(int32_t queries, int32_t past) {
    token_begin.push_back(token_begin.back() + queries);
    kv_lengths.push_back(queries == 0 ? 0 : past + queries);
  }
  kvc_backend_rows rows() const {
    kvc_backend_rows rows = {};
    rows.num_rows = static_cast<int32_t>(kv_lengths.size());
    rows.num_tokens = token_begin.back();
    rows.token_begin = token_begin.data();
    rows.kv_lengths = kv_lengths.data();
    return rows;
  }
};

inline WorkShape small_shape(int32_t threads, int32_t window = 0) {
  WorkShape shape;
  shape.num_q_heads = 12;
  shape.num_kv_heads = 3;
  shape.v_head_dim = 10;
  shape.visible.window = window;
  shape.tiling = {4, 8, 2, 16, 32};
  shape.num_threads = threads;
  return shape;
}

}  // namespace kvc
