// Suspended sequences through the C API: what they hold comes back, and nothing leaks.
#include <algorithm>
#include <cstring>
#include <set>

#include "tiers_fixture.h"

namespace kvt {
namespace {

constexpr int64_t kHostBytes = int64_t{64} << 20;

TieredSpec every_group() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  return spec;
}

int64_t exclusive(const TieredEngine &engine, int32_t group, kvc_seq seq) {
  int64_t pages = 0;
  EXPECT_EQ(kvc_seq_exclusive_pages(engine.cache(), group, 1, &seq, &pages, nullptr), KVC_OK);
  return pages;
}

TEST(Suspend, EverythingComesBack) {
  for (const int64_t length : {1, 4, 7, 30}) {
    MemoryTier tier;
    TieredEngine engine{every_group()};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens tokens = count_to(40);
    const kvc_seq seq = engine.add_sequence();
    engine.compute(seq, tokens, 0, length);
    std::vector<int64_t> free_before;
    for (int32_t g = 0; g < 3; g++) free_before.push_back(engine.available_pages(g));
    std::vector<int64_t> own;
    for (int32_t g = 0; g < 3; g++) own.push_back(exclusive(engine, g, seq));
    ASSERT_EQ(engine.suspend(seq), KVC_OK);
    for (int32_t g = 0; g < 3; g++) {
      EXPECT_EQ(engine.available_pages(g), free_before[static_cast<size_t>(g)] + own[static_cast<size_t>(g)]);
      EXPECT_EQ(exclusive(engine, g, seq), 0);
    }
    EXPECT_EQ(tier.num_objects(), own[0] + own[1] + own[2]);
    EXPECT_EQ(engine.traffic().sequences_suspended, 1);
    EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
    int64_t known = 0;
    ASSERT_EQ(kvc_seq_lengths(engine.cache(), 1, &seq, &known, nullptr), KVC_OK);
    EXPECT_EQ(known, length);
    // Other sequences write into the freed pages meanwhile.
    const kvc_seq other = engine.add_sequence();
    engine.compute(other, count_to(40, 5000), 0, 40);
    engine.remove(other);

    ASSERT_EQ(engine.resume(seq), KVC_OK);
    for (int32_t g = 0; g < 3; g++) {
      EXPECT_EQ(engine.available_pages(g), free_before[static_cast<size_t>(g)]);
      EXPECT_EQ(exclusive(engine, g, seq), own[static_cast<size_t>(g)]);
    }
    EXPECT_EQ(engine.traffic().sequences_suspended, 0);
    engine.check(seq, tokens, length);
    engine.compute(seq, tokens, length, 40);
    engine.check(seq, tokens, 40);
    engine.wait_stored();
    EXPECT_TRUE(tier.becomes_empty());
    EXPECT_EQ(engine.traffic().pages_stored, own[0] + own[1] + own[2]);
    EXPECT_EQ(engine.traffic().pages_loaded, own[0] + own[1] + own[2]);
  }
}

TEST(Suspend, CheckpointsComeBack) {
  MemoryTier tier;
  TieredEngine engine{every_group()};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens tokens = count_to(40);
  const kvc_seq seq = engine.add_sequence();
  int64_t at = 0;
  for (const int64_t end : {9, 10, 11}) {
    engine.compute(seq, tokens, at, end);
    ASSERT_EQ(kvc_seq_checkpoint(engine.cache(), 1, &seq, nullptr), KVC_OK);
    at = end;
  }
  // The state now is that of a checkpoint too.
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(engine.available_pages(2), engine.available_pages(2));
  EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
  const int64_t nine = 9;
  kvc_seq child = 0;
  ASSERT_EQ(kvc_seq_fork(engine.cache(), 1, &seq, &nine, &child, nullptr, nullptr), KVC_OK);
  engine.check(child, tokens, 9);
  engine.check(seq, tokens, 11);
  // With one more token, the state is no checkpoint's. The child shares the first checkpoint.
  engine.compute(seq, tokens, 11, 12);
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  engine.check(child, tokens, 9);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, tokens, 12);
  for (const int64_t back : {11, 10, 9}) {
    ASSERT_EQ(kvc_seq_truncate(engine.cache(), 1, &seq, &back, nullptr), KVC_OK);
    engine.check(seq, tokens, back);
  }
}

// The contents of an object, without its header and the checksums. They must fit in one section.
std::vector<uint8_t> contents_of(const std::vector<uint8_t> &object) {
  uint32_t header_bytes = 0;
  int64_t payload_bytes = 0;
  std::memcpy(&header_bytes, object.data() + 16, sizeof header_bytes);
  std::memcpy(&payload_bytes, object.data() + 32, sizeof payload_bytes);
  return {object.begin() + header_bytes, object.begin() + header_bytes + payload_bytes};
}

// The contents of a page whose values are these, followed by zeros.
void add_values(std::vector<uint8_t> *contents, std::vector<float> values, size_t count) {
  values.resize(count);
  const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
  contents->insert(contents->end(), bytes, bytes + count * sizeof(float));
}

// The object of a suspended page has zeros in slots that the sequence has not stored, not bytes of earlier owners.
TEST(Suspend, OldContentsOfThePoolsDoNotLeaveThem) {
  constexpr int64_t kCovered = 6, kLength = 9, kRow = TieredEngine::kDims;
  MemoryTier tier;
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 0}, {KVC_ROW_STATE, 0}};
  spec.pages = 10;
  spec.sequences = 1;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  for (int i = 0; i < 4; i++) {  // also fills every page of states
    const kvc_seq other = engine.add_sequence();
    engine.compute(other, count_to(40, 5000), 0, 3);
    for (int64_t at = 3; at < 7; at++) {
      ASSERT_EQ(kvc_seq_checkpoint(engine.cache(), 1, &other, nullptr), KVC_OK);
      engine.compute(other, count_to(40, 5000), at, at + 1);
    }
    engine.compute(other, count_to(40, 5000), 7, 40);
    engine.remove(other);
  }
  const Tokens tokens = count_to(20);
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, tokens, 0, kCovered);
  ASSERT_EQ(kvc_seq_checkpoint(engine.cache(), 1, &seq, nullptr), KVC_OK);
  engine.compute(seq, tokens, kCovered, kLength, 1);  // in layer 0 alone
  ASSERT_EQ(engine.suspend(seq), KVC_OK);

  std::multiset<std::vector<uint8_t>> expected, got;
  for (size_t layer = 0; layer < 2; layer++) {
    for (int64_t begin = 0; begin < kLength; begin += 4) {
      std::vector<uint8_t> contents;
      const int64_t end = std::max(begin, std::min<int64_t>(begin + 4, layer == 0 ? kLength : kCovered));
      for (int part = 0; part < 2; part++)
        add_values(&contents, engine.rows(tokens, begin, end, layer, part), 4 * kRow);
      expected.insert(contents);
    }
  }
  std::vector<uint8_t> checkpoint, current;
  add_values(&checkpoint, engine.state_of(tokens, kCovered, 2), kRow);
  add_values(&current, {}, kRow);  // the last step stored no state
  expected.insert({checkpoint, current});
  for (const auto &[key, object] : tier.objects) got.insert(contents_of(object));
  EXPECT_EQ(got, expected);

  ASSERT_EQ(engine.resume(seq), KVC_OK);
  const int64_t back = kCovered;
  ASSERT_EQ(kvc_seq_truncate(engine.cache(), 1, &seq, &back, nullptr), KVC_OK);
  engine.check(seq, tokens, kCovered);
  engine.compute(seq, tokens, kCovered, 20);
  engine.check(seq, tokens, 20);
}

// A fork's pages stay in the pools. Only what one sequence has alone is moved.
TEST(Suspend, SharedPagesStay) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens tokens = count_to(40);
  Tokens other = tokens;
  for (size_t i = 20; i < other.size(); i++) other[i] += 1000;
  const kvc_seq parent = engine.add_sequence();
  engine.compute(parent, tokens, 0, 20);
  kvc_seq child = 0;
  ASSERT_EQ(kvc_seq_fork(engine.cache(), 1, &parent, nullptr, &child, nullptr, nullptr), KVC_OK);
  engine.compute(parent, tokens, 20, 40);
  engine.compute(child, other, 20, 30);
  ASSERT_EQ(engine.available_pages(0), 40 - 13);
  ASSERT_EQ(engine.suspend(parent), KVC_OK);
  EXPECT_EQ(engine.available_pages(0), 40 - 8);
  EXPECT_EQ(tier.num_objects(), 5);
  engine.check(child, other, 30);
  ASSERT_EQ(engine.suspend(child), KVC_OK);  // the first 5 pages are kept by both
  EXPECT_EQ(engine.available_pages(0), 40 - 5);
  EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
  std::vector<int32_t> pages(10);
  int64_t count = 0;
  ASSERT_EQ(kvc_seq_pages(engine.cache(), parent, 0, pages.data(), 10, &count, nullptr), KVC_OK);
  EXPECT_EQ(count, 10);
  EXPECT_EQ(std::count(pages.begin(), pages.end(), -1), 10);
  ASSERT_EQ(engine.resume(parent), KVC_OK);
  engine.check(parent, tokens, 40);
  ASSERT_EQ(engine.resume(child), KVC_OK);
  engine.check(child, other, 30);
  EXPECT_EQ(engine.available_pages(0), 40 - 13);
}

// The index keeps published pages, and may evict them while their sequence is suspended.
TEST(Suspend, PublishedPagesBecomeAvailable) {
  MemoryTier tier;
  TieredSpec spec;
  spec.pages = 12;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_PUBLISHED, 1000), KVC_OK);  // it stores no published page
  const Tokens tokens = count_to(40);
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, tokens, 0, 38);
  kvc_prefix_query query = Prefix::query(tokens);
  query.num_tokens = 38;
  ASSERT_EQ(kvc_prefix_publish(engine.cache(), seq, &query, nullptr, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(engine.available_pages(0), 2);
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(engine.available_pages(0), 12);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  ASSERT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 37);  // the index still has them
  const Tokens others = count_to(48, 900);
  const kvc_seq other = engine.add_sequence();
  engine.compute(other, others, 0, 48);  // evicts them
  ASSERT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 0);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(engine.resume(seq, &error), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(error.required, 10);
  EXPECT_EQ(error.available, 0);
  engine.remove(other);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, tokens, 38);
  engine.compute(seq, tokens, 38, 40);
  engine.check(seq, tokens, 40);
}

TEST(Suspend, StreamingSettingsComeBack) {
  MemoryTier tier;
  TieredSpec spec;
  spec.flags = KVC_CACHE_STREAMING;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens tokens = count_to(60);
  const kvc_seq seq = engine.add_sequence();
  const int64_t sinks = 5, window = 20;
  ASSERT_EQ(kvc_seq_set_streaming(engine.cache(), 1, &seq, &sinks, &window, 0, nullptr), KVC_OK);
  for (int64_t at = 0; at < 58; at++) engine.compute(seq, tokens, at, at + 1);
  const int64_t before = engine.available_pages(0);
  EXPECT_GT(before, 40 - 9);  // there is a hole
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(engine.available_pages(0), 40);
  EXPECT_EQ(kvc_cache_check_invariants(engine.cache(), nullptr), KVC_OK);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  EXPECT_EQ(engine.available_pages(0), before);
  int64_t s = 0, w = 0;
  ASSERT_EQ(kvc_seq_get_streaming(engine.cache(), 1, &seq, &s, &w, nullptr), KVC_OK);
  EXPECT_EQ(s, sinks);
  EXPECT_EQ(w, window);
  engine.compute(seq, tokens, 58, 59);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.position_begin = 59 - window + sinks, args.position_end = 59;
  kvc_exported exported;
  kvc_exported_init(&exported);
  ASSERT_EQ(kvc_seq_export(engine.cache(), seq, &args, &exported, nullptr, nullptr), KVC_OK);
  const auto *data = static_cast<const float *>(exported.k->dl_tensor.data);
  const std::vector<float> expected = engine.rows(tokens, args.position_begin, 59, 0, 0);
  EXPECT_EQ(std::vector(data, data + expected.size()), expected);
  exported.k->deleter(exported.k);
  exported.v->deleter(exported.v);
}

TEST(Suspend, AnEmptySequenceTakesNothing) {
  MemoryTier tier;
  TieredEngine engine{every_group()};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const kvc_seq seq = engine.add_sequence();
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(tier.num_objects(), 0);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.compute(seq, count_to(4), 0, 4);
  engine.check(seq, count_to(4), 4);
}

TEST(Suspend, RemovedSequencesLeaveNothing) {
  MemoryTier tier;
  const Tokens tokens = count_to(20);
  {
    TieredEngine engine{every_group()};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const auto suspended = [&] {
      const kvc_seq seq = engine.add_sequence();
      engine.compute(seq, tokens, 0, 20);
      EXPECT_EQ(engine.suspend(seq), KVC_OK);
      return seq;
    };
    const kvc_seq first = suspended();
    EXPECT_GT(tier.num_objects(), 0);
    engine.remove(first);
    EXPECT_TRUE(tier.becomes_empty());
    // The same while a job runs. Its poll says so, and ends it.
    for (const bool resuming : {false, true}) {
      const kvc_seq seq = engine.add_sequence();
      engine.compute(seq, tokens, 0, 20);
      if (resuming) {
        EXPECT_EQ(engine.suspend(seq), KVC_OK);
      }
      tier.holds = true;
      kvc_job job = 0;
      ASSERT_EQ((resuming ? kvc_seq_resume : kvc_seq_suspend)(engine.cache(), seq, &job, nullptr), KVC_OK);
      engine.remove(seq);
      tier.release();
      EXPECT_EQ(engine.end(job), KVC_ERROR_STALE_ID);
      EXPECT_TRUE(tier.becomes_empty());
    }
    suspended();
    ASSERT_EQ(kvc_cache_clear(engine.cache(), nullptr), KVC_OK);
    EXPECT_TRUE(tier.becomes_empty());
    for (int32_t g = 0; g < 2; g++) EXPECT_EQ(engine.available_pages(g), 40);
    suspended();
    kvc_job job = 0;
    const kvc_seq last = engine.add_sequence();
    engine.compute(last, tokens, 0, 20);
    ASSERT_EQ(kvc_seq_suspend(engine.cache(), last, &job, nullptr), KVC_OK);
  }
  EXPECT_EQ(tier.num_objects(), 0);  // the cache's end removes what it has in the tier
  EXPECT_EQ(tier.closed, 1);
}

// The scheduler of the guide: more requests than the pools can hold, and the latest one waits.
TEST(Suspend, AnEngineServesMoreThanItsPools) {
  const Folder folder;
  TieredSpec spec = every_group();
  spec.pages = 24;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add_host(20 * 4096), KVC_OK);  // what does not fit goes to the folder
  ASSERT_EQ(engine.add(folder, 0, KVC_TIER_SYNC_NONE), KVC_OK);
  struct Request {
    kvc_seq seq;
    Tokens tokens;
    int64_t done = 0;
    bool suspended = false;
  };
  std::vector<Request> requests;
  for (int i = 0; i < 5; i++) requests.push_back({engine.add_sequence(), count_to(60 + i, 1000 * i + 1)});
  int suspends = 0;
  const auto fits = [&](const Request &request) {
    const int32_t one = 1;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &request.seq, batch.append_lengths = &one, batch.num_sequences = 1;
    const kvc_status status = kvc_cache_can_fit(engine.cache(), &batch, nullptr);
    EXPECT_TRUE(status == KVC_OK || status == KVC_ERROR_OUT_OF_PAGES) << status;
    return status == KVC_OK;
  };
  while (!requests.empty()) {
    Request &first = requests.front();
    // The oldest request that waits comes back as soon as it fits.
    for (Request &request : requests) {
      if (!request.suspended) continue;
      const kvc_status resumed = engine.resume(request.seq);
      if (resumed == KVC_ERROR_OUT_OF_PAGES) break;
      ASSERT_EQ(resumed, KVC_OK);
      request.suspended = false;
      if (fits(request)) engine.check(request.seq, request.tokens, request.done);  // which takes a step
    }
    ASSERT_FALSE(first.suspended);
    for (Request &request : requests) {
      if (request.suspended || request.done == static_cast<int64_t>(request.tokens.size())) continue;
      while (!fits(request)) {
        const auto victim =
            std::find_if(requests.rbegin(), requests.rend(), [](const Request &r) { return !r.suspended; });
        ASSERT_NE(victim, requests.rend());
        ASSERT_EQ(engine.suspend(victim->seq), KVC_OK);
        victim->suspended = true;
        ++suspends;
        if (&*victim == &request) break;
      }
      if (request.suspended) continue;
      engine.compute(request.seq, request.tokens, request.done, request.done + 1);
      ++request.done;
    }
    std::erase_if(requests, [&](const Request &request) {
      if (request.suspended || request.done < static_cast<int64_t>(request.tokens.size())) return false;
      if (!fits(request)) return false;
      engine.check(request.seq, request.tokens, request.done);
      engine.remove(request.seq);
      return true;
    });
  }
  EXPECT_GT(suspends, 3);
  EXPECT_EQ(engine.available_pages(0), 24);
  EXPECT_EQ(engine.traffic().pages_not_loaded, 0);
}

TEST(Suspend, EqualCallsGiveEqualPages) {
  std::vector<uint64_t> digests;
  for (int rank = 0; rank < 2; rank++) {
    MemoryTier tier;
    TieredEngine engine{every_group()};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens tokens = count_to(40);
    const kvc_seq seq = engine.add_sequence(), other = engine.add_sequence();
    engine.compute(seq, tokens, 0, 30);
    ASSERT_EQ(engine.suspend(seq), KVC_OK);
    engine.compute(other, tokens, 0, 10);
    uint64_t digest = 0;
    for (int round = 0; round < 2; round++) {
      ASSERT_EQ(kvc_cache_digest(engine.cache(), &digest, nullptr), KVC_OK);
      digests.push_back(digest);
      if (round == 0) {
        ASSERT_EQ(engine.resume(seq), KVC_OK);
      }
    }
  }
  EXPECT_EQ(digests[0], digests[2]);
  EXPECT_EQ(digests[1], digests[3]);
  EXPECT_NE(digests[0], digests[1]);
}

}  // namespace
}  // namespace kvt
