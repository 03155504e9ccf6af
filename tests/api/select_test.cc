// Selection of keys (kvc_forward_select), against a naive selection over integers: all scores are exact in float32, so
// the lists must be equal, with every tie. And what differs between layers with keys only and other layers.
#include "select.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace kvt {
namespace {

using Lists = SelectedLists;
using Call = SelectCall;
using Step = SelectStep;
using Row = std::vector<int>;

// The choice of one query for one list. keys: of each token of the sequence. seen: indexes. own: the query's index.
std::vector<int32_t> choose(const Call &call, int list, const std::vector<Row> &q, const std::vector<float> &weights,
                            const std::vector<Row> &keys, int key_heads, const std::set<int> &seen, int own) {
  std::map<int32_t, double> scores;
  for (const int key : seen) {
    double score = 0;
    for (int h = 0; h < kHeads; h++) {
      if (call.rule == KVC_SELECT_EACH_HEAD && h != list) continue;
      double dot = 0;
      const int at = h / (kHeads / key_heads) * kDim;
      for (int d = 0; d < kDim; d++)
        dot += q[static_cast<size_t>(h)][static_cast<size_t>(d)] *
               keys[static_cast<size_t>(key)][static_cast<size_t>(at + d)];
      if (call.rule == KVC_SELECT_EACH_HEAD) {
        score = dot;
      } else {
        score += (call.weighted ? double{weights[static_cast<size_t>(h)]} : 1.0) * std::max(dot, 0.0);
      }
    }
    const auto [at, is_new] = scores.emplace(key / call.block, score);
    at->second = std::max(at->second, score);
  }
  std::vector<std::pair<double, int32_t>> order;
  for (const auto &[unit, score] : scores) {
    const int own_unit = own / call.block;
    const bool forced = unit < call.first || (unit <= own_unit && unit > own_unit - call.last);
    order.push_back({forced ? -INFINITY : -score, unit});
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(call.k)));
  std::vector<int32_t> chosen;
  for (const auto &[score, unit] : order) chosen.push_back(unit);
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(static_cast<size_t>(call.k), -1);
  return chosen;
}

// A row of K of small integers. Dim 0 makes the scale of int8 rows 1; queries have 0 there.
Row draw_key(std::mt19937 *random, int key_heads, DType type) {
  Row row(static_cast<size_t>(key_heads * kDim));
  for (int &x : row) x = static_cast<int>((*random)() % 3) - 1;
  for (int h = 0; h < key_heads; h++) row[static_cast<size_t>(h * kDim)] = type == DType::kI8 ? 127 : 1;
  return row;
}

Call draw_call(std::mt19937 *random) {
  const auto up_to = [&](int n) { return static_cast<int>((*random)() % static_cast<unsigned>(n)); };
  Call call;
  call.rule = up_to(2);
  call.block = std::vector<int>{1, 1, 3, 4, 16}[static_cast<size_t>(up_to(5))];
  call.k = 1 + up_to(9);
  call.first = up_to(3) == 0 ? up_to(std::min(3, call.k)) : 0;
  call.last = up_to(3) == 0 ? up_to(call.k - call.first + 1) : 0;
  call.weighted = up_to(3) > 0;
  call.candidate_block = up_to(3) == 0 ? 1 + up_to(5) : 0;
  return call;
}

// Sequences with index keys in two layers: beside K and V in a full group, and in a sliding group.
struct Walk {
  static constexpr int kWindow = 11;
  struct Sequence {
    kvc_seq id;
    std::vector<Row> keys[2];
  };
  std::mt19937 random;
  DType type;
  int key_heads;
  CacheSpec spec;
  ContextPtr context;
  CachePtr cache;
  std::vector<Sequence> sequences;

  Walk(unsigned seed, DType t, int heads, int threads, const char *simd)
      : random(seed), type(t), key_heads(heads), context(make_context(threads, simd)) {
    spec.page_size = 4;
    spec.max_sequences = 5;
    spec.max_batch_tokens = 64;
    spec.rollback = 8;
    spec.groups = {{0, 400}, {kWindow, 200}};
    spec.layers = {keys_of(0, heads, t), LayerSpec{0, 2, 1, 8}, keys_of(1, heads, t)};
    cache = make_cache(context.get(), spec);
  }
  void add() {
    Sequence sequence;
    EXPECT_EQ(kvc_seq_add(cache.get(), 1, &sequence.id, nullptr), KVC_OK);
    sequences.push_back(sequence);
  }
  int up_to(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

  void change() {
    const int what = up_to(6);
    if (sequences.empty() || (what == 0 && sequences.size() < 5)) return add();
    Sequence &one = sequences[static_cast<size_t>(up_to(static_cast<int>(sequences.size())))];
    const auto length = static_cast<int>(one.keys[0].size());
    if (what == 1 && sequences.size() < 5) {
      Sequence copy = one;
      EXPECT_EQ(kvc_seq_fork(cache.get(), 1, &one.id, nullptr, &copy.id, nullptr, nullptr), KVC_OK);
      sequences.push_back(copy);
    } else if (what == 2 && length > 0) {
      const int64_t kept = std::max(0, length - 1 - up_to(6));
      EXPECT_EQ(kvc_seq_truncate(cache.get(), 1, &one.id, &kept, nullptr), KVC_OK);
      for (auto &keys : one.keys) keys.resize(static_cast<size_t>(kept));
    } else if (what == 3 && sequences.size() > 2) {
      EXPECT_EQ(kvc_seq_remove(cache.get(), 1, &one.id, nullptr), KVC_OK);
      sequences.erase(sequences.begin() + (&one - sequences.data()));
    }
  }

  void step() {
    std::vector<kvc_seq> ids;
    std::vector<int32_t> lengths;
    int64_t tokens = 0;
    for (const Sequence &sequence : sequences) {
      ids.push_back(sequence.id);
      lengths.push_back(up_to(4) == 0 ? 1 + up_to(12) : 1);
      tokens += lengths.back();
    }
    kvc_batch batch = batch_of(ids, lengths, 0);
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    Step step(&random, tokens, type == DType::kBF16 || type == DType::kF16 ? type : DType::kF32);
    for (const int layer : {0, 2}) append(forward, layer, lengths);
    LayerTensors others(spec.layers[1], tokens);
    const kvc_append_args append_args = others.append_args();
    ASSERT_EQ(kvc_forward_append(cache.get(), forward, 1, &append_args, &error), KVC_OK) << error.message;
    for (int i = 0; i < 4; i++) select(forward, i % 2, &step, draw_call(&random), lengths);
    ASSERT_EQ(kvc_forward_end(cache.get(), forward, &error), KVC_OK) << error.message;
  }

  void append(kvc_forward forward, int layer, const std::vector<int32_t> &lengths) {
    const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    Tensor k(DType::kF32, {tokens, key_heads, kDim});
    int64_t t = 0;
    for (size_t s = 0; s < sequences.size(); s++) {
      for (int i = 0; i < lengths[s]; i++, t++) {
        const Row row = draw_key(&random, key_heads, type);
        sequences[s].keys[layer / 2].push_back(row);
        for (int h = 0; h < key_heads; h++) {
          for (int d = 0; d < kDim; d++) k.set(t, h, d, static_cast<float>(row[static_cast<size_t>(h * kDim + d)]));
        }
      }
    }
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_append(cache.get(), forward, layer, &args, &error), KVC_OK) << error.message;
  }

  void select(kvc_forward forward, int which, Step *step, const Call &call, const std::vector<int32_t> &lengths) {
    const auto tokens = static_cast<int64_t>(step->q.size());
    Lists out(tokens, call.lists(), call.k);
    const int64_t heads = up_to(2) == 0 ? 1 : call.lists();
    Lists candidates(tokens, heads, 5);
    for (int64_t s = 0, t = 0; s < static_cast<int64_t>(lengths.size()); s++) {
      const auto length = static_cast<int>(sequences[static_cast<size_t>(s)].keys[which].size());
      for (int i = 0; i < lengths[static_cast<size_t>(s)]; i++, t++) {
        for (int64_t e = 0; e < heads * 5 && call.candidate_block > 0; e++) {
          candidates.entries[static_cast<size_t>(t * heads * 5 + e)] =
              up_to(5) == 0 ? -1 - up_to(3) : up_to((length - 1) / call.candidate_block + 1);
        }
      }
    }
    kvc_select_args args = step->args(call, &out);
    if (call.candidate_block > 0) {
      args.candidates = candidates.dl();
      args.candidate_block = call.candidate_block;
    }
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_select(cache.get(), forward, which * 2, &args, &error), KVC_OK) << error.message;
    for (size_t s = 0, t = 0; s < lengths.size(); s++) {
      const std::vector<Row> &keys = sequences[s].keys[which];
      for (int i = 0; i < lengths[s]; i++, t++) {
        const int own = static_cast<int>(keys.size()) - lengths[s] + i;
        for (int list = 0; list < call.lists(); list++) {
          std::set<int> seen;
          for (int key = which == 0 ? 0 : std::max(0, own - kWindow + 1); key <= own; key++) {
            const int32_t *named = candidates.list(static_cast<int64_t>(t), list);
            if (call.candidate_block == 0 || std::count(named, named + 5, key / call.candidate_block) > 0)
              seen.insert(key);
          }
          const std::vector<int32_t> wanted =
              choose(call, list, step->q[t], step->weights[t], keys, key_heads, seen, own);
          const int32_t *got = out.list(static_cast<int64_t>(t), list);
          ASSERT_EQ(std::vector<int32_t>(got, got + call.k), wanted)
              << "token " << t << " list " << list << " layer " << which * 2 << " rule " << call.rule << " block "
              << call.block << " candidates " << call.candidate_block;
        }
      }
    }
  }
};

TEST(Select, RandomBatchesForksAndTruncations) {
  unsigned seed = 1;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
    for (const int heads : {1, 2}) {
      for (const int threads : {1, 4}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << " heads " << heads << " threads " << threads);
        Walk walk(seed++, type, heads, threads, nullptr);
        walk.add();
        for (int i = 0; i < 40 && !testing::Test::HasFailure(); i++) {
          walk.change();
          if (!walk.sequences.empty()) walk.step();
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Select, EveryTarget) {
  int tried = 0;
  for (const std::string simd : {"reference", "scalar", "avx2", "avx512", "avx512_bf16", "avx512_amx", "neon"}) {
    kvc_context_config config;
    kvc_context_config_init(&config);
    config.simd = simd.c_str();
    kvc_context *context = nullptr;
    if (kvc_context_create(&config, &context, nullptr) != KVC_OK) continue;  // this machine lacks it
    kvc_context_destroy(context);
    tried++;
    for (const DType type : {DType::kF32, DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(simd + " " + name_of(type));
      Walk walk(77, type, 1, 2, simd.c_str());
      for (int i = 0; i < 12; i++) {
        walk.change();
        if (!walk.sequences.empty()) walk.step();
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GE(tried, 2);  // the reference and one more
}

}  // namespace
}  // namespace kvt
