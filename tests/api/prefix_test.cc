// The prefix index through the C API: each promise of section 12 of the header. tests/model/prefix_test.cc mixes them.
#include <numeric>

#include "fixture.h"

namespace kvt {
namespace {

using Tokens = std::vector<int32_t>;

// A cache of one full group with pages of 4 tokens, or of other groups.
struct Prefix {
  static CacheSpec spec_of(std::vector<GroupSpec> groups, int64_t pages) {
    CacheSpec spec;
    spec.page_size = 4;
    spec.max_sequences = 6;
    spec.flags = KVC_CACHE_PREFIX_INDEX;
    spec.groups = std::move(groups);
    spec.layers.clear();
    for (size_t g = 0; g < spec.groups.size(); g++) {
      spec.groups[g].pages = pages;
      spec.layers.push_back(LayerSpec{static_cast<int>(g), 2, 1, 4});
    }
    return spec;
  }
  explicit Prefix(int64_t pages = 40) : Prefix(spec_of({GroupSpec{}}, pages)) {}
  explicit Prefix(const CacheSpec &s) : spec(s), context(make_context()), owner(make_cache(context.get(), s)) {}

  kvc_cache *cache() const { return owner.get(); }
  static kvc_prefix_query query(const Tokens &tokens, uint64_t salt = 0, int64_t salt_begin = 0) {
    kvc_prefix_query q;
    kvc_prefix_query_init(&q);
    q.tokens = tokens.data();
    q.num_tokens = static_cast<int64_t>(tokens.size());
    q.salt = salt;
    q.salt_begin = salt_begin;
    return q;
  }
  kvc_seq add() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(cache(), 1, &seq, nullptr), KVC_OK);
    return seq;
  }
  void remove(kvc_seq seq) { EXPECT_EQ(kvc_seq_remove(cache(), 1, &seq, nullptr), KVC_OK); }
  kvc_status begin(kvc_seq seq, int32_t tokens, kvc_forward *f, kvc_error *error = nullptr) {
    const kvc_batch batch = batch_of(seqs = {seq}, lengths = {tokens}, 0);
    const kvc_status fits = kvc_cache_can_fit(cache(), &batch, nullptr);
    const kvc_status begun = kvc_forward_begin(cache(), &batch, nullptr, f, error);
    EXPECT_EQ(begun, fits);
    return begun;
  }
  kvc_status step(kvc_seq seq, int32_t tokens, kvc_error *error = nullptr) {
    kvc_forward f = 0;
    if (const kvc_status begun = begin(seq, tokens, &f, error)) return begun;
    for (size_t l = 0; l < spec.layers.size(); l++) {
      LayerTensors t(spec.layers[l], tokens);
      const kvc_append_args args = t.append_args();
      EXPECT_EQ(kvc_forward_append(cache(), f, static_cast<int32_t>(l), &args, nullptr), KVC_OK);
    }
    return kvc_forward_end(cache(), f, error);
  }
  kvc_prefix_published publish(kvc_seq seq, const kvc_prefix_query &q, uint64_t session = 0, int32_t priority = 0,
                               int64_t time_to_live = 0) {
    kvc_prefix_options options;
    kvc_prefix_options_init(&options);
    options.session = session;
    options.priority = priority;
    options.time_to_live = time_to_live;
    kvc_prefix_published published;
    kvc_prefix_published_init(&published);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_prefix_publish(cache(), seq, &q, &options, &published, &error), KVC_OK) << error.message;
    return published;
  }
  // A sequence of these tokens that was published and removed.
  void remember(const kvc_prefix_query &q, uint64_t session = 0, int32_t priority = 0, int64_t time_to_live = 0) {
    kvc_prefix_hit hit;
    const kvc_seq seq = attach(q, &hit);
    if (hit.tokens < q.num_tokens) {
      EXPECT_EQ(step(seq, static_cast<int32_t>(q.num_tokens - hit.tokens)), KVC_OK);
    }
    publish(seq, q, session, priority, time_to_live);
    remove(seq);
  }
  kvc_seq attach(kvc_prefix_query q, kvc_prefix_hit *hit) {
    kvc_prefix_hit_init(hit);
    q.flags = KVC_PREFIX_ALLOW_ALL;
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_prefix_attach(cache(), &q, nullptr, hit, &seq, &error), KVC_OK) << error.message;
    return seq;
  }
  int64_t found(kvc_prefix_query q) {
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    q.flags = KVC_PREFIX_ALLOW_ALL;
    EXPECT_EQ(kvc_prefix_match(cache(), &q, &hit, nullptr), KVC_OK);
    return hit.tokens;
  }
  kvc_stats stats() const {
    kvc_stats s;
    kvc_stats_init(&s);
    EXPECT_EQ(kvc_cache_stats(cache(), -1, &s, nullptr), KVC_OK);
    return s;
  }
  std::vector<int32_t> pages(kvc_seq seq) const {
    std::vector<int32_t> list(64);
    int64_t count = 0;
    EXPECT_EQ(kvc_seq_pages(cache(), seq, 0, list.data(), 64, &count, nullptr), KVC_OK);
    list.resize(static_cast<size_t>(count));
    return list;
  }
  ~Prefix() { EXPECT_EQ(kvc_cache_check_invariants(cache(), nullptr), KVC_OK); }

  CacheSpec spec;
  ContextPtr context;
  CachePtr owner;
  std::vector<kvc_seq> seqs;
  std::vector<int32_t> lengths;
};

Tokens count_to(int32_t n, int32_t first = 1) {
  Tokens tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(Prefixes, ASecondRequestSharesPagesAndCopiesTheTail) {
  Prefix p;
  const Tokens prompt = count_to(10);
  const kvc_seq first = p.attach(p.query(prompt), std::make_unique<kvc_prefix_hit>().get());
  ASSERT_EQ(p.step(first, 10), KVC_OK);
  const kvc_prefix_published published = p.publish(first, p.query(prompt));
  EXPECT_EQ(published.known_tokens, 10);
  EXPECT_EQ(published.pages_added, 3);
  EXPECT_EQ(published.pages_freed, 0);
  kvc_prefix_query query = p.query(prompt);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_seq second = 0;
  ASSERT_EQ(kvc_prefix_attach(p.cache(), &query, nullptr, &hit, &second, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 9);  // the last token is computed, for its logits
  EXPECT_EQ(hit.copied_tokens, 1);
  EXPECT_EQ(hit.known_tokens, 10);
  EXPECT_EQ(hit.limited_by, -1);
  const auto a = p.pages(first), b = p.pages(second);
  EXPECT_EQ(std::vector(a.begin(), a.begin() + 2), std::vector(b.begin(), b.begin() + 2));
  EXPECT_NE(a[2], b[2]);
  EXPECT_EQ(p.stats().prefix_attaches, 2);
  EXPECT_EQ(p.stats().prefix_tokens, 9);
  // The published last page is not written any more: the next step of its sequence goes on in a copy.
  ASSERT_EQ(p.step(first, 1), KVC_OK);
  EXPECT_NE(p.pages(first)[2], a[2]);
  EXPECT_EQ(p.stats().pages_idle, 1);
}

TEST(Prefixes, PagesOfEqualTokensAreFreed) {
  Prefix p;
  const Tokens prompt = count_to(11);
  const kvc_seq first = p.add(), second = p.add();
  ASSERT_EQ(p.step(first, 11), KVC_OK);
  ASSERT_EQ(p.step(second, 11), KVC_OK);
  p.publish(first, p.query(prompt));
  const kvc_prefix_published again = p.publish(second, p.query(prompt));
  EXPECT_EQ(again.pages_added, 0);
  EXPECT_EQ(again.pages_freed, 2);  // the last page is not full, so each has its own
  EXPECT_EQ(p.stats().pages_used, 4);
}

TEST(Prefixes, BeginEvictsIdlePagesAndNothingElse) {
  Prefix p(10);
  p.remember(p.query(count_to(24)));
  EXPECT_EQ(p.stats().pages_idle, 6);
  const kvc_seq seq = p.add();
  int64_t most = 0;
  ASSERT_EQ(kvc_seq_max_append(p.cache(), 1, &seq, &most, nullptr), KVC_OK);
  EXPECT_EQ(most, 40);
  ASSERT_EQ(p.step(seq, 28), KVC_OK);  // 7 pages: 3 of the 6 go, from the end
  EXPECT_EQ(p.stats().pages_evicted, 3);
  EXPECT_EQ(p.found(p.query(count_to(24))), 12);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(p.step(p.add(), 13, &error), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(error.required, 4);
  EXPECT_EQ(error.available, 3);
  EXPECT_EQ(p.stats().pages_evicted, 3);  // a refused call evicts nothing
}

TEST(Prefixes, ForkAndAttachEvictForTheirCopies) {
  Prefix p(5);
  p.remember(p.query(count_to(4, 100)));
  p.remember(p.query(count_to(8)));
  kvc_prefix_hit hit;
  const kvc_seq seq = p.attach(p.query(count_to(7)), &hit);
  EXPECT_EQ(hit.tokens, 7);
  ASSERT_EQ(p.step(seq, 2), KVC_OK);
  EXPECT_EQ(p.stats().pages_free, 0);
  kvc_seq child = 0;
  ASSERT_EQ(kvc_seq_fork(p.cache(), 1, &seq, nullptr, &child, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(p.found(p.query(count_to(4, 100))), 0);
  kvc_seq none = 0;
  const Tokens tokens = count_to(7);
  kvc_prefix_query query = p.query(tokens);
  query.flags = KVC_PREFIX_ALLOW_ALL;
  const kvc_error error = refused(p.cache(), {KVC_ERROR_OUT_OF_PAGES}, "kvc_prefix_attach", [&](kvc_error *e) {
    return kvc_prefix_attach(p.cache(), &query, nullptr, nullptr, &none, e);
  });
  EXPECT_EQ(error.required, 1);
  EXPECT_EQ(error.group, 0);
}

TEST(Prefixes, PinnedPagesStay) {
  Prefix p(10);
  const Tokens prompt = count_to(24);
  p.remember(p.query(prompt));
  const kvc_prefix_query query = p.query(prompt);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  uint64_t pin = 0;
  ASSERT_EQ(kvc_prefix_pin(p.cache(), &query, &hit, &pin, nullptr), KVC_OK);
  EXPECT_NE(pin, 0u);
  EXPECT_EQ(hit.tokens, 24);
  EXPECT_EQ(p.stats().pages_idle, 0);
  EXPECT_EQ(p.step(p.add(), 20), KVC_ERROR_OUT_OF_PAGES);
  ASSERT_EQ(kvc_prefix_unpin(p.cache(), pin, nullptr), KVC_OK);
  EXPECT_EQ(p.step(p.add(), 20), KVC_OK);
  refused(p.cache(), {KVC_ERROR_STALE_ID}, "kvc_prefix_unpin",
          [&](kvc_error *e) { return kvc_prefix_unpin(p.cache(), pin, e); });
}

TEST(Prefixes, LowPriorityAndExpiredPrefixesGoFirst) {
  Prefix p(12);
  p.remember(p.query(count_to(16, 100)), 0, 10);      // the oldest, but the most important
  p.remember(p.query(count_to(16, 200)), 0, 50, 10);  // until 10
  p.remember(p.query(count_to(16, 300)), 0, 5);
  const kvc_seq seq = p.add();
  ASSERT_EQ(p.step(seq, 4), KVC_OK);
  EXPECT_EQ(p.found(p.query(count_to(16, 300))), 12);
  ASSERT_EQ(kvc_cache_set_time(p.cache(), 10, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_set_time(p.cache(), 3, nullptr), KVC_OK);  // time does not go back
  EXPECT_EQ(p.found(p.query(count_to(16, 200))), 16);            // expired, and still there
  ASSERT_EQ(p.step(seq, 4), KVC_OK);
  EXPECT_EQ(p.found(p.query(count_to(16, 200))), 12);
  EXPECT_EQ(p.found(p.query(count_to(16, 300))), 12);
  const Tokens tokens = count_to(16, 100);
  const kvc_prefix_query query = p.query(tokens);
  ASSERT_EQ(kvc_prefix_set_priority(p.cache(), &query, 0, 0, nullptr), KVC_OK);
  ASSERT_EQ(p.step(seq, 12 + 4), KVC_OK);
  EXPECT_EQ(p.found(p.query(count_to(16, 200))), 0);
  EXPECT_EQ(p.found(p.query(count_to(16, 100))), 12);
  EXPECT_EQ(p.found(p.query(count_to(16, 300))), 12);
}

TEST(Prefixes, ASessionIsDroppedWithWhatOnlyItUsed) {
  Prefix p;
  Tokens first = count_to(8), second = count_to(8);
  for (int32_t i = 0; i < 8; i++) first.push_back(100 + i), second.push_back(200 + i);
  p.remember(p.query(first), 7);
  EXPECT_EQ(p.stats().pages_published, 4);
  p.remember(p.query(second), 8);
  int64_t pages = -1;
  ASSERT_EQ(kvc_prefix_drop_session(p.cache(), 7, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 2);
  EXPECT_EQ(p.found(p.query(first)), 8);
  EXPECT_EQ(p.found(p.query(second)), 16);
  ASSERT_EQ(kvc_prefix_set_session_priority(p.cache(), 8, 100, 0, nullptr), KVC_OK);
  ASSERT_EQ(kvc_prefix_drop_session(p.cache(), 8, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 2);  // the first two were both sessions'
  EXPECT_EQ(p.stats().pages_idle, 2);
}

TEST(Prefixes, DropForgetsAPrefixAndWhatContinuesIt) {
  Prefix p;
  Tokens longer = count_to(8);
  for (int32_t i = 0; i < 8; i++) longer.push_back(100 + i);
  p.remember(p.query(longer));
  const kvc_seq user = p.attach(p.query(longer), std::make_unique<kvc_prefix_hit>().get());
  const Tokens tokens = count_to(7);  // ends within the second page
  const kvc_prefix_query query = p.query(tokens);
  int64_t pages = 0;
  ASSERT_EQ(kvc_prefix_drop(p.cache(), &query, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(p.found(p.query(longer)), 4);
  EXPECT_EQ(p.pages(user).size(), 4u);  // a sequence keeps its pages
  p.remember(p.query(longer, 5));
  const kvc_prefix_query all = p.query({}, 5);
  ASSERT_EQ(kvc_prefix_drop(p.cache(), &all, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 4);
  EXPECT_EQ(p.found(p.query(longer, 5)), 0);
  EXPECT_EQ(p.found(p.query(longer)), 4);
}

TEST(Prefixes, SaltsSeparateFromWhereTheyBegin) {
  Prefix p;
  const Tokens tokens = count_to(16);
  p.remember(p.query(tokens, 1, 8));
  EXPECT_EQ(p.found(p.query(tokens, 1, 8)), 16);
  EXPECT_EQ(p.found(p.query(tokens, 2, 8)), 8);
  EXPECT_EQ(p.found(p.query(tokens, 2, 0)), 0);
  EXPECT_EQ(p.found(p.query(tokens)), 8);
}

TEST(Prefixes, TheGroupThatLimitsAHitIsNamed) {
  Prefix p(Prefix::spec_of({GroupSpec{}, GroupSpec{8}}, 40));
  p.remember(p.query(count_to(40)));
  const Tokens tokens = count_to(30);
  const kvc_prefix_query query = p.query(tokens);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  ASSERT_EQ(kvc_prefix_match(p.cache(), &query, &hit, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 0);
  EXPECT_EQ(hit.known_tokens, 30);
  EXPECT_EQ(hit.limited_by, 1);
  kvc_prefix_hit whole;
  const kvc_seq seq = p.attach(p.query(count_to(40)), &whole);
  EXPECT_EQ(whole.tokens, 40);
  EXPECT_EQ(p.step(seq, 5), KVC_OK);
}

TEST(Prefixes, AnAbortBringsBackFreePagesButNotWhatWasEvicted) {
  Prefix p(6);
  p.remember(p.query(count_to(16)));
  const kvc_seq seq = p.add();
  kvc_forward f = 0;
  ASSERT_EQ(p.begin(seq, 16, &f), KVC_OK);
  const std::vector<int32_t> none = p.pages(seq);
  EXPECT_TRUE(none.empty());
  ASSERT_EQ(kvc_forward_abort(p.cache(), f, nullptr), KVC_OK);
  EXPECT_EQ(p.stats().pages_free, 4);
  EXPECT_EQ(p.found(p.query(count_to(16))), 8);
}

TEST(Prefixes, TreesAndGraphsGoOnFromAnAttachedSequence) {
  Prefix p;
  p.remember(p.query(count_to(10)));
  kvc_prefix_hit hit;
  const kvc_seq seq = p.attach(p.query(count_to(10)), &hit);
  const std::vector<kvc_seq> ids{seq};
  const std::vector<int32_t> two{2}, parents{KVC_TREE_ROOT, 0};
  kvc_batch batch = batch_of(ids, two, make_graph(p.cache(), 2, 8));
  batch.tree_parents = parents.data();
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(p.cache(), &batch, nullptr, &f, nullptr), KVC_OK);
  LayerTensors t(p.spec.layers[0], 2);
  const kvc_append_args args = t.append_args();
  ASSERT_EQ(kvc_forward_append(p.cache(), f, 0, &args, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(p.cache(), f, nullptr), KVC_OK);
  const Tokens tokens = count_to(10);
  const kvc_prefix_query query = p.query(tokens);
  refused(p.cache(), {KVC_ERROR_UNCOMMITTED}, "kvc_prefix_publish",
          [&](kvc_error *e) { return kvc_prefix_publish(p.cache(), seq, &query, nullptr, nullptr, e); });
  const int32_t leaf = 1;
  ASSERT_EQ(kvc_seq_commit(p.cache(), 1, &seq, &leaf, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(p.publish(seq, p.query(count_to(12))).known_tokens, 12);
  const int64_t length = 9;
  ASSERT_EQ(kvc_seq_truncate(p.cache(), 1, &seq, &length, nullptr), KVC_OK);
  ASSERT_EQ(p.step(seq, 1), KVC_OK);  // in a copy: the published page keeps its tokens
  EXPECT_EQ(p.found(p.query(count_to(12))), 12);
}

TEST(Prefixes, ACacheWithoutStorageHandsOverTheCopy) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 40);
  spec.storage = KVC_STORAGE_NONE;
  Prefix p(spec);
  const kvc_seq seq = p.add();
  kvc_forward f = 0;
  ASSERT_EQ(p.begin(seq, 10, &f), KVC_OK);
  ASSERT_EQ(kvc_forward_end(p.cache(), f, nullptr), KVC_OK);
  p.publish(seq, p.query(count_to(10)));
  kvc_prefix_hit hit;
  const kvc_seq other = p.attach(p.query(count_to(10)), &hit);
  kvc_copy copy = {};
  int64_t count = 0;
  ASSERT_EQ(kvc_cache_take_copies(p.cache(), &copy, sizeof copy, 1, &count, nullptr), KVC_OK);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(copy.source_slot, p.pages(seq)[2] * 4);
  EXPECT_EQ(copy.target_slot, p.pages(other)[2] * 4);
  EXPECT_EQ(copy.count, 2);
}

TEST(Prefixes, ClearForgetsEverything) {
  Prefix p;
  p.remember(p.query(count_to(10)));
  const Tokens tokens = count_to(10);
  const kvc_prefix_query query = p.query(tokens);
  uint64_t pin = 0;
  ASSERT_EQ(kvc_prefix_pin(p.cache(), &query, nullptr, &pin, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_clear(p.cache(), nullptr), KVC_OK);
  EXPECT_EQ(p.stats().pages_used, 0);
  EXPECT_EQ(p.found(query), 0);
}

TEST(Prefixes, PublishRefusesWhatItCannotKeep) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 40);
  spec.layers.push_back(spec.layers[0]);
  spec.streaming = true;
  Prefix p(spec);
  const kvc_seq seq = p.add();
  const Tokens tokens = count_to(6);
  const kvc_prefix_query query = p.query(tokens);
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &mentions = {}) {
    return refused(
        p.cache(), {status}, "kvc_prefix_publish",
        [&](kvc_error *e) { return kvc_prefix_publish(p.cache(), seq, &query, nullptr, nullptr, e); }, mentions);
  };
  refuse(KVC_ERROR_OUT_OF_RANGE, {"6", "length 0"});
  kvc_forward f = 0;
  const std::vector<kvc_seq> ids{seq};
  const std::vector<int32_t> six{6};
  kvc_batch batch = batch_of(ids, six, 0);
  batch.layer_end = 1;
  ASSERT_EQ(kvc_forward_begin(p.cache(), &batch, nullptr, &f, nullptr), KVC_OK);
  refuse(KVC_ERROR_BUSY);
  LayerTensors t(spec.layers[0], 6);
  const kvc_append_args args = t.append_args();
  ASSERT_EQ(kvc_forward_append(p.cache(), f, 0, &args, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(p.cache(), f, nullptr), KVC_OK);
  const kvc_error lacking = refuse(KVC_ERROR_ORDER);  // layer 1 lacks the tokens
  EXPECT_EQ(lacking.index, 1);
  EXPECT_EQ(lacking.required, 6);
  EXPECT_EQ(lacking.available, 0);
  const int64_t zero = 0, window = 8;
  ASSERT_EQ(kvc_seq_truncate(p.cache(), 1, &seq, &zero, nullptr), KVC_OK);
  ASSERT_EQ(p.step(seq, 6), KVC_OK);
  ASSERT_EQ(kvc_seq_set_streaming(p.cache(), 1, &seq, nullptr, &window, 0, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_set_streaming(p.cache(), 1, &seq, nullptr, &zero, 0, nullptr), KVC_OK);
  refuse(KVC_ERROR_UNSUPPORTED, {"streaming"});
}

TEST(Prefixes, ArgumentsAreChecked) {
  Prefix p;
  const Tokens tokens = count_to(6);
  kvc_prefix_query query = p.query(tokens);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  const auto match = [&](kvc_error *e) { return kvc_prefix_match(p.cache(), &query, &hit, e); };
  query.num_tokens = -1;
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_match", match, {"num_tokens -1"});
  query.num_tokens = 6;
  query.salt_begin = -1;
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_match", match, {"salt_begin -1"});
  query.salt_begin = 0;
  query.flags = 2;
  refused(p.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_prefix_match", match, {"flags 0x2"});
  query.flags = 0;
  query.tokens = nullptr;
  refused(p.cache(), {KVC_ERROR_NULL_ARGUMENT}, "kvc_prefix_match", match, {"tokens"});
  query = p.query(tokens);
  const auto priority = [&](int32_t value, int64_t time_to_live) {
    refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_set_priority",
            [&](kvc_error *e) { return kvc_prefix_set_priority(p.cache(), &query, value, time_to_live, e); });
    refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_set_session_priority",
            [&](kvc_error *e) { return kvc_prefix_set_session_priority(p.cache(), 1, value, time_to_live, e); });
  };
  priority(-1, 0);
  priority(101, 0);
  priority(0, -1);
  refused(p.cache(), {KVC_ERROR_INVALID_ARGUMENT}, "kvc_prefix_drop_session",
          [&](kvc_error *e) { return kvc_prefix_drop_session(p.cache(), 0, nullptr, e); });
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_set_time",
          [&](kvc_error *e) { return kvc_cache_set_time(p.cache(), -1, e); });
  World plain;
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_prefix_match",
          [&](kvc_error *e) { return kvc_prefix_match(plain.cache, &query, &hit, e); }, {"KVC_CACHE_PREFIX_INDEX"});
}

TEST(Prefixes, TheConfigIsChecked) {
  const ContextPtr context = make_context();
  const auto created = [&](uint32_t flags, int64_t pages, int64_t checkpoints) {
    BuiltConfig built(Prefix::spec_of({GroupSpec{}}, 8));
    built.config.flags = flags;
    built.config.prefix_pages = pages;
    built.config.prefix_checkpoints = checkpoints;
    kvc_cache *cache = nullptr;
    const kvc_status status = kvc_cache_create(context.get(), &built.config, &cache, nullptr);
    kvc_cache_destroy(cache);
    return status;
  };
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, 4, 0), KVC_OK);
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, 0, 1), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(created(0, 1, 0), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, -1, 0), KVC_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace kvt
