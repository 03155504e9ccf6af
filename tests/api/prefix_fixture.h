// A small cache with a prefix index.
#pragma once

#include <memory>
#include <numeric>

#include "fixture.h"

namespace kvt {

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
  // Computes and publishes a sequence of these tokens, and removes it.
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

inline Tokens count_to(int32_t n, int32_t first = 1) {
  Tokens tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

}  // namespace kvt
