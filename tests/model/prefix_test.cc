// Model test of the prefix index: random calls, compared with a naive model that has the tokens, the salt, the adapter
// and the media of every sequence. K, V and states of a token are hashes of everything before it, with its salt,
// adapter and media. So a page of other tokens, of another length or of another salt, adapter or medium is noticed at
// once. A reader of events always has the pages of the index, under the keys of their tokens, salts, adapters and
// media.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "event_follower.h"
#include "prefix_sequence.h"
#include "wrappers.h"

namespace kvt {
namespace {

constexpr int kWindow = 6, kChunk = 8, kDim = 4, kSequences = 7;
constexpr uint64_t kSalts = 64;
constexpr uint8_t kModel[32] = {1, 2, 3};
enum { kFull, kSliding, kChunked, kLatent, kRecurrent, kGroups };

float value_of(uint64_t hash, uint64_t which) { return static_cast<float>(mix(hash, which) % 1000003); }

class PrefixWalk {
 public:
  // exact: the groups can serve every prefix, there is room for everything, and nothing is dropped. only_states: there
  // are two groups of states, and no others.
  PrefixWalk(uint64_t seed, bool exact, bool only_states = false)
      : random_(seed), exact_(exact), context_(make_context(1)) {
    if (only_states) groups_ = {kRecurrent, kRecurrent};
    for (int group = 0; group < kGroups && !only_states; group++) {
      if (exact && group != kFull && group != kLatent) continue;
      groups_.push_back(group);
    }
    std::vector<kvc_layer_config> layers;
    std::vector<kvc_group_config> groups;
    kvc_state_config state;
    kvc_state_config_init(&state);
    state.rank = 1;
    state.shape[0] = kDim;
    for (const int kind : groups_) {
      kvc_group_config group;
      kvc_group_config_init(&group);
      kvc_layer_config layer;
      kvc_layer_config_init(&layer);
      layer.group = static_cast<int32_t>(groups.size());
      if (kind == kRecurrent) {
        group.row = KVC_ROW_STATE;
        layer.states = &state;
        layer.num_states = 1;
      } else {
        layer.num_q_heads = layer.num_kv_heads = 1;
        layer.head_dim = kDim;
        layer.softmax_scale = 1;
      }
      if (kind == kSliding) group.visibility = KVC_VISIBLE_WINDOW, group.window_tokens = kWindow;
      if (kind == kChunked) group.visibility = KVC_VISIBLE_CHUNK, group.chunk_tokens = kChunk;
      if (kind == kLatent) group.row = KVC_ROW_LATENT, layer.latent_dim = kDim - 1;
      // So that each kind of group runs out of pages first in some runs.
      if (!exact && seed % 2 == 1 && (kind == kSliding || kind == kChunked)) group.num_pages = 11;
      groups.push_back(group);
      layers.push_back(layer);
    }
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers.data();
    config.num_layers = static_cast<int32_t>(layers.size());
    config.groups = groups.data();
    config.num_groups = static_cast<int32_t>(groups.size());
    config.page_size = kPageSize;
    config.max_sequences = kSequences;
    config.max_batch_tokens = 32;
    config.rollback_tokens = 5;
    config.max_checkpoints = exact ? 0 : 2;
    config.prefix_checkpoints = exact ? 0 : 7;
    if (!only_states) config.capacity_pages = exact ? 4000 : 20;
    if (only_states) config.prefix_pages = 30;
    config.flags = KVC_CACHE_PREFIX_INDEX;
    config.fingerprint = kModel;
    config.events_capacity = seed % 3 == 0 ? 12 : 100000;  // so that a reader loses some events, or none
    kvc_cache *raw = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    if (kvc_cache_create(context_.get(), &config, &raw, &error)) throw std::runtime_error(describe(error));
    cache_.reset(raw);
    follower_ = std::make_unique<EventFollower>(raw, kPageSize, kModel);
  }

  // Returns the digest after each operation.
  std::vector<uint64_t> run(int operations) {
    std::vector<uint64_t> digests;
    for (int i = 0; i < operations && !testing::Test::HasFailure(); i++) {
      SCOPED_TRACE("operation " + std::to_string(i));
      operate();
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_EQ(kvc_cache_check_invariants(cache_.get(), &error), KVC_OK) << error.message;
      if (i % 4 == 0) check_contents();
      check_stats();
      check_events();
      digests.push_back(0);
      EXPECT_EQ(kvc_cache_digest(cache_.get(), &digests.back(), nullptr), KVC_OK);
    }
    finish();
    return digests;
  }
  int64_t hits() const { return hits_; }
  int64_t found_tokens() const { return found_tokens_; }
  int64_t shortages() const { return shortages_; }
  int64_t evicted() const { return evicted_; }
  int64_t gaps() const { return gaps_; }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  kvc_seq pick() {
    auto it = model_.begin();
    std::advance(it, static_cast<int64_t>(below(model_.size())));
    return it->first;
  }
  kvc_prefix_query query_of(const Sequence &s) const {
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = s.tokens.data();
    query.num_tokens = s.length();
    query.salt = s.salt;
    query.salt_begin = s.salt_begin;
    query.adapter = s.adapter.data();
    query.adapter_bytes = static_cast<int64_t>(s.adapter.size());
    query.num_media = static_cast<int64_t>(s.media_begins.size());
    query.media_begins = s.media_begins.data();
    query.media_tokens = s.media_tokens.data();
    query.media_hashes = s.media_hashes.data();
    return query;
  }
  // In most cases tokens that were published, cut at any position and continued.
  Sequence draw() {
    Sequence s;
    s.salt = one_in(3) ? below(kSalts) : below(3);
    s.salt_begin = one_in(2) ? 0 : static_cast<int64_t>(below(12));
    if (one_in(3)) s.adapter = {static_cast<uint8_t>('a' + below(2))};
    for (int64_t at = static_cast<int64_t>(below(12)); at < 30 && !one_in(3); at += static_cast<int64_t>(below(5))) {
      const auto count = static_cast<int64_t>(1 + below(6));
      s.add_medium(at, count, static_cast<uint8_t>(below(2)));
      at += count;
    }
    if (!published_.empty() && !one_in(8)) {
      const size_t recent = std::min<size_t>(published_.size(), 20);
      const Sequence &old = published_[published_.size() - 1 - below(recent)];
      const Sequence drawn = std::exchange(s, old);
      if (one_in(8)) s.salt = drawn.salt, s.salt_begin = drawn.salt_begin;
      if (one_in(16)) s.adapter = drawn.adapter;
      if (one_in(10)) {
        s.media_begins = drawn.media_begins, s.media_tokens = drawn.media_tokens, s.media_hashes = drawn.media_hashes;
      }
      if (one_in(2)) s.tokens.resize(below(s.tokens.size() + 1));
    }
    for (uint64_t more = below(6); more-- > 0;) s.tokens.push_back(static_cast<int32_t>(below(2)));
    return s;
  }

  void operate() {
    const uint64_t what = below(24);
    if (what < 6 || model_.empty()) return attach();
    if (what < 12) return append();
    if (what < 16) return publish();
    if (what < 17) return fork();
    if (what < 18) return truncate();
    if (what < 20) return remove();
    if (what < 21) return pin();
    if (what < 22) return set_priority();
    if (what < 23) return drop();
    time_ += static_cast<int64_t>(below(10));
    EXPECT_EQ(kvc_cache_set_time(cache_.get(), time_, nullptr), KVC_OK);
  }

  void attach() {
    if (model_.size() == kSequences && !one_in(20)) remove();
    Sequence s = draw();
    kvc_prefix_query query = query_of(s);
    if (one_in(3)) query.flags = KVC_PREFIX_ALLOW_ALL;
    kvc_prefix_hit match, hit;
    kvc_prefix_hit_init(&match);
    kvc_prefix_hit_init(&hit);
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_prefix_match(cache_.get(), &query, &match, &error), KVC_OK) << error.message;
    const kvc_status status = kvc_prefix_attach(cache_.get(), &query, nullptr, &hit, &seq, &error);
    if (model_.size() == kSequences) {
      ASSERT_EQ(status, KVC_ERROR_TOO_MANY_SEQUENCES);
      ASSERT_EQ(error.required, 1);
      ASSERT_EQ(error.available, 0);
      return;
    }
    if (status == KVC_ERROR_OUT_OF_PAGES) {
      ASSERT_GT(match.copied_tokens, 0);
      shortages_++;
      return;
    }
    ASSERT_EQ(status, KVC_OK) << error.message;
    ASSERT_EQ(hit.tokens, match.tokens);
    ASSERT_EQ(hit.known_tokens, match.known_tokens);
    ASSERT_EQ(hit.copied_tokens, hit.tokens % kPageSize);
    const int64_t most = query.flags ? s.length() : std::max<int64_t>(0, s.length() - 1);
    ASSERT_LE(hit.tokens, std::min(hit.known_tokens, most));
    int64_t longest = 0;
    for (const Sequence &old : published_) longest = std::max(longest, s.same_as(old));
    ASSERT_LE(hit.known_tokens, longest);
    if (exact_) {
      ASSERT_EQ(hit.tokens, std::min(longest, most));
    }
    ASSERT_EQ(hit.limited_by >= 0, hit.tokens < std::min(hit.known_tokens, most));
    hits_ += hit.tokens > 0;
    found_tokens_ += hit.tokens;
    s.tokens.resize(static_cast<size_t>(hit.tokens));
    model_[seq] = s;
  }

  // A step with the hashes of the new tokens, which is ended or aborted. can_fit gives the same status as begin.
  void append() {
    const kvc_seq seq = pick();
    Sequence after = model_[seq];
    const auto count = static_cast<int32_t>(1 + below(9));
    for (int32_t i = 0; i < count; i++) after.tokens.push_back(static_cast<int32_t>(below(2)));
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &count;
    batch.num_sequences = 1;
    int64_t most = 0;
    ASSERT_EQ(kvc_seq_max_append(cache_.get(), 1, &seq, &most, nullptr), KVC_OK);
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status fits = kvc_cache_can_fit(cache_.get(), &batch, nullptr);
    kvc_forward f = 0;
    const kvc_status begun = kvc_forward_begin(cache_.get(), &batch, nullptr, &f, &error);
    ASSERT_EQ(begun, fits) << error.message;
    ASSERT_EQ(begun == KVC_OK, count <= most) << count << " of " << most << " " << error.message;
    if (begun != KVC_OK) {
      ASSERT_EQ(begun, KVC_ERROR_OUT_OF_PAGES);
      shortages_++;
      return;
    }
    const std::vector<uint64_t> hashes = after.hashes();
    const int64_t before = after.length() - count;
    for (size_t layer = 0; layer < groups_.size(); layer++) {
      const auto index = static_cast<int32_t>(layer);
      if (groups_[layer] == kRecurrent) {
        Tensor loaded(DType::kF32, {1, kDim}), next(DType::kF32, {1, kDim});
        ASSERT_EQ(kvc_forward_load_state(cache_.get(), f, index, 0, -1, loaded.dl(), nullptr), KVC_OK);
        for (int64_t d = 0; d < kDim; d++) {
          const float wanted =
              before == 0 ? 0 : value_of(hashes[static_cast<size_t>(before - 1)], static_cast<uint64_t>(100 + d));
          ASSERT_EQ(loaded.at(0, d), wanted) << "state after " << before << " tokens";
          next.set(0, d, value_of(hashes.back(), static_cast<uint64_t>(100 + d)));
        }
        ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, index, 0, -1, next.dl(), nullptr), KVC_OK);
        continue;
      }
      Tensor k(DType::kF32, {count, 1, kDim}), v(DType::kF32, {count, 1, kDim});
      for (int64_t i = 0; i < count; i++) {
        for (int64_t d = 0; d < kDim; d++) {
          k.set(i, 0, d, value_of(hashes[static_cast<size_t>(before + i)], layer * 10 + static_cast<uint64_t>(d)));
          v.set(i, 0, d, value_of(hashes[static_cast<size_t>(before + i)], layer * 10 + 5));
        }
      }
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = k.dl();
      if (groups_[layer] != kLatent) args.v = v.dl();
      ASSERT_EQ(kvc_forward_append(cache_.get(), f, index, &args, &error), KVC_OK) << error.message;
    }
    if (one_in(6)) {
      ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);
      return;
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error), KVC_OK) << error.message;
    model_[seq] = after;
  }

  void publish() {
    const kvc_seq seq = pick();
    Sequence s = model_[seq];
    if (one_in(5)) s.tokens.resize(below(s.tokens.size() + 1));
    const kvc_prefix_query query = query_of(s);
    kvc_prefix_options options;
    kvc_prefix_options_init(&options);
    if (one_in(2)) options.session = 1 + below(5);
    if (one_in(2)) options.priority = static_cast<int32_t>(below(101));
    if (one_in(4)) options.time_to_live = static_cast<int64_t>(1 + below(30));
    kvc_prefix_published published;
    kvc_prefix_published_init(&published);
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_prefix_publish(cache_.get(), seq, &query, &options, &published, &error), KVC_OK) << error.message;
    ASSERT_LE(published.known_tokens, s.length());
    if (exact_) {
      ASSERT_EQ(published.known_tokens, s.length());
    }
    published_.push_back(s);
    follower_->remember(query);
  }
  // A reader that reads events from time to time has the pages of the index.
  void check_events() {
    if (!one_in(4)) return;
    gaps_ += follower_->read();
    follower_->check();
  }

  void fork() {
    const kvc_seq parent = pick();
    int64_t position = static_cast<int64_t>(below(model_[parent].tokens.size() + 1));
    if (one_in(2)) position = model_[parent].length();
    kvc_seq child = 0;
    const kvc_status status = kvc_seq_fork(cache_.get(), 1, &parent, &position, &child, nullptr, nullptr);
    if (status != KVC_OK) return;  // tests of forks check when that is right
    Sequence copy = model_[parent];
    copy.tokens.resize(static_cast<size_t>(position));
    model_[child] = copy;
  }
  void truncate() {
    const kvc_seq seq = pick();
    const auto length = static_cast<int64_t>(below(model_[seq].tokens.size() + 1));
    if (kvc_seq_truncate(cache_.get(), 1, &seq, &length, nullptr) != KVC_OK) return;
    model_[seq].tokens.resize(static_cast<size_t>(length));
  }
  void remove() {
    const kvc_seq seq = pick();
    std::vector<int64_t> expected;  // available pages of each group
    for (size_t g = 0; g < groups_.size(); g++) {
      int64_t pages = -1;
      ASSERT_EQ(kvc_seq_exclusive_pages(cache_.get(), static_cast<int32_t>(g), 1, &seq, &pages, nullptr), KVC_OK);
      expected.push_back(available(g) + pages);
    }
    ASSERT_EQ(kvc_seq_remove(cache_.get(), 1, &seq, nullptr), KVC_OK);
    for (size_t g = 0; g < groups_.size(); g++) ASSERT_EQ(available(g), expected[g]) << "group " << g;
    model_.erase(seq);
  }
  void pin() {
    if (!pins_.empty() && (one_in(2) || pins_.size() > 2)) {
      ASSERT_EQ(kvc_prefix_unpin(cache_.get(), pins_.back(), nullptr), KVC_OK);
      pins_.pop_back();
      return;
    }
    const Sequence s = draw();
    const kvc_prefix_query query = query_of(s);
    pins_.push_back(0);
    ASSERT_EQ(kvc_prefix_pin(cache_.get(), &query, nullptr, &pins_.back(), nullptr), KVC_OK);
  }
  void set_priority() {
    const auto priority = static_cast<int32_t>(below(101));
    const auto time_to_live = static_cast<int64_t>(below(20));
    if (one_in(2)) {
      const uint64_t session = 1 + below(5);
      ASSERT_EQ(kvc_prefix_set_session_priority(cache_.get(), session, priority, time_to_live, nullptr), KVC_OK);
      return;
    }
    const Sequence s = draw();
    const kvc_prefix_query query = query_of(s);
    ASSERT_EQ(kvc_prefix_set_priority(cache_.get(), &query, priority, time_to_live, nullptr), KVC_OK);
  }
  // A dropped prefix is not found: the hit ends before its last page.
  void drop() {
    if (exact_) return;
    int64_t pages = -1;
    if (one_in(2)) {
      ASSERT_EQ(kvc_prefix_drop_session(cache_.get(), 1 + below(5), &pages, nullptr), KVC_OK);
      ASSERT_GE(pages, 0);
      return;
    }
    const Sequence s = draw();
    kvc_prefix_query query = query_of(s);
    ASSERT_EQ(kvc_prefix_drop(cache_.get(), &query, &pages, nullptr), KVC_OK);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    query.flags = KVC_PREFIX_ALLOW_ALL;
    ASSERT_EQ(kvc_prefix_match(cache_.get(), &query, &hit, nullptr), KVC_OK);
    if (s.length() > 0) {
      ASSERT_LT(hit.known_tokens, s.length());
    }
  }

  // Checks K and V of every sequence where its next query sees them.
  void check_contents() {
    for (const auto &[seq, s] : model_) {
      const std::vector<uint64_t> hashes = s.hashes();
      for (size_t layer = 0; s.length() > 0 && layer < groups_.size(); layer++) {
        const int kind = groups_[layer];
        if (kind == kRecurrent) continue;
        const int64_t n = s.length();
        const int64_t first = kind == kSliding   ? std::max<int64_t>(0, n - kWindow + 1)
                              : kind == kChunked ? std::min(n / kChunk * kChunk, n - 1)
                                                 : 0;
        if (kind == kChunked && n % kChunk == 0) continue;  // it sees none of them
        kvc_export_args args;
        kvc_export_args_init(&args);
        args.layer = static_cast<int32_t>(layer);
        args.position_begin = first;
        args.position_end = n;
        DLManagedTensorVersioned *k = nullptr, *v = nullptr;
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(export_kv(cache_.get(), seq, &args, &k, &v, nullptr, &error), KVC_OK) << error.message;
        const Managed k_owner(k), v_owner(v);
        for (int64_t p = first; p < n; p++) {
          const uint64_t hash = hashes[static_cast<size_t>(p)];
          for (int64_t d = 0; d < kDim; d++) {
            ASSERT_EQ(at(k->dl_tensor, {p - first, 0, d}), value_of(hash, layer * 10 + static_cast<uint64_t>(d)))
                << "position " << p << " of " << n << " in layer " << layer;
            if (v != nullptr) {
              ASSERT_EQ(at(v->dl_tensor, {p - first, 0, d}), value_of(hash, layer * 10 + 5));
            }
          }
        }
      }
    }
  }
  kvc_stats stats(int32_t group = -1) const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache_.get(), group, &stats, nullptr), KVC_OK);
    return stats;
  }
  int64_t available(size_t group) const {
    const kvc_stats s = stats(static_cast<int32_t>(group));
    return s.pages_free + s.pages_idle;
  }
  void check_stats() {
    for (size_t g = 0; g < groups_.size(); g++) {
      const kvc_stats s = stats(static_cast<int32_t>(g));
      ASSERT_EQ(s.pages_used + s.pages_free, s.pages_total);
      ASSERT_LE(s.pages_idle, s.pages_published);
      ASSERT_LE(s.pages_published, s.pages_used);
      ASSERT_EQ(s.prefix_tokens, found_tokens_);
    }
    evicted_ = stats().pages_evicted;
  }
  // Without sequences and pins every page is free or idle, and clear frees them all.
  void finish() {
    for (const auto &[seq, s] : model_) ASSERT_EQ(kvc_seq_remove(cache_.get(), 1, &seq, nullptr), KVC_OK);
    for (const uint64_t pin : pins_) ASSERT_EQ(kvc_prefix_unpin(cache_.get(), pin, nullptr), KVC_OK);
    const kvc_stats before = stats();
    EXPECT_EQ(before.pages_idle, before.pages_used);
    EXPECT_EQ(before.pages_idle, before.pages_published);
    ASSERT_EQ(kvc_cache_clear(cache_.get(), nullptr), KVC_OK);
    EXPECT_EQ(stats().pages_used, 0);
    gaps_ += follower_->read();
    EXPECT_TRUE(follower_->pages().empty());
    follower_->check();
    EXPECT_EQ(kvc_cache_check_invariants(cache_.get(), nullptr), KVC_OK);
  }

  std::mt19937_64 random_;
  const bool exact_;
  ContextPtr context_;
  CachePtr cache_;
  std::vector<int> groups_;
  std::map<kvc_seq, Sequence> model_;
  std::vector<Sequence> published_;
  std::unique_ptr<EventFollower> follower_;
  std::vector<uint64_t> pins_;
  int64_t time_ = 0, hits_ = 0, found_tokens_ = 0, shortages_ = 0, evicted_ = 0, gaps_ = 0;
};

class Prefixes : public testing::TestWithParam<int> {};

TEST_P(Prefixes, AttachedSequencesHoldTheirTokens) {
  PrefixWalk walk(static_cast<uint64_t>(GetParam()), false);
  walk.run(1500);
  EXPECT_GT(walk.hits(), 10);
  EXPECT_GT(walk.evicted(), 100);
  EXPECT_GT(walk.shortages(), 0);
  EXPECT_EQ(walk.gaps() > 0, GetParam() % 3 == 0);
}
TEST_P(Prefixes, FindWhatWasPublished) {
  PrefixWalk walk(static_cast<uint64_t>(GetParam()), true);
  walk.run(600);
  EXPECT_GT(walk.hits(), 60);
}
TEST_P(Prefixes, OfStatesAlone) {
  PrefixWalk walk(static_cast<uint64_t>(GetParam()), false, true);
  walk.run(1000);
  EXPECT_GT(walk.hits(), 10);
}
TEST_P(Prefixes, EqualCallsGiveEqualPages) {
  const std::vector<uint64_t> digests = PrefixWalk(static_cast<uint64_t>(GetParam()), false).run(400);
  EXPECT_EQ(PrefixWalk(static_cast<uint64_t>(GetParam()), false).run(400), digests);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Prefixes, testing::Range(1, 11));

}  // namespace
}  // namespace kvt
