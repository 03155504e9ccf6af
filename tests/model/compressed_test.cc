// Random calls on a cache like DeepSeek-V4's: a sliding group of latent rows, groups with one row for each 4 and each
// 16 tokens, index keys beside rows, and keys of single tokens in sliding groups. All that is stored of a token or row
// is a function of the tokens up to it, so the model is a list of tokens for each sequence. Drafts that are rejected
// close rows, which then close again with other contents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compressed_cache.h"
#include "saved.h"

namespace kvt {
namespace {

using Seq = CompressedSeq;

class Walk {
 public:
  Walk(uint32_t seed, DType type, uint32_t flags, int threads = 1)
      : random_(seed),
        spec_(compressed_spec(type, flags)),
        context_(make_context(threads)),
        cache_(make_cache(context_.get(), spec_)) {
    if (!on_cpu()) return;
    kvc_tier_config tier;
    kvc_tier_config_init(&tier);
    tier.flags = KVC_TIER_HOST;
    tier.capacity_bytes = int64_t{1} << 24;
    EXPECT_EQ(kvc_cache_add_tier(cache_.get(), &tier, nullptr), KVC_OK);
  }

  void run(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFatalFailure(); i++) {
      SCOPED_TRACE("operation " + std::to_string(i));
      operate();
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_cache_check_invariants(cache_.get(), &error), KVC_OK) << error.message;
    }
    for (const char *what :
         {"step", "closed", "cut", "evicted", "reclosed", "fork", "save", "attach", "list", "abort", "suspend"}) {
      if (on_cpu() || std::string(what) != "suspend") {
        EXPECT_GT(counts_[what], 0) << what;
      }
    }
  }

 private:
  static bool on_cpu() { return test_device().device_type == kDLCPU; }  // else there is no tier
  int up_to(int64_t n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  static int per_row(int layer) { return layer == kRows || layer == kIndex ? 4 : layer == kLongRows ? 16 : 1; }
  const LayerSpec &layer(int l) const { return spec_.layers[static_cast<size_t>(l)]; }

  // Element `i` of head `h` of row w of a layer. part: 0 = K, 1 = V. Index keys are small integers.
  float stored(const Seq &s, int l, int64_t w, int part, int h, int i) const {
    const uint64_t seen = s.history[static_cast<size_t>((w + 1) * per_row(l) - 1)];
    const uint64_t bits = mix(seen ^ mix(static_cast<uint64_t>(((l * 2 + part) * 8 + h) * 64 + i)));
    if (layer(l).keys_only) return static_cast<float>(bits % 3) - 1;
    return round_to(layer(l).dtype, static_cast<float>(bits % 2001) / 1000 - 1);
  }
  float value(const Seq &s, int l, int64_t w, int h, int i) const {
    return stored(s, l, w, layer(l).latent ? 0 : 1, h, i);
  }

  void operate() {
    const int op = up_to(100);
    if (seqs_.empty() || (op < 6 && seqs_.size() < 3)) {
      Seq s;
      ASSERT_EQ(kvc_seq_add(cache_.get(), 1, &s.id, nullptr), KVC_OK);
      seqs_.push_back(s);
    } else if (op < 60) {
      step();
    } else if (op < 75) {
      cut();
    } else if (op < 82) {
      fork();
    } else if (op < 88) {
      exports(seqs_[static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())))]);
    } else if (op < 90) {
      save();
    } else if (op < 92) {
      suspend();
    } else if (op < 96) {
      publish();
    } else {
      remove();
    }
  }
  void remove() {
    const auto at = seqs_.begin() + up_to(static_cast<int64_t>(seqs_.size()));
    ASSERT_EQ(kvc_seq_remove(cache_.get(), 1, &at->id, nullptr), KVC_OK);
    seqs_.erase(at);
  }

  // ---- Steps --------------------------------------------------------------------------------------------------------

  struct Row {
    size_t seq;  // in seqs_; npos = an inert row
    int64_t before;
    int32_t fresh;
  };
  static constexpr size_t kInert = static_cast<size_t>(-1);

  void step() {
    std::vector<size_t> order(seqs_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<Row> rows;
    std::vector<kvc_seq> ids;
    std::vector<int32_t> lengths;
    std::vector<Seq> old = seqs_;
    for (const size_t i : order) {
      if (rows.size() == 3) break;
      const bool inert = up_to(8) == 0;
      const bool prompt = rows.empty() && up_to(20) == 0;  // longer than a tile of queries
      const int fresh = prompt ? 500 + up_to(200) : up_to(3) == 0 ? 1 + up_to(30) : 1 + up_to(3);
      rows.push_back({inert ? kInert : i, seqs_[i].length(), fresh});
      ids.push_back(inert ? 0 : seqs_[i].id);
      lengths.push_back(fresh);
      for (int t = 0; !inert && t < fresh; t++) seqs_[i].add(up_to(3));
    }
    const kvc_batch batch = [&] {
      kvc_batch b;
      kvc_batch_init(&b);
      b.sequences = ids.data();
      b.append_lengths = lengths.data();
      b.num_sequences = static_cast<int32_t>(ids.size());
      return b;
    }();
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status fits = kvc_cache_can_fit(cache_.get(), &batch, nullptr);
    const kvc_status begun = kvc_forward_begin(cache_.get(), &batch, nullptr, &forward, &error);
    ASSERT_EQ(begun, fits) << error.message;
    if (begun != KVC_OK) {
      ASSERT_EQ(begun, KVC_ERROR_OUT_OF_PAGES) << error.message;
      seqs_ = old;
      remove();
      return;
    }
    for (const int l : {kRaw, kLongRaw, kIndex}) append(forward, l, rows);
    for (const int l : {kLocal, kRows, kLongRows}) attend(forward, l, rows);
    counts_["step"]++;
    if (up_to(6) == 0) {
      ASSERT_EQ(kvc_forward_abort(cache_.get(), forward, nullptr), KVC_OK);
      seqs_ = old;
      counts_["abort"]++;
      return;
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), forward, &error), KVC_OK) << error.message;
    for (const Row &row : rows) {
      if (row.seq == kInert || row.before + row.fresh < cut_rows_[seqs_[row.seq].id]) continue;
      counts_["reclosed"] += cut_rows_.erase(seqs_[row.seq].id) > 0 ? 1 : 0;
    }
  }

  // What a layer takes in the step: tokens, those of inert rows too, or rows that close.
  Tensor fresh_rows(int l, const std::vector<Row> &rows, int part) {
    std::vector<std::pair<size_t, int64_t>> taken;
    for (const Row &row : rows) {
      const int64_t r = per_row(l), begin = row.seq == kInert && r > 1 ? 0 : row.before / r;
      const int64_t count = row.seq == kInert ? (r > 1 ? 0 : row.fresh) : kvc_rows_closed(row.before, row.fresh, r);
      for (int64_t w = begin; w < begin + count; w++) taken.push_back({row.seq, w});
    }
    const LayerSpec &of = layer(l);
    const int dims = part == 0 ? of.d : of.v_dim();
    Tensor tensor(of.keys_only ? DType::kF32 : of.dtype, {static_cast<int64_t>(taken.size()), of.hkv, dims}, 3);
    for (size_t i = 0; i < taken.size(); i++) {
      for (int h = 0; h < of.hkv; h++) {
        for (int d = 0; d < dims; d++) {
          const bool inert = taken[i].first == kInert;
          tensor.set(static_cast<int64_t>(i), h, d,
                     inert ? NAN : stored(seqs_[taken[i].first], l, taken[i].second, part, h, d));
        }
      }
    }
    return tensor;
  }

  void append(kvc_forward forward, int l, const std::vector<Row> &rows) {
    Tensor k = fresh_rows(l, rows, 0);
    if (per_row(l) > 1 && k.dim(0) == 0 && up_to(2) == 0) return;  // nothing closes: no append is needed
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_append(cache_.get(), forward, l, &args, &error), KVC_OK) << "layer " << l << error.message;
  }

  void attend(kvc_forward forward, int l, const std::vector<Row> &rows) {
    const LayerSpec &of = layer(l);
    int64_t tokens = 0;
    for (const Row &row : rows) tokens += row.fresh;
    Tensor k = fresh_rows(l, rows, 0), v = fresh_rows(l, rows, 1), q(of.dtype, {tokens, of.hq, of.d}, 1),
           out(DType::kF32, {tokens, of.hq, of.v_dim()}), lse(DType::kF32, {tokens, of.hq});
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < of.hq; h++) {
        for (int d = 0; d < of.d; d++) q.set(t, h, d, round_to(of.dtype, normal(random_)));
      }
    }
    counts_["closed"] += per_row(l) > 1 ? k.dim(0) : 0;
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    if (per_row(l) == 1 || k.dim(0) > 0 || up_to(2) == 0) {
      args.k = k.dl();
      if (!of.latent) args.v = v.dl();
    }
    args.out = out.dl();
    args.lse = lse.dl();
    constexpr int kListed = 3;
    std::vector<int32_t> lists(static_cast<size_t>(tokens) * kListed, -7);
    int64_t shape[3] = {tokens, 1, kListed};
    DLTensor indices = {lists.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
    const bool listed = l == kRows && up_to(2) == 0;
    if (listed) {
      select(forward, rows, &indices, lists);
      args.indices = &indices;
      counts_["list"]++;
    }
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_attend(cache_.get(), forward, l, &args, &error), KVC_OK) << "layer " << l << error.message;
    int64_t t = 0;
    for (const Row &row : rows) {
      for (int32_t i = 0; i < row.fresh; i++, t++) {
        if (row.seq == kInert) continue;
        const int64_t p = row.before + i, end = (p + 1) / per_row(l);
        std::vector<int64_t> keys;
        for (int64_t w = l == kLocal ? std::max<int64_t>(0, p - kWindow + 1) : 0; w < end; w++) {
          const auto begin = lists.begin() + t * kListed;
          if (!listed || std::find(begin, begin + kListed, w) != begin + kListed) keys.push_back(w);
        }
        check(seqs_[row.seq], l, keys, q, out, lse, t);
      }
    }
  }

  void check(const Seq &s, int l, const std::vector<int64_t> &keys, const Tensor &q, const Tensor &out,
             const Tensor &lse, int64_t t) {
    const LayerSpec &of = layer(l);
    for (int h = 0; h < of.hq; h++) {
      const int kv = h / (of.hq / of.hkv);
      double sum = 0;
      std::vector<double> wanted(static_cast<size_t>(of.v_dim()), 0.0);
      for (const int64_t w : keys) {
        double score = 0;
        for (int d = 0; d < of.d; d++) score += double{q.at(t, h, d)} * double{stored(s, l, w, 0, kv, d)};
        const double p = std::exp(score * of.softmax_scale());
        sum += p;
        for (int d = 0; d < of.v_dim(); d++) wanted[static_cast<size_t>(d)] += p * double{value(s, l, w, kv, d)};
      }
      const double tolerance = of.dtype == DType::kF32 ? 1e-5 : 2e-2;
      for (int d = 0; d < of.v_dim(); d++) {
        ASSERT_NEAR(out.at(t, h, d), sum > 0 ? wanted[static_cast<size_t>(d)] / sum : 0.0, tolerance)
            << "layer " << l << " token " << t << " head " << h << " keys " << keys.size();
      }
      if (keys.empty()) {
        ASSERT_EQ(lse.at(t, h), -INFINITY);
      } else {
        ASSERT_NEAR(lse.at(t, h), std::log(sum), tolerance) << "layer " << l << " token " << t;
      }
    }
  }

  // The highest rows of each query by their index keys, over integers: equal scores, and the lowest row of them.
  void select(kvc_forward forward, const std::vector<Row> &rows, DLTensor *indices, std::vector<int32_t> &lists) {
    const LayerSpec &of = layer(kIndex);
    const int64_t tokens = indices->shape[0], most = indices->shape[2];
    Tensor q(DType::kF32, {tokens, of.hq, of.d});
    for (int64_t t = 0; t < tokens; t++) {
      for (int h = 0; h < of.hq; h++) {
        for (int d = 0; d < of.d; d++) q.set(t, h, d, static_cast<float>(up_to(5) - 2));
      }
    }
    kvc_select_args args;
    kvc_select_args_init(&args);
    args.q = q.dl();
    args.indices = indices;
    args.last_blocks = up_to(2);
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_select(cache_.get(), forward, kIndex, &args, &error), KVC_OK) << error.message;
    int64_t t = 0;
    for (const Row &row : rows) {
      for (int32_t i = 0; i < row.fresh; i++, t++) {
        if (row.seq == kInert) {
          std::fill_n(lists.begin() + t * most, most, -1);
          continue;
        }
        const int64_t end = (row.before + i + 1) / 4;
        std::vector<std::pair<double, int64_t>> scores;
        for (int64_t w = 0; w < end; w++) {
          double score = 0;
          for (int h = 0; h < of.hq; h++) {
            double dot = 0;
            for (int d = 0; d < of.d; d++)
              dot += double{q.at(t, h, d)} * double{stored(seqs_[row.seq], kIndex, w, 0, 0, d)};
            score += std::max(dot, 0.0);
          }
          scores.push_back({w >= end - args.last_blocks ? -INFINITY : -score, w});
        }
        std::sort(scores.begin(), scores.end());
        std::vector<int64_t> chosen(static_cast<size_t>(most), INT64_MAX);
        for (size_t n = 0; n < chosen.size() && n < scores.size(); n++) chosen[n] = scores[n].second;
        std::sort(chosen.begin(), chosen.end());
        for (int64_t n = 0; n < most; n++) {
          const int64_t wanted = chosen[static_cast<size_t>(n)];
          ASSERT_EQ(lists[static_cast<size_t>(t * most + n)], wanted == INT64_MAX ? -1 : wanted)
              << "query " << t << " entry " << n;
        }
      }
    }
  }

  // ---- Calls on sequences -------------------------------------------------------------------------------------------

  // A position to cut at: near the end, or anywhere.
  int64_t draw_position(const Seq &s) {
    const int64_t length = s.length();
    return up_to(3) > 0 ? length - std::min<int64_t>(length, up_to(9)) : up_to(length + 1);
  }
  // Whether a sequence can be cut. It must have the keys of the tokens that its open rows begin with.
  bool works_at(const Seq &s, int64_t position) {
    int64_t before = -1, after = -1;
    EXPECT_EQ(kvc_seq_nearest_position(cache_.get(), s.id, position, &before, &after, nullptr), KVC_OK);
    EXPECT_TRUE(before <= position && (after == -1 || after >= position));
    return before == position;
  }
  void cut() {
    Seq &s = seqs_[static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())))];
    const int64_t position = draw_position(s), length = s.length();
    const bool works = works_at(s, position);
    if (s.longest - position <= spec_.rollback) {
      ASSERT_TRUE(works) << "within the margin: " << position << " of " << length;
    }
    const kvc_status status = kvc_seq_truncate(cache_.get(), 1, &s.id, &position, nullptr);
    ASSERT_EQ(status, works || position == length ? KVC_OK : KVC_ERROR_EVICTED);
    counts_[status == KVC_OK ? "cut" : "evicted"]++;
    if (status != KVC_OK) return;
    if (length / 4 > position / 4) cut_rows_[s.id] = (position / 4 + 1) * 4;
    s.cut(position);
    check_open_rows(s);
  }
  void fork() {
    const Seq &parent = seqs_[static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())))];
    if (seqs_.size() >= 6) return remove();
    const int64_t position = draw_position(parent);
    Seq child = parent;
    const bool works = works_at(parent, position);
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_fork(cache_.get(), 1, &parent.id, &position, &child.id, nullptr, &error);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, works ? KVC_OK : KVC_ERROR_EVICTED) << error.message;
    if (status != KVC_OK) return;
    child.cut(position);
    counts_["fork"]++;
    check_open_rows(child);
    seqs_.push_back(child);
  }
  // What the caller needs to close the next rows is there: the tokens since the last row, and the 4 of an overlap.
  void check_open_rows(const Seq &s) {
    const int64_t length = s.length();
    if (length == 0) return;
    export_range(s, kRaw, std::max<int64_t>(0, length / 4 * 4 - 4), length);
    export_range(s, kLongRaw, length / 16 * 16, length);
    exports(s);
  }
  void exports(const Seq &s) {
    if (s.length() == 0) return;
    for (const int l : {kRows, kIndex, kLongRows}) {
      const int64_t begin = up_to(s.length());
      export_range(s, l, begin, begin + 1 + up_to(s.length() - begin));
    }
  }
  void export_range(const Seq &s, int l, int64_t begin, int64_t end) {
    if (begin == end) return;
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = l;
    args.position_begin = begin;
    args.position_end = end;
    DLManagedTensorVersioned *k = nullptr, *v = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(export_kv(cache_.get(), s.id, &args, &k, &v, nullptr, &error), KVC_OK) << "layer " << l << error.message;
    const Managed owners[2] = {Managed(k), Managed(v)};
    const int64_t first = begin / per_row(l), count = end / per_row(l) - first;
    for (int part = 0; part < (layer(l).latent || layer(l).keys_only ? 1 : 2); part++) {
      const DLTensor &tensor = owners[part]->dl_tensor;
      ASSERT_EQ(tensor.shape[0], count);
      const int64_t heads = tensor.shape[1], dims = tensor.shape[2];
      for (int64_t i = 0; i < count * heads * dims; i++) {
        const int64_t w = first + i / (heads * dims);
        ASSERT_EQ(load(layer(l).keys_only ? DType::kF32 : layer(l).dtype, tensor.data, i),
                  stored(s, l, w, part, static_cast<int>(i / dims % heads), static_cast<int>(i % dims)))
            << "layer " << l << " row " << w;
      }
    }
  }
  void save() {
    const size_t at = static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())));
    if (seqs_.size() >= 6) return remove();
    const std::string bytes = saved(cache_.get(), seqs_[at].id);
    ASSERT_FALSE(bytes.empty());
    Seq copy = seqs_[at];
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = load_from(cache_.get(), bytes, &copy.id, &error);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, KVC_OK) << error.message;
    counts_["save"]++;
    check_open_rows(copy);
    seqs_.push_back(copy);
  }
  // Moves a sequence's pages to the host tier and back.
  void suspend() {
    const Seq &s = seqs_[static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())))];
    if (!on_cpu()) return;
    kvc_job job = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_seq_suspend(cache_.get(), s.id, &job, &error), KVC_OK) << error.message;
    finish(job);
    ASSERT_EQ(kvc_seq_resume(cache_.get(), s.id, &job, &error), KVC_OK) << error.message;
    finish(job);
    counts_["suspend"]++;
    check_open_rows(s);
  }
  void finish(kvc_job job) {
    kvc_job_info info;
    kvc_job_info_init(&info);
    kvc_error error = KVC_ERROR_INIT;
    while (job != 0 && info.done == 0) {
      ASSERT_EQ(kvc_job_poll(cache_.get(), job, &info, &error), KVC_OK) << error.message;
      std::this_thread::yield();
    }
  }
  // Publishes a sequence, and makes another from the longest prefix that the index has of it.
  void publish() {
    const Seq &s = seqs_[static_cast<size_t>(up_to(static_cast<int64_t>(seqs_.size())))];
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = s.tokens.data();
    query.num_tokens = s.length();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_prefix_publish(cache_.get(), s.id, &query, nullptr, nullptr, &error), KVC_OK) << error.message;
    if (seqs_.size() >= 6) return remove();
    query.num_tokens = draw_position(s);
    if (on_cpu() && up_to(3) == 0) {  // what the index evicts goes to the host tier
      kvc_job job = 0;
      kvc_prefix_load_options options;
      kvc_prefix_load_options_init(&options);
      options.token_ns = INT64_MAX;  // what is loaded must not depend on time
      const kvc_status loading = kvc_prefix_load(cache_.get(), &query, &options, nullptr, &job, &error);
      ASSERT_TRUE(loading == KVC_OK || loading == KVC_ERROR_OUT_OF_PAGES) << error.message;
      counts_["load"] += job != 0 ? 1 : 0;
      finish(job);
    }
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    Seq other = s;
    other.longest = INT64_MAX / 2;  // a prefix brings the margin only as far as the index has it
    const kvc_status status = kvc_prefix_attach(cache_.get(), &query, nullptr, &hit, &other.id, &error);
    if (status == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(status, KVC_OK) << error.message;
    other.cut(hit.tokens);
    counts_["attach"] += hit.tokens > 0 ? 1 : 0;
    check_open_rows(other);
    seqs_.push_back(other);
  }

  std::mt19937 random_;
  CacheSpec spec_;
  ContextPtr context_;
  CachePtr cache_;
  std::vector<Seq> seqs_;
  std::map<kvc_seq, int64_t> cut_rows_;  // where the first row that was cut closes again
  std::map<std::string, int64_t> counts_;
};

TEST(CompressedRows, RandomCalls) { Walk(1, DType::kF32, KVC_CACHE_PREFIX_INDEX).run(500); }
TEST(CompressedRows, RandomCallsInBf16) { Walk(2, DType::kBF16, KVC_CACHE_PREFIX_INDEX, 3).run(250); }
TEST(CompressedRows, RandomCallsOnClearedPages) {
  Walk(3, DType::kF32, KVC_CACHE_PREFIX_INDEX | KVC_CACHE_ZERO_ON_FREE).run(250);
}
TEST(CompressedRows, RandomCallsWithSharedPrefixes) {
  Walk(4, DType::kF32, KVC_CACHE_PREFIX_INDEX | KVC_CACHE_SHARE_ALL_PREFIXES, 2).run(250);
}
TEST(CompressedRows, RandomCallsDeterministic) {
  Walk(5, DType::kF32, KVC_CACHE_PREFIX_INDEX | KVC_CACHE_DETERMINISTIC, 2).run(250);
}

}  // namespace
}  // namespace kvt
