// Text, versions, the table of functions, and the rule of output arrays.

#include "fixture.h"
#include "hybrid.h"

namespace kvt {
namespace {

TEST(Query, Versions) {
  EXPECT_STREQ(kvc_version(), "0.1.0");
  EXPECT_EQ(kvc_abi_version(), static_cast<uint32_t>(KVC_ABI_VERSION));
  const std::string info = kvc_build_info();
  EXPECT_EQ(info.front(), '{');
  EXPECT_EQ(info.back(), '}');
  for (const char *key :
       {"\"version\"", "\"abi\"", "\"compiler\"", "\"dlpack\"", "\"backends\"", "\"simd\"", "\"features\""}) {
    EXPECT_NE(info.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(kvc_build_info(), kvc_build_info()) << "static";
}

TEST(Query, StatusNames) {
  EXPECT_STREQ(kvc_status_name(KVC_OK), "KVC_OK");
  EXPECT_STREQ(kvc_status_name(KVC_ERROR_OUT_OF_PAGES), "KVC_ERROR_OUT_OF_PAGES");
  EXPECT_STREQ(kvc_status_name(KVC_ERROR_EVICTED), "KVC_ERROR_EVICTED");
  EXPECT_STREQ(kvc_status_name(KVC_ERROR_STALE_ID), "KVC_ERROR_STALE_ID");
  for (kvc_status s : {1, 50, 99, 100, 150, 199, 250, 350, 450, 950, 5000, -1, INT32_MIN, INT32_MAX}) {
    ASSERT_NE(kvc_status_name(s), nullptr) << s;
    EXPECT_NE(kvc_status_name(s)[0], '\0') << s;
  }
  EXPECT_STREQ(kvc_status_name(57), kvc_status_name(58)) << "one name for a band";
  EXPECT_STRNE(kvc_status_name(57), kvc_status_name(157));
}

// Calls that fill text: capacity 0 queries the length, a buffer that is too short stays empty, and nothing is written
// after the text.
void check_text(const char *function, const std::function<kvc_status(char *, int64_t, int64_t *, kvc_error *)> &call,
                const std::vector<const char *> &keys) {
  int64_t length = -1;
  ASSERT_EQ(call(nullptr, 0, &length, nullptr), KVC_OK) << function;
  ASSERT_GT(length, 2);
  std::vector<char> buffer(static_cast<size_t>(length) + 16, '#');
  for (int64_t capacity : {int64_t{1}, length / 2, length}) {
    int64_t needed = -1;
    const kvc_error e = refused(nullptr, {KVC_ERROR_BUFFER_TOO_SMALL}, function,
                                [&](kvc_error *x) { return call(buffer.data(), capacity, &needed, x); });
    EXPECT_EQ(needed, length);
    EXPECT_GE(e.required, length);
    EXPECT_EQ(e.available, capacity);
    for (char c : buffer) ASSERT_EQ(c, '#') << "a refused call wrote";
  }
  int64_t again = -1;
  ASSERT_EQ(call(buffer.data(), length + 1, &again, nullptr), KVC_OK);
  EXPECT_EQ(again, length);
  EXPECT_EQ(std::strlen(buffer.data()), static_cast<size_t>(length));
  EXPECT_EQ(buffer[length + 1], '#');
  const std::string text = buffer.data();
  EXPECT_EQ(text.front(), '{');
  EXPECT_EQ(text.back(), '}');
  for (const char *key : keys) EXPECT_NE(text.find(key), std::string::npos) << text;
  refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_BUFFER_TOO_SMALL}, function,
          [&](kvc_error *x) { return call(buffer.data(), -1, &again, x); });
}

TEST(Query, DescribeTexts) {
  World w;
  check_text(
      "kvc_context_describe",
      [&](char *b, int64_t c, int64_t *n, kvc_error *e) { return kvc_context_describe(w.context.get(), b, c, n, e); },
      {"\"device\"", "\"threads\"", "\"simd\"", "\"simd_available\""});
  const kvc_forward f = w.begin({w.seq, w.forked}, {3, 1});
  check_text("kvc_forward_describe",
             [&](char *b, int64_t c, int64_t *n, kvc_error *e) { return kvc_forward_describe(w.cache, f, b, c, n, e); },
             {"\"rows\"", "\"tokens\"", "\"group\"", "\"kernel\"", "\"items\"", "\"splits\"", "\"prefix_groups\"",
              "\"kv_bytes\""});
  // The forward is the only one, and its rows are the first two sequences. Both hold the pages of the parent's whole
  // pages.
  check_text("kvc_cache_describe",
             [&](char *b, int64_t c, int64_t *n, kvc_error *e) { return kvc_cache_describe(w.cache, b, c, n, e); },
             {"\"sequences\": [{\"id\": ", "\"state\": \"busy\"", "\"parent\": 0", "\"groups\": [{\"row\": \"kv\"",
              "\"map\": [[", "\"steps\": [{\"graph\": false", "\"sequences\": [0, 1], \"lengths\": [3, 1]",
              "\"prefix\": null", "\"tiers\": null"});
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

// Sequences that share pages, in a forward of encoder tokens, which does not contain their own tokens.
TEST(Query, AForwardOfEncoderTokensPlansNoAttention) {
  Hybrid h;
  h.config.flags |= KVC_CACHE_SHARE_ALL_PREFIXES;
  h.layers[kFullGroup].head_dim = 64;
  h.layers[kSharing].head_dim = 64;
  for (const int threads : {1, 4}) {
    const ContextPtr context = make_context(threads);
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_cache_create(context.get(), &h.config, &cache, &error), KVC_OK) << error.message;
    const CachePtr owner(cache);
    kvc_seq seqs[3] = {};
    ASSERT_EQ(kvc_seq_add(cache, 1, seqs, &error), KVC_OK);
    const auto begin = [&](const std::vector<kvc_seq> &ids, const std::vector<int32_t> &lengths, int32_t encoder) {
      kvc_batch batch = batch_of(ids, lengths, 0);
      batch.layer_begin = kFullGroup;
      batch.layer_end = kFullGroup + 1;
      batch.encoder_group = encoder;
      kvc_forward f = 0;
      EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
      return f;
    };
    kvc_forward f = begin({seqs[0]}, {32}, 0);
    Tensor k(DType::kF32, {32, kKvHeads, 64});
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = k.dl();
    ASSERT_EQ(kvc_forward_append(cache, f, kFullGroup, &args, &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
    for (int i = 1; i < 3; i++) {
      ASSERT_EQ(kvc_seq_fork(cache, 1, seqs, nullptr, &seqs[i], nullptr, &error), KVC_OK) << error.message;
    }
    f = begin({seqs[0], seqs[1], seqs[2]}, {5, 3, 5}, kCrossGroup + 1);
    const std::string text = text_of([&](char *buffer, int64_t capacity, int64_t *length) {
      return kvc_forward_describe(cache, f, buffer, capacity, length, nullptr);
    });
    EXPECT_NE(text.find("\"tokens\": 13"), std::string::npos) << text;
    EXPECT_EQ(text.find("\"items\": 1"), std::string::npos) << text;
    EXPECT_NE(text.find("\"items\": 0"), std::string::npos) << text;
    ASSERT_EQ(kvc_forward_abort(cache, f, &error), KVC_OK);
  }
}

TEST(Query, PagesOutputArray) {
  World w;  // 20 tokens: 5 pages of 4
  int32_t pages[8];
  int64_t count = -1;
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, nullptr, 0, &count, nullptr), KVC_OK);
  EXPECT_EQ(count, 5);
  std::fill(pages, pages + 8, -77);
  const kvc_error e = refused(w.cache, {KVC_ERROR_BUFFER_TOO_SMALL}, "kvc_seq_pages",
                              [&](kvc_error *x) { return kvc_seq_pages(w.cache, w.seq, 0, pages, 4, &count, x); });
  EXPECT_EQ(e.required, 5);
  EXPECT_EQ(e.available, 4);
  EXPECT_EQ(count, 5);
  for (int32_t p : pages) EXPECT_EQ(p, -77);
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages, 5, &count, nullptr), KVC_OK);
  EXPECT_EQ(pages[5], -77);
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_BUFFER_TOO_SMALL}, "kvc_seq_pages",
          [&](kvc_error *x) { return kvc_seq_pages(w.cache, w.seq, 0, pages, -1, &count, x); });
  // Window 8 at length 20: keys from 13 on are kept, pages 0..2 are freed; the fork shares the last two.
  int32_t other[5];
  ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 1, pages, 5, nullptr, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_pages(w.cache, w.forked, 1, other, 5, nullptr, nullptr), KVC_OK);
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(pages[i] >= 0, i >= 3) << i;
    EXPECT_EQ(pages[i], other[i]);
  }
}

TEST(Query, Statistics) {
  World w;
  kvc_stats s;
  kvc_stats_init(&s);
  ASSERT_EQ(kvc_cache_stats(w.cache, 0, &s, nullptr), KVC_OK);
  EXPECT_EQ(s.num_sequences, 2);
  EXPECT_EQ(s.pages_total, 40);
  EXPECT_EQ(s.pages_used, 5);
  EXPECT_EQ(s.pages_free, 35);
  EXPECT_EQ(s.pages_shared, 5);
  EXPECT_EQ(s.pages_peak, 5);
  EXPECT_EQ(s.tokens_held, 20);
  EXPECT_EQ(s.tokens_shared, 20);
  EXPECT_EQ(s.tokens_logical, 40);
  EXPECT_EQ(s.fragmentation_bytes, 0);
  EXPECT_EQ(s.storage_bytes, 40 * 4 * 2 * (8 + 8) * 4);
  ASSERT_EQ(kvc_cache_stats(w.cache, 1, &s, nullptr), KVC_OK);
  EXPECT_EQ(s.pages_used, 2);
  EXPECT_EQ(s.pages_peak, 5);
  EXPECT_EQ(s.tokens_held, 8);
  w.step(w.forked, 1);
  ASSERT_EQ(kvc_cache_stats(w.cache, 0, &s, nullptr), KVC_OK);
  EXPECT_EQ(s.pages_used, 6);
  EXPECT_EQ(s.fragmentation_bytes, 3 * 2 * (8 + 8) * 4);
  const uint64_t one = w.digest();
  w.step(w.forked, 1);
  EXPECT_NE(w.digest(), one) << "a digest that does not see a token";
}

TEST(Query, TableOfFunctions) {
  const struct kvc_api *api = kvc_get_api(kvc_abi_version());
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(api, kvc_get_api(kvc_abi_version())) << "static";
  EXPECT_EQ(kvc_get_api(0xffff0000u), nullptr);
  // While the major version is 0, every minor version may change the ABI, so this library accepts its own only.
  EXPECT_EQ(kvc_get_api(0), nullptr);
  EXPECT_EQ(kvc_get_api(kvc_abi_version() + 1), nullptr);
}

// A message is complete and terminated, also long after the call.
TEST(Query, MessagesCarryTheValues) {
  World w;
  const int64_t length = 40;
  kvc_error e = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_truncate(w.cache, 1, &w.seq, &length, &e), KVC_ERROR_OUT_OF_RANGE);
  const std::string message = e.message;
  EXPECT_EQ(message.rfind("kvc_seq_truncate: ", 0), 0u) << message;
  EXPECT_NE(message.find("40"), std::string::npos) << message;
  EXPECT_NE(message.find("20"), std::string::npos) << message;
  EXPECT_EQ(e.index, 0);
}

}  // namespace
}  // namespace kvt
