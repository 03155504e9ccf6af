// Model test of recurrent states beside sliding, chunked, full and MLA groups: random calls, compared with a naive
// model. The state of a sequence is a hash of its whole history, so a state of another length or sequence is noticed at
// once. Trees of drafts branch, and any of their nodes may be committed if its state is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <map>

#include "recurrent_specs.h"

namespace kvt {
namespace {

class Recurrent {
 public:
  explicit Recurrent(uint64_t seed)
      : random_(seed),
        context_(make_context(1 + static_cast<int>(seed))),
        draft_states_(seed % 4 == 0   ? 0
                      : seed % 4 == 1 ? kMaxNodes
                                      : 3 * static_cast<int32_t>(seed % 4 - 1)) {
    const int groups_of[kNumLayers] = {0, 1, 2, 1, 3, 4, 5};
    const int rows[kNumGroups] = {KVC_ROW_KV, KVC_ROW_STATE, KVC_ROW_KV, KVC_ROW_STATE, KVC_ROW_KV, KVC_ROW_LATENT};
    std::vector<kvc_state_config> states[kNumLayers];
    for (const StateSpec &s : kStates) {
      kvc_state_config state;
      kvc_state_config_init(&state);
      state.dtype = s.dtype;
      state.rank = s.rank;
      state.fill = s.fill;
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
    config.max_tree_nodes = kMaxNodes;
    config.max_draft_states = draft_states_;
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
      switch (random_() % 11) {
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
        case 6:
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
    EXPECT_TRUE(draft_states_ == 0 || rejected_drafts_ > 5);
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
    } else if (leaf >= 0 && !s.has_state_of(leaf, draft_states_)) {
      expected = KVC_ERROR_EVICTED;
    }
    ASSERT_EQ(status, expected) << error.message << " leaf " << leaf << " of " << nodes;
    if (status != KVC_OK) return;
    if (leaf >= 0 && leaf < nodes - 1) rejected_drafts_++;
    s.tokens = s.tokens_to(leaf);
    s.nodes.clear();
    s.slide();
  }

  // Whether the state after token i of a row is kept, if it is stored.
  bool keeps(const Row &row, int32_t i) const {
    if (row.seq == 0 || i >= row.length()) return false;
    return i == row.length() - 1 || (row.tree && row.first + i < draft_states_);
  }

  // Every state of a step: loads give the state before a token, and the stored state is the hash after it. Returns the
  // tokens whose states were stored, as bits.
  void check_states(kvc_forward f, const std::vector<Row> &rows, uint64_t *stored) {
    kvc_error error = KVC_ERROR_INIT;
    const auto n = static_cast<int64_t>(rows.size());
    const bool by_token = draft_states_ >= 7 && random_() % 2 == 0;  // no row is longer than 7
    *stored = UINT64_MAX;
    for (const StateSpec &spec : kStates) {
      States any{spec, n, 1};
      const auto load = [&](int32_t token) {
        return kvc_forward_load_state(cache_.get(), f, spec.layer, spec.index, token, any.at_token(0), &error);
      };
      uint64_t done = 0;
      if (random_() % 2 == 0) check_loads(f, rows, spec, 0);
      if (!by_token) {
        ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error), KVC_ERROR_ORDER) << "before its states are stored";
        States last{spec, n, 1};
        for (int64_t r = 0; r < n; r++) {
          const Row &row = rows[static_cast<size_t>(r)];
          if (row.seq != 0) last.set(r, 0, row.history_to(row.length() - 1));
        }
        ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, spec.layer, spec.index, -1, last.at_token(0), &error),
                  KVC_OK)
            << error.message;
      }
      States next{spec, n, 7};
      for (int64_t r = 0; r < n; r++) {
        const Row &row = rows[static_cast<size_t>(r)];
        for (int32_t i = 0; row.seq != 0 && i < row.length(); i++) next.set(r, i, row.history_to(i));
      }
      for (int32_t i = 0; i < std::min(draft_states_, 7); i++) {
        if (!by_token && random_() % 24 == 0) continue;
        ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, spec.layer, spec.index, i, next.at_token(i), &error), KVC_OK)
            << error.message;
        done |= uint64_t{1} << i;
      }
      ASSERT_EQ(load(draft_states_), KVC_ERROR_OUT_OF_RANGE);
      ASSERT_EQ(load(-2), KVC_ERROR_OUT_OF_RANGE);
      *stored &= done;
      check_loads(f, rows, spec, done);
    }
  }
  // stored: the tokens whose states the step has stored.
  void check_loads(kvc_forward f, const std::vector<Row> &rows, const StateSpec &spec, uint64_t stored) {
    kvc_error error = KVC_ERROR_INIT;
    const auto n = static_cast<int64_t>(rows.size());
    for (int32_t token = -1; token < std::min(draft_states_, 7); token++) {
      States got{spec, n, 1}, wanted{spec, n, 1};
      std::vector<bool> defined(static_cast<size_t>(n), true);
      for (int64_t r = 0; r < n; r++) {
        const Row &row = rows[static_cast<size_t>(r)];
        const int32_t i = std::max(token, 0);
        if (row.seq == 0 || i >= row.length()) continue;  // not written
        if (!row.tree) {
          if (i == 0) wanted.set(r, 0, model_[row.seq].history(-1));
          continue;
        }
        const int32_t parent = row.after.nodes[static_cast<size_t>(row.first + i)].parent;
        if (parent < row.first) {
          wanted.set(r, 0, row.after.history(parent));
        } else if (keeps(row, parent - row.first)) {
          wanted.set(r, 0, row.after.history(parent));
          defined[static_cast<size_t>(r)] = (stored >> (parent - row.first) & 1) != 0;
        }
      }
      ASSERT_EQ(kvc_forward_load_state(cache_.get(), f, spec.layer, spec.index, token, got.at_token(0), &error), KVC_OK)
          << error.message;
      for (int64_t r = 0; r < n; r++) {
        if (!defined[static_cast<size_t>(r)]) continue;
        const auto bytes = static_cast<size_t>(spec.elements() * got.element_bytes);
        ASSERT_EQ(std::memcmp(got.at(r, 0), wanted.at(r, 0), bytes), 0)
            << "layer " << spec.layer << " state " << spec.index << " row " << r << " token " << token;
        ++checked_states_;
      }
    }
  }

  // A parent for a new node: any node or the root if its state is known, else the node before.
  int32_t some_parent(const Sequence &s, int32_t first, int32_t node) {
    const int32_t parent = static_cast<int32_t>(random_() % static_cast<uint64_t>(node + 1)) - 1;
    if (draft_states_ == 0 || random_() % 2 == 0) return node - 1;
    const bool known = parent < 0 || (parent < first ? s.has_state_of(parent, draft_states_) : parent < draft_states_);
    return known ? parent : node - 1;
  }

  // A step of a random batch with plain rows, trees and inert rows. It is ended or aborted.
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
    std::vector<Row> rows;
    bool trees = false, fits = true;
    for (kvc_seq seq : seqs) {
      const auto length = static_cast<int32_t>(1 + random_() % 7);
      Row row = {seq, false, seq == 0 ? Sequence() : model_[seq]};
      row.first = row.after.num_nodes();
      row.tree = row.first > 0 || (seq != 0 && random_() % 3 == 0);
      trees = trees || row.tree;
      fits = fits && (!row.tree || row.first + length <= kMaxNodes);
      lengths.push_back(length);
      for (int32_t i = 0; i < length; i++) {
        const int32_t node = row.first + i;
        parents.push_back(row.tree ? some_parent(row.after, row.first, node) : KVC_TREE_NONE);
        row.fresh.push_back(random_());
        if (row.tree) {
          row.after.nodes.push_back({row.fresh.back(), parents.back(), false});
        } else {
          row.after.tokens.push_back(row.fresh.back());
        }
      }
      rows.push_back(row);
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
    attend(f, rows);
    uint64_t stored = 0;
    check_states(f, rows, &stored);
    if (testing::Test::HasFailure()) return;
    if (random_() % 4 == 0) {
      ASSERT_EQ(kvc_forward_abort(cache_.get(), f, &error), KVC_OK) << error.message;
      return;
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error), KVC_OK) << error.message;
    for (Row &row : rows) {
      if (row.seq == 0) continue;
      for (int32_t i = 0; row.tree && i < row.length(); i++) {
        row.after.nodes[static_cast<size_t>(row.first + i)].kept = i == row.length() - 1 || (stored >> i & 1) != 0;
      }
      if (!row.tree) row.after.slide();
      model_[row.seq] = row.after;
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
  void attend(kvc_forward f, const std::vector<Row> &rows) {
    int64_t total = 0;
    for (const Row &row : rows) total += row.length();
    for (const int layer : kAttending) {
      const int64_t v_dims = layer == 6 ? kDim - 1 : kDim;
      Tensor q(DType::kF32, {total, 1, kDim}), k(DType::kF32, {total, 1, kDim}), v(DType::kF32, {total, 1, kDim}),
          out(DType::kF32, {total, 1, v_dims});
      int64_t t = 0;
      for (const Row &row : rows) {
        for (uint64_t token : row.fresh) {
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
      for (const Row &row : rows) {
        if (row.seq != 0) check_row(layer, row, q, out, t);
        t += row.length();
      }
    }
  }
  void check_row(int layer, const Row &row, const Tensor &q, const Tensor &out, int64_t first) {
    for (int32_t i = 0; i < row.length(); i++) {
      const std::vector<uint64_t> keys = row.tokens_to(i);
      const auto position = static_cast<int64_t>(keys.size()) - 1;
      double sum = 0, wanted[kDim] = {};
      for (int64_t j = 0; j <= position; j++) {
        if (!sees(layer, position, j)) continue;
        const uint64_t token = keys[static_cast<size_t>(j)];
        double score = 0;
        for (int d = 0; d < kDim; d++) score += double{q.at(first + i, 0, d)} * double{key(token, layer, d)};
        sum += std::exp(score * 1e-4);
        for (int d = 0; d < kDim; d++) wanted[d] += std::exp(score * 1e-4) * double{key(token, layer, d)};
      }
      for (int64_t d = 0; d < out.dim(2); d++) {
        ASSERT_NEAR(out.at(first + i, 0, d), (layer == 6 ? 1 : -1) * wanted[d] / sum, 0.05)
            << "layer " << layer << " position " << position;
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
  int32_t draft_states_;
  int64_t checked_states_ = 0, checked_queries_ = 0, rejected_drafts_ = 0;
};

class RecurrentModel : public testing::TestWithParam<uint64_t> {};

TEST_P(RecurrentModel, RandomCallsAgreeWithTheModel) { Recurrent(GetParam()).run(1000); }

INSTANTIATE_TEST_SUITE_P(Seeds, RecurrentModel, testing::Range<uint64_t>(0, 17));

}  // namespace
}  // namespace kvt
