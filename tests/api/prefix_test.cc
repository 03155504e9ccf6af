// The prefix index through the C API: each promise of section 12 of the header. tests/model/prefix_test.cc mixes them.
#include "prefix_fixture.h"

namespace kvt {
namespace {

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
  // The published last page is no longer written, so the next step of its sequence uses a copy.
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

// The index is full, and evicts two pages for those that it adds.
TEST(Prefixes, EvictedPagesAreNeitherAddedNorFreed) {
  Prefix p(Prefix::spec_of({GroupSpec{}, GroupSpec{4}}, 40));
  BuiltConfig built(p.spec);
  built.config.prefix_pages = 2;
  kvc_cache *small = nullptr;
  ASSERT_EQ(kvc_cache_create(p.context.get(), &built.config, &small, nullptr), KVC_OK);
  p.owner.reset(small);
  p.remember(p.query(count_to(4)));
  p.remember(p.query(count_to(4, 50)));
  const kvc_seq seq = p.add();
  ASSERT_EQ(p.step(seq, 8), KVC_OK);
  const kvc_prefix_published published = p.publish(seq, p.query(count_to(8)));
  EXPECT_EQ(published.known_tokens, 8);
  EXPECT_EQ(published.pages_added, 2);
  EXPECT_EQ(published.pages_freed, 1);  // the first page, which the index had
}

// The index's reference to a page does not count, since the page can be evicted. That of a pin does.
TEST(Prefixes, ExclusivePagesBecomeAvailable) {
  Prefix p;
  const auto exclusive = [&](kvc_seq seq) {
    int64_t pages = -1;
    EXPECT_EQ(kvc_seq_exclusive_pages(p.cache(), 0, 1, &seq, &pages, nullptr), KVC_OK);
    return pages;
  };
  const auto available = [&] { return p.stats().pages_free + p.stats().pages_idle; };
  const kvc_seq parent = p.add();
  EXPECT_EQ(exclusive(parent), 0);
  ASSERT_EQ(p.step(parent, 10), KVC_OK);
  EXPECT_EQ(exclusive(parent), 3);
  p.publish(parent, p.query(count_to(8)));
  EXPECT_EQ(exclusive(parent), 3);
  kvc_seq child = 0;
  ASSERT_EQ(kvc_seq_fork(p.cache(), 1, &parent, nullptr, &child, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(exclusive(parent), 1);
  EXPECT_EQ(exclusive(child), 1);
  p.remove(child);
  EXPECT_EQ(exclusive(parent), 3);
  const Tokens tokens = count_to(8);
  const kvc_prefix_query query = p.query(tokens);
  uint64_t pin = 0;
  ASSERT_EQ(kvc_prefix_pin(p.cache(), &query, nullptr, &pin, nullptr), KVC_OK);
  EXPECT_EQ(exclusive(parent), 1);
  ASSERT_EQ(kvc_prefix_unpin(p.cache(), pin, nullptr), KVC_OK);
  kvc_forward forward = 0;
  ASSERT_EQ(p.begin(parent, 3, &forward), KVC_OK);
  EXPECT_EQ(exclusive(parent), 4);  // with a page of the open forward
  ASSERT_EQ(kvc_forward_abort(p.cache(), forward, nullptr), KVC_OK);
  for (const int32_t group : {-1, 1}) {
    int64_t pages = -1;
    EXPECT_EQ(kvc_seq_exclusive_pages(p.cache(), group, 1, &parent, &pages, nullptr), KVC_ERROR_OUT_OF_RANGE);
    EXPECT_EQ(pages, -1);
  }
  const int64_t before = available();
  p.remove(parent);
  EXPECT_EQ(available(), before + 3);
}

TEST(Prefixes, BeginEvictsIdlePagesAndNothingElse) {
  Prefix p(10);
  p.remember(p.query(count_to(24)));
  EXPECT_EQ(p.stats().pages_idle, 6);
  const kvc_seq seq = p.add();
  int64_t most = 0;
  ASSERT_EQ(kvc_seq_max_append(p.cache(), 1, &seq, &most, nullptr), KVC_OK);
  EXPECT_EQ(most, 40);
  ASSERT_EQ(p.step(seq, 28), KVC_OK);  // 7 pages: 3 of the 6 idle pages are evicted, from the end
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
  EXPECT_EQ(error.available, 0);
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
  p.remember(p.query(count_to(16, 200)), 0, 50, 10);  // expires at 10
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
  EXPECT_EQ(pages, 2);  // the first two belong to both sessions
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

TEST(Prefixes, APageIsPublishedUnderOneSalt) {
  Prefix p;
  const kvc_seq seq = p.add();
  ASSERT_EQ(p.step(seq, 10), KVC_OK);
  p.publish(seq, p.query(count_to(10), 1));
  const kvc_prefix_published again = p.publish(seq, p.query(count_to(10), 2));
  EXPECT_EQ(again.known_tokens, 0);
  EXPECT_EQ(again.pages_added, 0);
  EXPECT_EQ(p.found(p.query(count_to(10), 2)), 0);
  EXPECT_EQ(p.found(p.query(count_to(10), 1)), 10);
}

TEST(Prefixes, AnAttachedWindowHasOfItsRollbackMarginWhatThereIs) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}, GroupSpec{4}}, 40);
  spec.rollback = 8;
  spec.groups[1].pages = 12;
  Prefix p(spec);
  p.remember(p.query(count_to(40)));  // pages 7 to 9 of the window: tokens 37 to 39 are seen, 29 to 36 are the margin
  kvc_prefix_hit hit;
  const kvc_seq seq = p.attach(p.query(count_to(40)), &hit);
  int64_t before = 0;
  ASSERT_EQ(kvc_seq_nearest_position(p.cache(), seq, 34, &before, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(before, 34);
  p.remove(seq);
  // Ten of the twelve pages are taken, so one of the three prefixes is evicted: the first one.
  const kvc_seq other = p.add();
  for (int i = 0; i < 3; i++) ASSERT_EQ(p.step(other, 10 + i), KVC_OK);
  const kvc_seq third = p.add();
  ASSERT_EQ(p.step(third, 24), KVC_OK);
  const kvc_seq again = p.attach(p.query(count_to(40)), &hit);
  EXPECT_EQ(hit.tokens, 40);
  ASSERT_EQ(kvc_seq_nearest_position(p.cache(), again, 34, &before, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(before, 0);
  EXPECT_EQ(p.step(again, 1), KVC_OK);
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
  LayerTensors t(p.spec.layers[0], 8);  // the capacity of the graph
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
  ASSERT_EQ(p.step(seq, 1), KVC_OK);  // it writes to a copy, because the page is published
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

}  // namespace
}  // namespace kvt
