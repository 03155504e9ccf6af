// Bidirectional spans (image tokens): spike probes. One key of each sequence has a logit of +30 over all others and the
// only V that is not 0, so a query's output says whether it sees that key.
#include <gtest/gtest.h>

#include <cstring>

#include "wrappers.h"

namespace kvt {
namespace {

constexpr int kPast = 7, kNew = 45, kLength = kPast + kNew, kDim = 16;

// Two adjacent spans, one of a single token and one at the end. The same id again elsewhere is another span.
std::vector<int32_t> span_ids() {
  std::vector<int32_t> ids(kNew, 0);
  std::fill(ids.begin() + 2, ids.begin() + 12, 4);
  std::fill(ids.begin() + 12, ids.begin() + 20, 9);
  ids[23] = 3;
  std::fill(ids.begin() + 30, ids.end(), 4);
  return ids;
}

// By the definition: the last position of the span of new token i.
int span_end(const std::vector<int32_t> &ids, int i) {
  int end = i;
  while (ids[i] > 0 && end + 1 < kNew && ids[end + 1] == ids[i]) end++;
  return kPast + end;
}

struct Case {
  const char *name;
  GroupSpec group;
  uint32_t flags;
};

class Spans : public testing::TestWithParam<Case> {};

TEST_P(Spans, AreSeenWhole) {
  const Case &c = GetParam();
  const std::vector<int32_t> ids = span_ids();
  for (const std::string &simd : simd_targets()) {
    CacheSpec spec;
    spec.page_size = 4;
    spec.max_sequences = kLength + 1;
    spec.max_batch_tokens = (kLength + 1) * kNew;
    spec.rollback = 64;
    spec.groups = {c.group};
    spec.groups[0].pages = 1024;
    spec.layers = {LayerSpec{0, 2, 1, kDim}};
    ContextPtr context = make_context(2, simd.c_str());
    CachePtr cache = make_cache(context.get(), spec);
    std::vector<kvc_seq> seqs(kLength);
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_seq_add(cache.get(), kLength, seqs.data(), &error), KVC_OK);
    for (const int step : {0, 1}) {
      const int start = step == 0 ? 0 : kPast, tokens = step == 0 ? kPast : kNew;
      std::vector<int32_t> lengths(kLength, tokens), all_ids;
      for (int s = 0; s < kLength; s++) all_ids.insert(all_ids.end(), ids.begin(), ids.end());
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.sequences = seqs.data();
      batch.append_lengths = lengths.data();
      batch.num_sequences = kLength;
      batch.span_ids = step == 0 ? nullptr : all_ids.data();
      kvc_forward f = 0;
      ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
      const int64_t total = int64_t{kLength} * tokens;
      Tensor q(DType::kF32, {total, 2, kDim}), k(DType::kF32, {total, 1, kDim}), v(DType::kF32, {total, 1, kDim}),
          out(DType::kF32, {total, 2, kDim});
      for (int64_t t = 0; t < total; t++) {
        const bool hot = start + t % tokens == t / tokens;
        for (int d = 0; d < kDim; d++) {
          k.set(t, 0, d, hot && d == 3 ? 1.0f : 0.0f);
          v.set(t, 0, d, hot && d == 5 ? 1.0f : 0.0f);
          for (int h = 0; h < 2; h++) q.set(t, h, d, d == 3 ? 120.0f : 0.5f);
        }
      }
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.k = k.dl();
      args.v = v.dl();
      args.out = out.dl();
      args.flags = c.flags;
      ASSERT_EQ(kvc_forward_attend(cache.get(), f, 0, &args, &error), KVC_OK) << error.message;
      for (int64_t t = 0; step == 1 && t < total; t++) {
        const int spike = static_cast<int>(t / tokens), i = static_cast<int>(t % tokens), p = kPast + i;
        bool sees = spike <= span_end(ids, i) && spike >= c.group.first_seen(p);
        if (c.group.chunk > 0) sees = sees && spike < (p / c.group.chunk + 1) * c.group.chunk;
        if (c.flags == KVC_ATTEND_PAST) sees = sees && spike < kPast;
        if (c.flags == KVC_ATTEND_SELF) sees = sees && spike >= kPast;
        ASSERT_NEAR(out.at(t, 1, 5), sees ? 1.0f : 0.0f, 1e-3) << simd << ": query " << p << " key " << spike;
      }
      ASSERT_EQ(kvc_forward_end(cache.get(), f, &error), KVC_OK) << error.message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Spans,
                         testing::Values(Case{"full", {}, 0}, Case{"sliding", {9, 0, 0}, 0},
                                         Case{"chunked", {0, 0, 10}, 0}, Case{"past", {}, KVC_ATTEND_PAST},
                                         Case{"self", {}, KVC_ATTEND_SELF}),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(SpanMisuse, IsRefused) {
  CacheSpec spec;
  spec.capacity_tokens = 64;
  ContextPtr context = make_context();
  CachePtr cache = make_cache(context.get(), spec);
  kvc_seq seqs[2];
  ASSERT_EQ(kvc_seq_add(cache.get(), 2, seqs, nullptr), KVC_OK);
  const int32_t lengths[2] = {2, 3}, parents[5] = {KVC_TREE_NONE, KVC_TREE_NONE, KVC_TREE_ROOT, 0, 1};
  int32_t ids[5] = {1, 1, 0, -2, 0};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = seqs;
  batch.append_lengths = lengths;
  batch.num_sequences = 2;
  batch.span_ids = ids;
  kvc_forward f = 0;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error.index, 1);
  EXPECT_NE(std::strstr(error.message, "span_ids[3] is -2"), nullptr) << error.message;
  ids[3] = 7;
  batch.tree_parents = parents;
  EXPECT_EQ(kvc_cache_can_fit(cache.get(), &batch, &error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "node of a tree"), nullptr) << error.message;
  ids[3] = 0;
  EXPECT_EQ(kvc_cache_can_fit(cache.get(), &batch, &error), KVC_OK) << error.message;
  const kvc_seq inert[2] = {seqs[0], 0};
  ids[3] = -2;
  batch.sequences = inert;
  batch.tree_parents = nullptr;
  EXPECT_EQ(kvc_cache_can_fit(cache.get(), &batch, &error), KVC_OK) << error.message;
}

}  // namespace
}  // namespace kvt
