// A cache without storage beside a cache with storage, with the same random calls. An engine keeps K and V of the first
// cache in plain arrays, and makes the copies that the cache gives it. Its arrays must then equal the second cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "wrappers.h"

namespace kvt {
namespace {

constexpr int kPlanSequences = 10, kHeads = 2, kPlanDim = 2, kRow = 2 * kHeads * kPlanDim;  // K and V of a token
constexpr int kCross = 2;                                                                   // the cross group
constexpr int kPlanGroups = 3;

// Groups: full, sliding, cross. Layer 3 reads layer 0's K and V.
struct Configs {
  kvc_layer_config layers[5];
  kvc_group_config groups[kPlanGroups];
  kvc_cache_config config;

  Configs(int page_size, int32_t storage, int64_t pages) {
    const int group_of[5] = {0, 1, kCross, 0, 1};
    const int visibilities[kPlanGroups] = {KVC_VISIBLE_ALL, KVC_VISIBLE_WINDOW, KVC_VISIBLE_ENCODER};
    for (int i = 0; i < 5; i++) {
      kvc_layer_config_init(&layers[i]);
      layers[i].group = group_of[i];
      layers[i].num_q_heads = layers[i].num_kv_heads = kHeads;
      layers[i].head_dim = kPlanDim;
    }
    layers[3].kv_layer = 1;
    for (int g = 0; g < kPlanGroups; g++) {
      kvc_group_config_init(&groups[g]);
      groups[g].visibility = visibilities[g];
      groups[g].num_pages = pages + g;
    }
    groups[1].window_tokens = 7;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.num_layers = 5;
    config.groups = groups;
    config.num_groups = kPlanGroups;
    config.page_size = page_size;
    config.max_sequences = kPlanSequences;
    config.max_batch_tokens = 64;
    config.rollback_tokens = 5;
    config.max_tree_nodes = 12;
    config.flags = KVC_CACHE_STREAMING;
    config.storage = storage;
  }
};

class Twins {
 public:
  Twins(uint64_t seed, int page_size)
      : random_(seed), page_size_(page_size), pages_(40 + 120 / page_size), context_(make_context()) {
    for (int i = 0; i < 2; i++) {
      Configs c(page_size, i == 0 ? KVC_STORAGE_OWN : KVC_STORAGE_NONE, pages_);
      kvc_cache *raw = nullptr;
      kvc_error error = KVC_ERROR_INIT;
      if (kvc_cache_create(context_.get(), &c.config, &raw, &error)) throw std::runtime_error(describe(error));
      (i == 0 ? own_ : none_).reset(raw);
    }
    for (int layer = 0; layer < 5; layer++) {
      for (int part = 0; part < 2; part++) {
        DLManagedTensorVersioned *view = nullptr;
        if (kvc_cache_export_pool(own_.get(), layer, part ? KVC_POOL_V : KVC_POOL_K, 0, &view, nullptr, nullptr)) {
          throw std::runtime_error("export_pool");
        }
        pools_[layer][part].reset(view);
      }
      plain_[layer].assign(static_cast<size_t>((pages_ + kPlanGroups) * page_size * kRow), -1.0f);
    }
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); i++) {
      SCOPED_TRACE("operation " + std::to_string(i));
      one();
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_cache_check_invariants(none_.get(), &error), KVC_OK) << error.message;
      if (i % 4 == 0) compare();
    }
    while (!open_.empty() && !testing::Test::HasFatalFailure()) close(open_.begin()->first);
    compare();
    if (operations < 6000) return;  // a shorter run was requested
    EXPECT_GT(taken_, 500);
    EXPECT_GT(compared_, 100000);
    EXPECT_EQ(moved_within_ > 0, page_size_ > 1) << "copies of a commit that overlap";
  }

 private:
  struct Sequence {
    kvc_seq own, none;
    bool busy = false;
  };
  struct Open {
    kvc_forward own, none;
    std::vector<int> rows;
    int64_t waiting;  // its own copies that were not taken yet
  };
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

  // Makes the same call on both caches, which must return the same status and numbers.
  kvc_status both(const std::function<kvc_status(kvc_cache *, bool, kvc_error *)> &call) {
    kvc_error a = KVC_ERROR_INIT, b = KVC_ERROR_INIT;
    const kvc_status status = call(own_.get(), true, &a);
    EXPECT_EQ(call(none_.get(), false, &b), status) << a.message << " / " << b.message;
    EXPECT_EQ(a.index, b.index) << a.message << " / " << b.message;
    EXPECT_EQ(a.required, b.required) << a.message << " / " << b.message;
    EXPECT_EQ(a.available, b.available) << a.message << " / " << b.message;
    EXPECT_EQ(a.group, b.group) << a.message << " / " << b.message;
    return status;
  }

  int64_t waiting() {
    int64_t count = -1;
    EXPECT_EQ(kvc_cache_take_copies(none_.get(), nullptr, sizeof(kvc_copy), 0, &count, nullptr), KVC_OK);
    return count;
  }

  // The engine's part: takes the copies, and makes them in its arrays in every layer of the group.
  void take() {
    std::vector<kvc_copy> copies(static_cast<size_t>(waiting() + uniform(0, 2)));
    int64_t count = 0;
    ASSERT_EQ(kvc_cache_take_copies(none_.get(), copies.data(), sizeof(kvc_copy), static_cast<int64_t>(copies.size()),
                                    &count, nullptr),
              KVC_OK);
    for (int64_t i = 0; i < count; i++) {
      const kvc_copy &c = copies[static_cast<size_t>(i)];
      ASSERT_GE(c.count, 1);
      ASSERT_EQ(c.source_slot / page_size_, (c.source_slot + c.count - 1) / page_size_) << "leaves its page";
      ASSERT_EQ(c.target_slot / page_size_, (c.target_slot + c.count - 1) / page_size_) << "leaves its page";
      const bool overlap = std::abs(c.source_slot - c.target_slot) < c.count;
      if (overlap) {
        ASSERT_LT(c.target_slot, c.source_slot);
        moved_within_++;
      }
      for (const int layer : {0, 1, 2, 4}) {
        if ((layer == 0 ? 0 : layer == 2 ? kCross : 1) != c.group) continue;
        float *slots = plain_[layer].data();
        std::memmove(slots + c.target_slot * kRow, slots + c.source_slot * kRow,
                     static_cast<size_t>(c.count) * kRow * sizeof(float));
      }
    }
    taken_ += count;
    for (auto &[id, open] : open_) open.waiting = 0;
    ASSERT_EQ(waiting(), 0);
  }

  // Copies one slot of the second cache's pools to the engine's arrays.
  void read_slot(int layer, int64_t slot, float *row) const {
    for (int part = 0; part < 2; part++) {
      const DLTensor &t = pools_[layer][part]->dl_tensor;
      for (int h = 0; h < kHeads; h++) {
        for (int d = 0; d < kPlanDim; d++) *row++ = at(t, {slot / page_size_, h, slot % page_size_, d});
      }
    }
  }

  // The new tokens of a layer. Every value is new, so the slots that changed in the second cache are those of the step.
  // The engine stores the tokens in these slots.
  void append(Open *open, int layer, int64_t tokens) {
    const int64_t slots =
        static_cast<int64_t>(plain_[layer].size()) / kRow - (kPlanGroups - group_of(layer)) * page_size_;
    std::vector<float> before(static_cast<size_t>(slots * kRow)), after(before);
    for (int64_t s = 0; s < slots; s++) read_slot(layer, s, before.data() + s * kRow);
    Tensor k(DType::kF32, {tokens, kHeads, kPlanDim}), v(DType::kF32, {tokens, kHeads, kPlanDim});
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < kHeads; h++) {
        for (int d = 0; d < kPlanDim; d++) {
          k.set(t, h, d, static_cast<float>(++value_));
          v.set(t, h, d, -static_cast<float>(value_));
        }
      }
    }
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    args.v = v.dl();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_append(own_.get(), open->own, layer, &args, &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_append(none_.get(), open->none, layer, &args, nullptr), KVC_ERROR_UNSUPPORTED);
    for (int64_t s = 0; s < slots; s++) read_slot(layer, s, after.data() + s * kRow);
    for (int64_t s = 0; s < slots; s++) {
      if (!std::equal(after.begin() + s * kRow, after.begin() + (s + 1) * kRow, before.begin() + s * kRow)) {
        std::copy_n(after.begin() + s * kRow, kRow, plain_[layer].begin() + s * kRow);
      }
    }
  }
  static int group_of(int layer) { return layer == 2 ? kCross : layer == 1 || layer == 4 ? 1 : 0; }

  std::vector<int> idle() const {
    std::vector<int> handles;
    for (const auto &[handle, s] : sequences_) {
      if (!s.busy) handles.push_back(handle);
    }
    return handles;
  }
  int64_t length(const Sequence &s) {
    int64_t a = -1, b = -1;
    EXPECT_EQ(kvc_seq_lengths(own_.get(), 1, &s.own, &a, nullptr), KVC_OK);
    EXPECT_EQ(kvc_seq_lengths(none_.get(), 1, &s.none, &b, nullptr), KVC_OK);
    EXPECT_EQ(a, b);
    return a;
  }
  int32_t nodes(const Sequence &s) {
    int32_t n = 0;
    EXPECT_EQ(kvc_seq_tree_nodes(own_.get(), 1, &s.own, &n, nullptr), KVC_OK);
    return n;
  }

  void one() {
    const std::vector<int> from = idle();
    const auto pick = [&] { return from[static_cast<size_t>(uniform(0, static_cast<int64_t>(from.size()) - 1))]; };
    const int64_t dice = from.empty() ? 0 : uniform(0, 15);
    if (chance(0.1)) take();
    if (dice == 0) {
      Sequence s = {};
      if (both([&](kvc_cache *c, bool own, kvc_error *e) { return kvc_seq_add(c, 1, own ? &s.own : &s.none, e); })) {
        return make_room(from);
      }
      sequences_[next_++] = s;
    } else if (dice == 1) {
      remove(pick());
    } else if (dice <= 4) {
      fork({pick(), chance(0.3) ? pick() : -1});
    } else if (dice <= 6) {
      const Sequence s = sequences_.at(pick());
      const int64_t n = length(s), to = chance(0.3) ? uniform(0, n) : std::max<int64_t>(0, n - uniform(0, 5));
      both(
          [&](kvc_cache *c, bool own, kvc_error *e) { return kvc_seq_truncate(c, 1, own ? &s.own : &s.none, &to, e); });
    } else if (dice <= 8) {
      commit(from);
    } else if (dice == 9) {
      const Sequence s = sequences_.at(pick());
      const int64_t sinks = uniform(0, 4), window = sinks + uniform(4, 12);
      both([&](kvc_cache *c, bool own, kvc_error *e) {
        return kvc_seq_set_streaming(c, 1, own ? &s.own : &s.none, &sinks, &window, 0, e);
      });
    } else if (dice == 10 && !open_.empty()) {
      close(open_.begin()->first);
    } else if (dice == 11 && chance(0.03) && open_.empty()) {
      both([&](kvc_cache *c, bool, kvc_error *e) { return kvc_cache_clear(c, e); });
      sequences_.clear();
      ASSERT_EQ(waiting(), 0);
    } else {
      begin(from);
    }
  }

  // After a refusal because pages, sequences or forwards are used up.
  void make_room(const std::vector<int> &from) {
    if (!open_.empty()) return close(open_.begin()->first);
    for (const int handle : from) {
      if (chance(0.5)) remove(handle);
    }
  }
  void remove(int handle) {
    const Sequence s = sequences_.at(handle);
    both([&](kvc_cache *c, bool own, kvc_error *e) { return kvc_seq_remove(c, 1, own ? &s.own : &s.none, e); });
    sequences_.erase(handle);
  }

  void fork(std::vector<int> parents) {
    if (parents[1] < 0) parents.pop_back();
    std::vector<kvc_seq> ids[2], children[2];
    std::vector<int64_t> positions;
    for (const int handle : parents) {
      const Sequence &s = sequences_.at(handle);
      ids[0].push_back(s.own);
      ids[1].push_back(s.none);
      const int64_t n = length(s);
      positions.push_back(chance(0.3) ? uniform(0, n) : n - std::min(n, uniform(0, 4)));
    }
    for (auto &c : children) c.resize(parents.size());
    if (waiting() >= kPlanSequences * kPlanGroups) take();
    const kvc_status status = both([&](kvc_cache *c, bool own, kvc_error *e) {
      return kvc_seq_fork(c, static_cast<int64_t>(parents.size()), ids[!own].data(), positions.data(),
                          children[!own].data(), nullptr, e);
    });
    for (size_t i = 0; i < parents.size() && !status; i++) sequences_[next_++] = {children[0][i], children[1][i]};
    if (status >= 100 && status < 200) make_room(idle());
  }

  void commit(const std::vector<int> &from) {
    std::vector<kvc_seq> ids[2];
    std::vector<int32_t> leaves;
    for (const int handle : from) {
      const Sequence &s = sequences_.at(handle);
      const int32_t n = nodes(s);
      if (n == 0 || chance(0.3)) continue;
      ids[0].push_back(s.own);
      ids[1].push_back(s.none);
      leaves.push_back(static_cast<int32_t>(uniform(-1, n - 1)));
    }
    if (waiting() >= kPlanSequences * kPlanGroups) take();
    both([&](kvc_cache *c, bool own, kvc_error *e) {
      return kvc_seq_commit(c, static_cast<int64_t>(leaves.size()), ids[!own].data(), leaves.data(), nullptr, e);
    });
  }

  void begin(const std::vector<int> &from) {
    Open open = {};
    std::vector<kvc_seq> ids[2];
    std::vector<int32_t> lengths, parents;
    const bool encoder = chance(0.2), trees = !encoder && chance(0.5);
    int64_t tokens = 0;
    for (const int handle : from) {
      const Sequence &s = sequences_.at(handle);
      const int32_t before = nodes(s);
      if (chance(0.5) || tokens > 40 || (before > 0 && !trees)) continue;
      auto n = static_cast<int32_t>(chance(0.5) ? 1 : uniform(1, 9));
      const bool tree = trees && (before > 0 || chance(0.7));
      if (tree && before + n > 12) continue;
      open.rows.push_back(handle);
      ids[0].push_back(s.own);
      ids[1].push_back(s.none);
      lengths.push_back(n);
      for (int32_t i = before; i < before + n; i++) {
        parents.push_back(!tree         ? KVC_TREE_NONE
                          : chance(0.6) ? i - 1
                                        : static_cast<int32_t>(uniform(std::max(-1, i - 4), i - 1)));
      }
      tokens += n;
    }
    if (tokens == 0) return;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(lengths.size());
    batch.tree_parents = trees ? parents.data() : nullptr;
    batch.encoder_group = encoder ? 1 + kCross : 0;
    if (waiting() > 0) {
      batch.sequences = ids[1].data();
      ASSERT_NE(kvc_cache_can_fit(none_.get(), &batch, nullptr), KVC_OK);
      ASSERT_NE(kvc_forward_begin(none_.get(), &batch, nullptr, &open.none, nullptr), KVC_OK);
      take();
    }
    const kvc_status status = both([&](kvc_cache *c, bool own, kvc_error *e) {
      batch.sequences = ids[!own].data();
      return kvc_forward_begin(c, &batch, nullptr, own ? &open.own : &open.none, e);
    });
    if (status) {
      if (status == KVC_ERROR_OUT_OF_PAGES || status == KVC_ERROR_TOO_MANY_FORWARDS) make_room(from);
      return;
    }
    open.waiting = waiting();
    if (chance(0.5)) take(), open.waiting = 0;  // else later, but before the next step
    for (const int layer : {0, 1, 2, 4}) {
      if ((layer == 2) == encoder) append(&open, layer, tokens);
    }
    for (const int handle : open.rows) sequences_.at(handle).busy = true;
    const kvc_forward key = open.own;
    open_[key] = std::move(open);
    if (chance(0.6)) close(key);
  }

  void close(kvc_forward key) {
    const Open open = open_.at(key);
    const int64_t before = waiting();
    const bool keep = !chance(0.2);
    both([&](kvc_cache *c, bool own, kvc_error *e) {
      const kvc_forward id = own ? open.own : open.none;
      return keep ? kvc_forward_end(c, id, e) : kvc_forward_abort(c, id, e);
    });
    ASSERT_EQ(waiting(), before - (keep ? 0 : open.waiting)) << "an abort drops its own copies, and no others";
    for (const int handle : open.rows) sequences_.at(handle).busy = false;
    open_.erase(key);
  }

  // Pages are equal. When the copies are made, all tokens are equal too.
  void compare() {
    if (chance(0.5)) take();
    const bool made = waiting() == 0;
    for (const auto &[handle, s] : sequences_) {
      for (int g = 0; g < kPlanGroups; g++) {
        std::vector<int32_t> pages[2];
        for (int i = 0; i < 2; i++) {
          int64_t count = 0;
          kvc_cache *cache = i ? none_.get() : own_.get();
          const kvc_seq id = i ? s.none : s.own;
          ASSERT_EQ(kvc_seq_pages(cache, id, g, nullptr, 0, &count, nullptr), KVC_OK);
          pages[i].resize(static_cast<size_t>(count));
          ASSERT_EQ(kvc_seq_pages(cache, id, g, pages[i].data(), count, &count, nullptr), KVC_OK);
        }
        ASSERT_EQ(pages[0], pages[1]) << "group " << g;
        int64_t tokens = length(s);
        if (g == kCross) {
          ASSERT_EQ(kvc_seq_encoder_lengths(own_.get(), g, 1, &s.own, &tokens, nullptr), KVC_OK);
        }
        for (int64_t p = 0; p < tokens && made; p++) {
          const int32_t page = pages[0][static_cast<size_t>(p / page_size_)];
          if (page < 0) continue;
          const int64_t slot = int64_t{page} * page_size_ + p % page_size_;
          for (int layer = 0; layer < 5; layer++) {
            if (layer == 3 || group_of(layer) != g) continue;
            float row[kRow];
            read_slot(layer, slot, row);
            ASSERT_TRUE(std::equal(row, row + kRow, plain_[layer].data() + slot * kRow))
                << "layer " << layer << " position " << p << " of " << tokens << " slot " << slot << ": "
                << plain_[layer][static_cast<size_t>(slot * kRow)] << ", not " << row[0];
            compared_++;
          }
        }
      }
    }
    if (!made) return;
    uint64_t digests[2];
    ASSERT_EQ(kvc_cache_digest(own_.get(), &digests[0], nullptr), KVC_OK);
    ASSERT_EQ(kvc_cache_digest(none_.get(), &digests[1], nullptr), KVC_OK);
    ASSERT_EQ(digests[0], digests[1]);
  }

  std::mt19937_64 random_;
  const int64_t page_size_, pages_;
  ContextPtr context_;
  CachePtr own_, none_;
  Managed pools_[5][2];
  std::vector<float> plain_[5];  // [slots, K and V, heads, dims]: the engine's pools
  std::map<int, Sequence> sequences_;
  std::map<kvc_forward, Open> open_;
  int next_ = 0;
  int64_t value_ = 0, taken_ = 0, moved_within_ = 0, compared_ = 0;
};

class TablesOnly : public testing::TestWithParam<int> {};

TEST_P(TablesOnly, CopiesThatAreHandedOverGiveWhatATwinHolds) {
  const int page_sizes[] = {4, 1, 7, 16};
  const char *whole_run = std::getenv("KVC_MODEL_OPERATIONS");  // 500000: this is a small part of it
  const int64_t wanted = whole_run && *whole_run ? std::strtoll(whole_run, nullptr, 10) * 12 / 1000 : 6000;
  const auto operations = static_cast<int>(std::clamp<int64_t>(wanted, 500, 1000000));
  Twins(static_cast<uint64_t>(GetParam()), page_sizes[GetParam() % 4]).run(operations);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TablesOnly, testing::Range(0, 8));

}  // namespace
}  // namespace kvt
