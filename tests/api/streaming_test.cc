// Streaming windows through the C API: each kind of bad input, and what queries say.
#include "fixture.h"

namespace kvt {
namespace {

// A World whose first sequence (20 tokens) may stream, and is not forked.
struct Streaming : World {
  Streaming() : World(spec_with_streams()) { EXPECT_EQ(kvc_seq_remove(cache, 1, &forked, nullptr), KVC_OK); }
  static CacheSpec spec_with_streams() {
    CacheSpec spec = default_spec();
    spec.streaming = true;
    return spec;
  }
  kvc_status set(int64_t sinks, int64_t window, uint32_t flags = 0, kvc_error *error = nullptr) {
    return kvc_seq_set_streaming(cache, 1, &seq, &sinks, &window, flags, error);
  }
  kvc_error set_refused(const Statuses &statuses, int64_t sinks, int64_t window, uint32_t flags,
                        const std::vector<std::string> &mentions) {
    return refused(
        cache, statuses, "kvc_seq_set_streaming", [&](kvc_error *e) { return set(sinks, window, flags, e); }, mentions);
  }
  void expect_window(kvc_seq s, int64_t sinks, int64_t window) {
    int64_t got_sinks = -1, got_window = -1;
    EXPECT_EQ(kvc_seq_get_streaming(cache, 1, &s, &got_sinks, &got_window, nullptr), KVC_OK);
    EXPECT_EQ(got_sinks, sinks);
    EXPECT_EQ(got_window, window);
  }
};

const Statuses kBad{KVC_ERROR_INVALID_ARGUMENT};

TEST(Streaming, ValuesThatMakeNoSense) {
  Streaming w;
  constexpr int64_t kMost = int64_t{1} << 30;
  EXPECT_EQ(w.set_refused(kBad, 6, 6, 0, {"window_tokens 6", "6"}).index, 0);
  w.set_refused(kBad, 6, 2, 0, {"window_tokens 2", "6 sinks"});
  w.set_refused(kBad, 0, -1, 0, {"window_tokens -1"});
  w.set_refused(kBad, -2, 9, 0, {"sink_tokens -2"});
  w.set_refused(kBad, 1, 0, 0, {"sink_tokens 1 at index 0 must be 0"});
  w.set_refused(kBad, 0, kMost + 1, 0, {std::to_string(kMost + 1)});
  w.set_refused(kBad, kMost + 1, kMost, 0, {std::to_string(kMost + 1)});
  w.set_refused(kBad, INT64_MIN, INT64_MAX, 0, {std::to_string(INT64_MAX)});
  w.set_refused({KVC_ERROR_UNSUPPORTED}, 2, 9, 6, {"flags 0x6"});
  w.set_refused(kBad, 2, 20, KVC_STREAMING_PREFIX_IS_SINK,
                {"window_tokens 20", "20 sinks", "sink_tokens 2", "length 20"});
  w.expect_window(w.seq, 0, 0);
  EXPECT_EQ(w.set(kMost - 1, kMost), KVC_OK);
  EXPECT_EQ(w.set(2, 21, KVC_STREAMING_PREFIX_IS_SINK), KVC_OK);
  w.expect_window(w.seq, 20, 21);
  EXPECT_EQ(w.set(0, 0, KVC_STREAMING_PREFIX_IS_SINK), KVC_OK);
  w.expect_window(w.seq, 0, 0);
}

TEST(Streaming, SequencesThatAreRefused) {
  Streaming w;
  kvc_seq pair[2] = {w.seq, w.seq};
  EXPECT_EQ(kvc_seq_add(w.cache, 1, &pair[0], nullptr), KVC_OK);
  const int64_t sinks[2] = {1, 1}, windows[2] = {9, 9}, wrong[2] = {9, 1};
  const auto refuse = [&](const Statuses &statuses, const kvc_seq *ids, const int64_t *window_tokens) {
    return refused(w.cache, statuses, "kvc_seq_set_streaming",
                   [&](kvc_error *e) { return kvc_seq_set_streaming(w.cache, 2, ids, sinks, window_tokens, 0, e); });
  };
  const kvc_seq twice[2] = {w.seq, w.seq}, gone[2] = {w.seq, w.forked}, none[2] = {w.seq, 0};
  EXPECT_EQ(refuse({KVC_ERROR_DUPLICATE}, twice, windows).index, 1);
  EXPECT_EQ(refuse({KVC_ERROR_STALE_ID}, gone, windows).index, 1);
  EXPECT_EQ(refuse({KVC_ERROR_STALE_ID}, none, windows).index, 1);
  EXPECT_EQ(refuse(kBad, pair, wrong).index, 1) << "the first is not set either";
  const kvc_forward f = w.begin({w.seq}, {1});
  EXPECT_EQ(refuse({KVC_ERROR_BUSY}, pair, windows).index, 1);
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_set_streaming(w.cache, 2, pair, sinks, windows, 0, nullptr), KVC_OK);
  w.expect_window(w.seq, 1, 9);
  w.expect_window(pair[0], 1, 9);
  EXPECT_EQ(kvc_seq_set_streaming(w.cache, 1, pair, nullptr, windows, 0, nullptr), KVC_OK) << "no sinks";
  w.expect_window(pair[0], 0, 9);
  EXPECT_EQ(kvc_seq_set_streaming(w.cache, 0, nullptr, nullptr, nullptr, 0, nullptr), KVC_OK);
  refused(w.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(w.cache, 1, pair, sinks, nullptr, 0, e); });
  refused(w.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(w.cache, 1, nullptr, sinks, windows, 0, e); });
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(w.cache, -1, pair, sinks, windows, 0, e); });
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(nullptr, 1, pair, sinks, windows, 0, e); });
}

TEST(Streaming, QueriesThatAreRefused) {
  Streaming w;
  int64_t a[1] = {7}, b[1] = {7};
  const auto refuse = [&](kvc_status status, kvc_cache *cache, const kvc_seq *ids, int64_t *sinks, int64_t *windows) {
    refused(w.cache, {status}, "kvc_seq_get_streaming",
            [&](kvc_error *e) { return kvc_seq_get_streaming(cache, 1, ids, sinks, windows, e); });
    EXPECT_EQ(a[0], 7);
    EXPECT_EQ(b[0], 7);
  };
  refuse(KVC_ERROR_STALE_ID, w.cache, &w.forked, a, b);
  refuse(KVC_ERROR_NULL_ARGUMENT, nullptr, &w.seq, a, b);
  refuse(KVC_ERROR_NULL_ARGUMENT, w.cache, nullptr, a, b);
  refuse(KVC_ERROR_NULL_ARGUMENT, w.cache, &w.seq, nullptr, b);
  refuse(KVC_ERROR_NULL_ARGUMENT, w.cache, &w.seq, a, nullptr);
  refuse(KVC_ERROR_INVALID_ARGUMENT, w.cache, &w.seq, a, a);
}

TEST(Streaming, CachesThatDoNotStream) {
  World plain;
  const int64_t sinks = 1, window = 9;
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_set_streaming",
          [&](kvc_error *e) { return kvc_seq_set_streaming(plain.cache, 1, &plain.seq, &sinks, &window, 0, e); },
          {"KVC_CACHE_STREAMING"});
  int64_t got[2] = {-1, -1};
  EXPECT_EQ(kvc_seq_get_streaming(plain.cache, 1, &plain.seq, &got[0], &got[1], nullptr), KVC_OK);
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 0);
  CacheSpec spec = Streaming::spec_with_streams();
  spec.groups[0].window = 5;
  ContextPtr context = make_context();
  const BuiltConfig built(spec);
  refused(nullptr, kBad, "kvc_cache_create",
          [&](kvc_error *e) {
            kvc_cache *cache = nullptr;
            return kvc_cache_create(context.get(), &built.config, &cache, e);
          },
          {"KVC_CACHE_STREAMING"});
}

// A cache without streams takes less memory, and an estimate says so.
TEST(Streaming, EstimatesCountIt) {
  ContextPtr context = make_context();
  int64_t scratch[2], bookkeeping[2];
  for (const bool streaming : {false, true}) {
    CacheSpec spec = World::default_spec();
    spec.streaming = streaming;
    const BuiltConfig built(spec);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, -1, &estimate, &error), KVC_OK) << error.message;
    scratch[streaming] = estimate.scratch_bytes;
    bookkeeping[streaming] = estimate.bookkeeping_bytes;
  }
  EXPECT_LT(scratch[0], scratch[1]);
  EXPECT_LT(bookkeeping[0], bookkeeping[1]);
}

TEST(Streaming, PagesExportsAndPositionsOfAHole) {
  Streaming w;
  ASSERT_EQ(w.set(5, 14), KVC_OK);
  // Length 20: sinks in pages 0 and 1, the window of the next query from 12 on.
  int32_t pages[8];
  int64_t count = 0;
  ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages, 8, &count, nullptr), KVC_OK);
  ASSERT_EQ(count, 5);
  EXPECT_GE(pages[1], 0);
  EXPECT_EQ(pages[2], -1);
  EXPECT_GE(pages[3], 0);
  kvc_export_args args;
  kvc_export_args_init(&args);
  DLManagedTensorVersioned *k = nullptr;
  for (const auto &[begin, end] : {std::pair{0, 9}, {7, 9}, {8, 12}, {11, 13}, {0, 0}}) {
    args.position_begin = begin;
    args.position_end = end;
    const kvc_error error =
        refused(w.cache, {KVC_ERROR_EVICTED}, "kvc_seq_export",
                [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &k, nullptr, nullptr, e); }, {"[8, 12)"});
    EXPECT_EQ(error.group, 0);
  }
  for (const auto &[begin, end] : {std::pair{0, 8}, {12, 20}, {9, 9}}) {
    args.position_begin = begin;
    args.position_end = end;
    ASSERT_EQ(export_kv(w.cache, w.seq, &args, &k, nullptr, nullptr, nullptr), KVC_OK);
    const Managed owner(k);
    EXPECT_EQ(k->dl_tensor.shape[0], end - begin);
  }
  const int64_t in_the_hole = 13;
  const kvc_error error =
      refused(w.cache, {KVC_ERROR_EVICTED}, "kvc_seq_truncate",
              [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 1, &w.seq, &in_the_hole, e); }, {"13", "[8, 12)"});
  EXPECT_EQ(error.index, 0);
  // Positions where all groups work, not only one of them.
  int64_t before = -1, after = -1;
  ASSERT_EQ(kvc_seq_nearest_position(w.cache, w.seq, in_the_hole, &before, &after, nullptr), KVC_OK);
  const std::string nearest = "nearest positions: " + std::to_string(before) + " and " + std::to_string(after) + ")";
  EXPECT_NE(std::string(error.message).find(nearest), std::string::npos) << error.message << ", not " << nearest;
  w.set_refused({KVC_ERROR_EVICTED}, 5, 20, 0, {"window_tokens 20", "length 20", "[8, 12)"});
  w.set_refused({KVC_ERROR_EVICTED}, 0, 0, 0, {"[8, 12)"});
  EXPECT_EQ(kvc_cache_clear(w.cache, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &w.seq, nullptr), KVC_OK);
  w.expect_window(w.seq, 0, 0);
}

}  // namespace
}  // namespace kvt
