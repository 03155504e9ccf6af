// Shared by the tests of gaps: combinations that caches commonly get wrong.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "play.h"

namespace kvt {

inline constexpr int64_t kEnd = Play::kEnd;

inline CacheSpec small_spec(int page_size, int64_t pages, int64_t window = 0, int64_t rollback = 0) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 16;
  spec.max_batch_tokens = 64;
  spec.rollback = rollback;
  spec.groups = {{0, pages}};
  spec.layers = {LayerSpec{0, 4, 2, 8}};
  if (window) {
    spec.groups.push_back({window, pages});
    spec.layers.push_back(LayerSpec{1, 3, 1, 8});
    spec.layers.push_back(LayerSpec{1, 2, 1, 6, 10, DType::kBF16, KVC_ROPE_ON_APPEND});
  }
  return spec;
}

inline testing::AssertionResult agrees(const char *, const std::string &mismatch) {
  if (mismatch.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << mismatch;
}
#define EXPECT_PLAYS(...) EXPECT_PRED_FORMAT1(agrees, mismatch_of([&] __VA_ARGS__))

}  // namespace kvt
