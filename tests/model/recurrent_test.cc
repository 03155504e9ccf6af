// Model test of recurrent states beside sliding, chunked, full and MLA groups: random calls, compared with a naive
// model. The state of a sequence is a hash of its whole history, so a state of another length or sequence is noticed at
// once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <map>

#include "wrappers.h"

namespace kvt {
namespace {

constexpr int kPageSize = 4, kWindow = 5, kChunk = 6, kRollback = 6, kSequences = 6, kCheckpoints = 2;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBu;
}

struct StateSpec {
  int layer, index, rank;
  DType dtype;
  int64_t shape[4];

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
  }
};

// Layers: 0 sliding, 1 and 3 recurrent (group 1), 2 full, 4 recurrent (group 3), 5 chunked, 6 MLA.
constexpr int kNumLayers = 7, kNumGroups = 6, kDim = 4;
constexpr int kAttending[] = {0, 2, 5, 6};
const StateSpec kStates[] = {{1, 0, 2, DType::kF32, {3, 5}},
                             {1, 1, 1, DType::kBF16, {7}},
                             {3, 0, 4, DType::kF16, {1, 2, 3, 2}},
                             {4, 0, 3, DType::kF32, {2, 2, 2}}};

struct Sequence {
  std::vector<uint64_t> tokens;      // of its length
  std::vector<uint64_t> nodes;       // an uncommitted chain
  std::vector<int64_t> checkpoints;  // ascending
  int64_t dropped = 0;               // pages that left the window,
  int64_t dropped_chunks = 0;        // and of earlier chunks

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  void slide() {
    const int64_t from = std::max<int64_t>(0, length() - kRollback);
    dropped = std::max(dropped, std::max<int64_t>(0, from - kWindow + 1) / kPageSize);
    dropped_chunks = std::max(dropped_chunks, from / kChunk * kChunk / kPageSize);
  }
  bool works_at(int64_t position) const {
    const bool window =
        dropped == 0 || position == 0 || dropped * kPageSize <= std::max<int64_t>(0, position - kWindow + 1);
    const bool chunk = dropped_chunks == 0 || position == 0 || dropped_chunks * kPageSize <= position / kChunk * kChunk;
    const bool state = position == 0 || position == length() ||
                       std::find(checkpoints.begin(), checkpoints.end(), position) != checkpoints.end();
    return window && chunk && state;
  }
  void cut(int64_t position) {
    tokens.resize(static_cast<size_t>(position));
    nodes.clear();
    while (!checkpoints.empty() && checkpoints.back() > position) checkpoints.pop_back();
    dropped = std::min(dropped, (position + kPageSize - 1) / kPageSize);
    dropped_chunks = std::min(dropped_chunks, (position + kPageSize - 1) / kPageSize);
  }
  uint64_t history() const {
    uint64_t h = 1;
    for (uint64_t t : tokens) h = mix(h, t);
    for (uint64_t t : nodes) h = mix(h, t);
    return h;
  }
};

class Recurrent {
 public:
  explicit Recurrent(uint64_t seed) : random_(seed), context_(make_context(1 + static_cast<int>(seed))) {
    const int groups_of[kNumLayers] = {0, 1, 2, 1, 3, 4, 5};
    const int rows[kNumGroups] = {KVC_ROW_KV, KVC_ROW_STATE, KVC_ROW_KV, KVC_ROW_STATE, KVC_ROW_KV, KVC_ROW_LATENT};
    std::vector<kvc_state_config> states[kNumLayers];
    for (const StateSpec &s : kStates) {
      kvc_state_config state;
      kvc_state_config_init(&state);
      state.dtype = dl_type(s.dtype);
      state.rank = s.rank;
      std::copy_n(s.shape, s.rank, state.shape);
      states[s.layer].push_back(state);
    }
    kvc_layer_config layers[kNumLayers];
    kvc_group_config groups[kNumGroups];
    for (int i = 0; i < kNumLayers; i++) {
      kvc_layer_config_init(&layers[i]);
      layers[i].group = groups_of[i];
      if (rows[groups_of[i]] == KVC_ROW_STATE) {
        layers[i].states = states[i].data();
        layers[i].num_states = static_cast<int32_t>(states[i].size());
      } else {
        layers[i].num_q_heads = layers[i].num_kv_heads = 1;
        layers[i].head_dim = kDim;
        layers[i].softmax_scale = 1e-4;  // keys are large
      }
    }
    layers[6].latent_dim = kDim - 1;
    for (int g = 0; g < kNumGroups; g++) {
      kvc_group_config_init(&groups[g]);
      groups[g].row = rows[g];
    }
    groups[0].visibility = KVC_VISIBLE_WINDOW;
    groups[0].window_tokens = kWindow;
    groups[4].visibility = KVC_VISIBLE_CHUNK;
    groups[4].chunk_tokens = kChunk;
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.num_layers = kNumLayers;
    config.groups = groups;
    config.num_groups = kNumGroups;
    config.page_size = kPageSize;
    config.max_sequences = kSequences;
    config.max_batch_tokens = 64;
    config.rollback_tokens = kRollback;
    config.max_tree_nodes = 16;
    config.max_checkpoints = kCheckpoints;
    config.capacity_tokens = 4000;
    kvc_cache *raw = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    if (kvc_cache_create(context_.get(), &config, &raw, &error)) throw std::runtime_error(describe(error));
    cache_.reset(raw);
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); i++) {
      SCOPED_TRACE("operation " + std::to_string(i));
      switch (random_() % 10) {
        case 0:
          add();
          break;
        case 1:
          remove();
          break;
        case 2:
          fork();
          break;
        case 3:
          truncate();
          break;
        case 4:
          checkpoint();
          break;
        case 5:
          commit();
          break;
        default:
          step();
          break;
      }
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_cache_check_invariants(cache_.get(), &error), KVC_OK) << error.message;
      if (i % 8 == 0) check_positions();
      if (i % 8 == 0) check_keys();
    }
    std::vector<kvc_seq> all;
    for (const auto &entry : model_) all.push_back(entry.first);
    ASSERT_EQ(kvc_seq_remove(cache_.get(), static_cast<int64_t>(all.size()), all.data(), nullptr), KVC_OK);
    EXPECT_EQ(used(-1), 0);
    EXPECT_GT(checked_states_, 0);
    EXPECT_GT(checked_queries_, 1000);
  }

 private:
  kvc_seq pick() {
    auto it = model_.begin();
    std::advance(it, static_cast<int64_t>(random_() % model_.size()));
    return it->first;
  }

  void add() {
    kvc_seq seq = 0;
    const kvc_status status = kvc_seq_add(cache_.get(), 1, &seq, nullptr);
    ASSERT_EQ(status, model_.size() < kSequences ? KVC_OK : KVC_ERROR_TOO_MANY_SEQUENCES);
    if (status == KVC_OK) model_[seq] = Sequence();
  }
  int64_t used(int32_t group) const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache_.get(), group, &stats, nullptr), KVC_OK);
    return stats.pages_used;
  }
  void remove() {
    if (model_.size() < 2) return;
    const kvc_seq seq = pick();
    int64_t expected[kNumGroups] = {};  // pages in use
    for (int32_t g = 0; g < kNumGroups; g++) {
      ASSERT_EQ(kvc_seq_exclusive_pages(cache_.get(), g, 1, &seq, &expected[g], nullptr), KVC_OK);
      expected[g] = used(g) - expected[g];
    }
    ASSERT_EQ(kvc_seq_remove(cache_.get(), 1, &seq, nullptr), KVC_OK);
    for (int32_t g = 0; g < kNumGroups; g++) ASSERT_EQ(used(g), expected[g]) << "group " << g;
    model_.erase(seq);
  }
  int64_t some_position(const Sequence &s) {
    if (!s.checkpoints.empty() && random_() % 2 == 0) return s.checkpoints[random_() % s.checkpoints.size()];
    return random_() % 3 == 0 ? s.length() : static_cast<int64_t>(random_() % static_cast<uint64_t>(s.length() + 1));
  }
  void fork() {
    if (model_.empty()) return;
    const kvc_seq parent = pick();
    const Sequence &from = model_[parent];
    const int64_t position = some_position(from);
    kvc_seq child = 0;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_fork(cache_.get(), 1, &parent, &position, &child, nullptr, &error);
    kvc_status expected = KVC_OK;
    if (!from.nodes.empty()) {
      expected = KVC_ERROR_UNCOMMITTED;
    } else if (!from.works_at(position)) {
      expected = KVC_ERROR_EVICTED;
    } else if (model_.size() >= kSequences) {
      expected = KVC_ERROR_TOO_MANY_SEQUENCES;
    }
    ASSERT_EQ(status, expected) << error.message << " at " << position << " of " << from.length();
    if (status != KVC_OK) return;
    Sequence copy = from;
    copy.cut(position);
    model_[child] = copy;
  }
  void truncate() {
    if (model_.empty()) return;
    const kvc_seq seq = pick();
    Sequence &s = model_[seq];
    const int64_t length = some_position(s);
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_truncate(cache_.get(), 1, &seq, &length, &error);
    ASSERT_EQ(status, length == s.length() || s.works_at(length) ? KVC_OK : KVC_ERROR_EVICTED) << error.message;
    if (status == KVC_OK) s.cut(length);
  }
  void checkpoint() {
    if (model_.empty()) return;
    const kvc_seq seq = pick();
    Sequence &s = model_[seq];
    const kvc_status status = kvc_seq_checkpoint(cache_.get(), 1, &seq, nullptr);
    ASSERT_EQ(status, s.nodes.empty() ? KVC_OK : KVC_ERROR_UNCOMMITTED);
    if (status != KVC_OK || s.length() == 0) return;
    if (!s.checkpoints.empty() && s.checkpoints.back() == s.length()) return;
    if (s.checkpoints.size() == kCheckpoints) s.checkpoints.erase(s.checkpoints.begin());
    s.checkpoints.push_back(s.length());
  }
  void commit() {
    if (model_.empty()) return;
    const kvc_seq seq = pick();
    Sequence &s = model_[seq];
    const auto nodes = static_cast<int32_t>(s.nodes.size());
    const int32_t leaf = static_cast<int32_t>(random_() % static_cast<uint64_t>(nodes + 2)) - 1;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_commit(cache_.get(), 1, &seq, &leaf, nullptr, &error);
    kvc_status expected = KVC_OK;
    if (nodes == 0) {
      expected = KVC_ERROR_ORDER;
    } else if (leaf >= nodes) {
      expected = KVC_ERROR_OUT_OF_RANGE;
    } else if (leaf >= 0 && leaf != nodes - 1) {
      expected = KVC_ERROR_EVICTED;
    }
    ASSERT_EQ(status, expected) << error.message << " leaf " << leaf << " of " << nodes;
    if (status != KVC_OK) return;
    if (leaf >= 0) s.tokens.insert(s.tokens.end(), s.nodes.begin(), s.nodes.end());
    s.nodes.clear();
    s.slide();
  }

  static void fill(Tensor *t, int64_t row, const StateSpec &spec, uint64_t history) {
    const int64_t n = spec.elements();
    for (int64_t e = 0; e < n; e++) {
      const float value =
          history == 1 ? 0.0f : static_cast<float>(mix(history, static_cast<uint64_t>(e + spec.layer)) % 251);
      store(spec.dtype, t->data(), row * n + e, value);
    }
  }
  static Tensor rows_of(const StateSpec &spec, int64_t rows) {
    std::vector<int64_t> shape = {rows};
    shape.insert(shape.end(), spec.shape, spec.shape + spec.rank);
    return Tensor(spec.dtype, shape);
  }

  // Every state of a step. Loads give the state before the step, and the stored state is the hash after it.
  void check_states(kvc_forward f, const std::vector<kvc_seq> &seqs, const std::vector<std::vector<uint64_t>> &fresh) {
    kvc_error error = KVC_ERROR_INIT;
    const auto rows = static_cast<int64_t>(seqs.size());
    for (const StateSpec &spec : kStates) {
      Tensor loaded = rows_of(spec, rows), wanted = rows_of(spec, rows), next = rows_of(spec, rows);
      for (int64_t r = 0; r < rows; r++) {
        const kvc_seq seq = seqs[static_cast<size_t>(r)];
        if (seq == 0) continue;  // an inert row
        Sequence after = model_[seq];
        fill(&wanted, r, spec, after.history());
        after.nodes.insert(after.nodes.end(), fresh[static_cast<size_t>(r)].begin(),
                           fresh[static_cast<size_t>(r)].end());
        fill(&next, r, spec, after.history());
      }
      const bool early = random_() % 2 == 0;  // loads give the state before the step, even after a store
      if (early) {
        ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, spec.layer, spec.index, -1, next.dl(), &error), KVC_OK)
            << error.message;
      }
      ASSERT_EQ(kvc_forward_load_state(cache_.get(), f, spec.layer, spec.index, -1, loaded.dl(), &error), KVC_OK)
          << error.message;
      ASSERT_EQ(loaded.bytes(), wanted.bytes()) << "layer " << spec.layer << " state " << spec.index;
      ++checked_states_;
      if (!early) {
        ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error), KVC_ERROR_ORDER) << "before its states are stored";
        ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, spec.layer, spec.index, -1, next.dl(), &error), KVC_OK)
            << error.message;
      }
    }
  }

  // A step of a random batch with plain rows, chains and inert rows. It is ended or aborted.
  void step() {
    if (model_.empty()) return;
    std::vector<kvc_seq> seqs;
    for (const auto &entry : model_) {
      if (random_() % 2 == 0) seqs.push_back(entry.first);
    }
    if (seqs.size() < kSequences && random_() % 3 == 0) seqs.push_back(0);
    std::shuffle(seqs.begin(), seqs.end(), random_);
    if (seqs.empty()) return;
    std::vector<int32_t> lengths, parents;
    std::vector<std::vector<uint64_t>> fresh;
    bool trees = false, fits = true;
    for (kvc_seq seq : seqs) {
      const auto length = static_cast<int32_t>(1 + random_() % 7);
      const auto nodes = static_cast<int32_t>(seq == 0 ? 0 : model_[seq].nodes.size());
      const bool tree = nodes > 0 || (seq != 0 && random_() % 4 == 0);
      trees = trees || tree;
      fits = fits && (!tree || nodes + length <= 16);
      lengths.push_back(length);
      fresh.emplace_back();
      for (int32_t i = 0; i < length; i++) {
        parents.push_back(tree ? nodes + i - 1 : KVC_TREE_NONE);
        fresh.back().push_back(random_());
      }
    }
    if (!fits) return;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    batch.tree_parents = trees ? parents.data() : nullptr;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache_.get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
    attend(f, seqs, fresh);
    check_states(f, seqs, fresh);
    if (random_() % 4 == 0) {
      ASSERT_EQ(kvc_forward_abort(cache_.get(), f, &error), KVC_OK) << error.message;
      return;
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error), KVC_OK) << error.message;
    size_t token = 0;
    for (size_t r = 0; r < seqs.size(); token += fresh[r++].size()) {
      if (seqs[r] == 0) continue;
      Sequence &s = model_[seqs[r]];
      const bool tree = trees && parents[token] != KVC_TREE_NONE;
      std::vector<uint64_t> &target = tree ? s.nodes : s.tokens;
      target.insert(target.end(), fresh[r].begin(), fresh[r].end());
      if (!tree) s.slide();
    }
  }

  static float key(uint64_t token, int layer, int d) {
    return static_cast<float>(mix(token, static_cast<uint64_t>(layer * 7 + d)) % 4093);
  }
  static bool sees(int layer, int64_t position, int64_t key) {
    if (key > position) return false;
    if (layer == 0) return key > position - kWindow;
    return layer != 5 || key / kChunk == position / kChunk;
  }
  // Stores the keys of every layer that has them, and attends.
  void attend(kvc_forward f, const std::vector<kvc_seq> &seqs, const std::vector<std::vector<uint64_t>> &fresh) {
    int64_t total = 0;
    for (const auto &row : fresh) total += static_cast<int64_t>(row.size());
    for (const int layer : kAttending) {
      const int64_t v_dims = layer == 6 ? kDim - 1 : kDim;
      Tensor q(DType::kF32, {total, 1, kDim}), k(DType::kF32, {total, 1, kDim}), v(DType::kF32, {total, 1, kDim}),
          out(DType::kF32, {total, 1, v_dims});
      int64_t t = 0;
      for (const auto &row : fresh) {
        for (uint64_t token : row) {
          for (int d = 0; d < kDim; d++) {
            q.set(t, 0, d, static_cast<float>(static_cast<int>(mix(token, 77) >> (8 * d) & 15) - 7));
            k.set(t, 0, d, key(token, layer, d));
            v.set(t, 0, d, -key(token, layer, d));
          }
          t++;
        }
      }
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.k = k.dl();
      args.v = layer == 6 ? nullptr : v.dl();
      args.out = out.dl();
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_forward_attend(cache_.get(), f, layer, &args, &error), KVC_OK) << error.message;
      t = 0;
      for (size_t r = 0; r < seqs.size(); t += static_cast<int64_t>(fresh[r++].size())) {
        if (seqs[r] != 0) check_row(layer, model_[seqs[r]], fresh[r], q, out, t);
      }
    }
  }
  void check_row(int layer, const Sequence &s, const std::vector<uint64_t> &fresh, const Tensor &q, const Tensor &out,
                 int64_t first) {
    std::vector<uint64_t> all = s.tokens;
    all.insert(all.end(), s.nodes.begin(), s.nodes.end());
    const auto before = static_cast<int64_t>(all.size());
    all.insert(all.end(), fresh.begin(), fresh.end());
    for (int64_t i = 0; i < static_cast<int64_t>(fresh.size()); i++) {
      double sum = 0, wanted[kDim] = {};
      for (int64_t j = 0; j <= before + i; j++) {
        if (!sees(layer, before + i, j)) continue;
        const uint64_t token = all[static_cast<size_t>(j)];
        double score = 0;
        for (int d = 0; d < kDim; d++) score += double{q.at(first + i, 0, d)} * double{key(token, layer, d)};
        sum += std::exp(score * 1e-4);
        for (int d = 0; d < kDim; d++) wanted[d] += std::exp(score * 1e-4) * double{key(token, layer, d)};
      }
      for (int64_t d = 0; d < out.dim(2); d++) {
        ASSERT_NEAR(out.at(first + i, 0, d), (layer == 6 ? 1 : -1) * wanted[d] / sum, 0.05)
            << "layer " << layer << " position " << before + i;
      }
      checked_queries_++;
    }
  }

  void check_keys() {
    for (const auto &[seq, s] : model_) {
      int64_t length = -1;
      ASSERT_EQ(kvc_seq_lengths(cache_.get(), 1, &seq, &length, nullptr), KVC_OK);
      ASSERT_EQ(length, s.length());
      if (s.length() == 0) continue;
      for (const int layer : kAttending) {
        kvc_export_args args;
        kvc_export_args_init(&args);
        args.layer = layer;
        args.position_begin = (layer == 0 ? s.dropped : layer == 5 ? s.dropped_chunks : 0) * kPageSize;
        args.position_end = s.length();
        if (args.position_begin >= args.position_end) continue;
        DLManagedTensorVersioned *k = nullptr;
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(export_kv(cache_.get(), seq, &args, &k, nullptr, nullptr, &error), KVC_OK) << error.message;
        const Managed owner(k);
        const auto *data = static_cast<const float *>(k->dl_tensor.data);
        for (int64_t p = args.position_begin; p < args.position_end; p++) {
          ASSERT_EQ(data[(p - args.position_begin) * 4 + 3], key(s.tokens[static_cast<size_t>(p)], layer, 3))
              << "layer " << layer << " position " << p;
        }
      }
    }
  }
  void check_positions() {
    for (const auto &[seq, s] : model_) {
      for (int64_t p = 0; p <= s.length(); p++) {
        int64_t before = -2, after = -2, want_before = p, want_after = p;
        while (!s.works_at(want_before)) --want_before;
        while (want_after <= s.length() && !s.works_at(want_after)) ++want_after;
        if (want_after > s.length()) want_after = -1;
        ASSERT_EQ(kvc_seq_nearest_position(cache_.get(), seq, p, &before, &after, nullptr), KVC_OK);
        ASSERT_EQ(before, want_before) << p << " of " << s.length();
        ASSERT_EQ(after, want_after) << p << " of " << s.length();
      }
    }
  }

  std::mt19937_64 random_;
  ContextPtr context_;
  CachePtr cache_;
  std::map<kvc_seq, Sequence> model_;
  int64_t checked_states_ = 0, checked_queries_ = 0;
};

class RecurrentModel : public testing::TestWithParam<uint64_t> {};

TEST_P(RecurrentModel, RandomCallsAgreeWithTheModel) { Recurrent(GetParam()).run(600); }

INSTANTIATE_TEST_SUITE_P(Seeds, RecurrentModel, testing::Range<uint64_t>(0, 17));

}  // namespace
}  // namespace kvt
