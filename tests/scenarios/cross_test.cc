// Cross groups: encoder sequences have lengths and forwards of their own, and every decoder token sees them whole. They
// are beside a full group, with forks, truncates, trees and inert rows.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "reference.h"
#include "wrappers.h"

namespace kvt {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 16;

// Layers 0 (full), 1 and 2 (cross group 1), 3 (cross group 2).
class Cross : public testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  void SetUp() override {
    const int groups_of[4] = {0, 1, 1, 2};
    std::vector<kvc_layer_config> layers(4);
    for (size_t i = 0; i < 4; i++) {
      kvc_layer_config_init(&layers[i]);
      layers[i].group = groups_of[i];
      layers[i].num_q_heads = kHeads;
      layers[i].num_kv_heads = kKvHeads;
      layers[i].head_dim = kDim;
      layers[i].dtype = dl_type(type());
    }
    std::vector<kvc_group_config> groups(3);
    for (size_t g = 0; g < 3; g++) {
      kvc_group_config_init(&groups[g]);
      groups[g].visibility = g == 0 ? KVC_VISIBLE_ALL : KVC_VISIBLE_ENCODER;
    }
    kvc_cache_config_init(&config_);
    config_.layers = layers.data();
    config_.num_layers = 4;
    config_.groups = groups.data();
    config_.num_groups = 3;
    config_.page_size = std::get<0>(GetParam());
    config_.max_sequences = 8;
    config_.max_batch_tokens = 64;
    config_.capacity_tokens = 512;
    kvc_cache *raw = nullptr;
    ASSERT_EQ(kvc_cache_create(context_.get(), &config_, &raw, &error_), KVC_OK) << error_.message;
    cache_.reset(raw);
    seqs_.resize(4);
    ASSERT_EQ(kvc_seq_add(raw, 4, seqs_.data(), nullptr), KVC_OK);
  }
  static DType type() { return std::get<1>(GetParam()); }

  Tensor random_rows(int64_t tokens, int64_t heads) {
    Tensor t(type(), {tokens, heads, kDim});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < tokens; i++) {
      for (int64_t h = 0; h < heads; h++) {
        for (int d = 0; d < kDim; d++) t.set(i, h, d, normal(random_));
      }
    }
    return t;
  }

  kvc_status begin(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths, int32_t encoder_group,
                   kvc_forward *f, const int32_t *parents = nullptr) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    batch.encoder_group = encoder_group;
    batch.tree_parents = parents;
    kvc_error fits = KVC_ERROR_INIT;
    const kvc_status would = kvc_cache_can_fit(cache_.get(), &batch, &fits);
    const kvc_status status = kvc_forward_begin(cache_.get(), &batch, nullptr, f, &error_);
    EXPECT_EQ(would, status) << fits.message;
    return status;
  }
  kvc_status append(kvc_forward f, int32_t layer, Tensor &k, Tensor &v) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    args.v = v.dl();
    return kvc_forward_append(cache_.get(), f, layer, &args, &error_);
  }

  // Appends encoder tokens of each row to the cross layers of a group.
  void encode(int32_t group, const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths) {
    kvc_forward f = 0;
    ASSERT_EQ(begin(seqs, lengths, 1 + group, &f), KVC_OK) << error_.message;
    int64_t total = 0;
    for (int32_t n : lengths) total += n;
    for (int32_t layer = group == 1 ? 1 : 3; layer <= (group == 1 ? 2 : 3); layer++) {
      Tensor k = random_rows(total, kKvHeads), v = random_rows(total, kKvHeads);
      ASSERT_EQ(append(f, layer, k, v), KVC_OK) << error_.message;
      int64_t t = 0;
      for (size_t r = 0; r < seqs.size(); r++) {
        for (int32_t i = 0; i < lengths[r]; i++, t++) {
          Kv &kv = encoded_[{seqs[r], layer}];
          for (int h = 0; h < kKvHeads; h++) {
            for (int d = 0; d < kDim; d++) {
              kv.k[static_cast<size_t>(h)].push_back(k.at(t, h, d));
              kv.v[static_cast<size_t>(h)].push_back(v.at(t, h, d));
            }
          }
        }
      }
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_OK) << error_.message;
    audit();
  }

  // One decoder step. The output of every cross layer is compared with float64, for every row that is not inert.
  void decode(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths, const int32_t *parents = nullptr) {
    kvc_forward f = 0;
    ASSERT_EQ(begin(seqs, lengths, 0, &f, parents), KVC_OK) << error_.message;
    int64_t total = 0;
    for (int32_t n : lengths) total += n;
    Tensor k = random_rows(total, kKvHeads), v = random_rows(total, kKvHeads);
    ASSERT_EQ(append(f, 0, k, v), KVC_OK) << error_.message;
    for (int32_t layer = 1; layer < 4; layer++) {
      Tensor q = random_rows(total, kHeads), out(DType::kF32, {total, kHeads, kDim}), lse(DType::kF32, {total, kHeads});
      const std::vector<uint8_t> untouched = out.bytes();
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.out = out.dl();
      args.lse = lse.dl();
      ASSERT_EQ(kvc_forward_attend(cache_.get(), f, layer, &args, &error_), KVC_OK) << error_.message;
      int64_t t = 0;
      for (size_t r = 0; r < seqs.size(); r++) {
        for (int32_t i = 0; i < lengths[r]; i++, t++) {
          if (seqs[r] == 0) {
            EXPECT_EQ(std::memcmp(out.bytes().data() + t * kHeads * kDim * 4, untouched.data(), kHeads * kDim * 4), 0);
          } else {
            check_row(seqs[r], layer, q, out, lse, t);
          }
        }
      }
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_OK) << error_.message;
    audit();
  }

  void check_row(kvc_seq seq, int32_t layer, const Tensor &q, const Tensor &out, const Tensor &lse, int64_t t) {
    const Kv &kv = encoded_[{seq, layer}];
    for (int h = 0; h < kHeads; h++) {
      const auto &keys = kv.k[static_cast<size_t>(h / 2)], &values = kv.v[static_cast<size_t>(h / 2)];
      const auto n = static_cast<int64_t>(keys.size()) / kDim;
      if (n == 0) {
        for (int d = 0; d < kDim; d++) ASSERT_EQ(out.at(t, h, d), 0.0f) << "layer " << layer << " sees nothing";
        ASSERT_EQ(lse.at(t, h), -INFINITY);
        continue;
      }
      float row[kDim];
      for (int d = 0; d < kDim; d++) row[d] = q.at(t, h, d);
      const AttentionOutput want = attend_reference(
          {row, kDim, kDim, n, keys.data(), values.data(), kDim, kDim, 0.25, type_of_p(type(), type()), 0});
      for (int d = 0; d < kDim; d++) {
        ASSERT_NEAR(out.at(t, h, d), want.out[static_cast<size_t>(d)], want.tolerance) << "layer " << layer << " " << n;
      }
      ASSERT_NEAR(lse.at(t, h), want.lse, want.lse_tolerance);
    }
    ++checked_;
  }

  int64_t encoder_length(int32_t group, kvc_seq seq) {
    int64_t length = -1;
    EXPECT_EQ(kvc_seq_encoder_lengths(cache_.get(), group, 1, &seq, &length, &error_), KVC_OK) << error_.message;
    return length;
  }
  int64_t pages_used(int32_t group) {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache_.get(), group, &stats, nullptr), KVC_OK);
    return stats.pages_used;
  }
  void audit() { ASSERT_EQ(kvc_cache_check_invariants(cache_.get(), &error_), KVC_OK) << error_.message; }
  void adopt_encoded(kvc_seq from, kvc_seq to) {
    for (int32_t layer = 1; layer < 4; layer++) encoded_[{to, layer}] = encoded_[{from, layer}];
  }

  struct Kv {
    std::vector<float> k[kKvHeads], v[kKvHeads];
  };
  std::mt19937_64 random_{11};
  ContextPtr context_ = make_context(2);
  kvc_cache_config config_;
  CachePtr cache_;
  std::vector<kvc_seq> seqs_;
  std::map<std::pair<kvc_seq, int32_t>, Kv> encoded_;
  kvc_error error_ = KVC_ERROR_INIT;
  int checked_ = 0;
};

TEST_P(Cross, EncoderSequencesHaveLengthsOfTheirOwn) {
  encode(1, {seqs_[0], seqs_[2]}, {10, 33});
  encode(1, {seqs_[3]}, {3});
  encode(1, {seqs_[3], 0}, {4, 5});
  encode(2, {seqs_[1], seqs_[0]}, {1, 17});
  EXPECT_EQ(encoder_length(1, seqs_[0]), 10);
  EXPECT_EQ(encoder_length(1, seqs_[1]), 0);
  EXPECT_EQ(encoder_length(1, seqs_[3]), 7);
  EXPECT_EQ(encoder_length(2, seqs_[0]), 17);
  int64_t length = -1;
  ASSERT_EQ(kvc_seq_lengths(cache_.get(), 1, &seqs_[0], &length, nullptr), KVC_OK);
  EXPECT_EQ(length, 0);
  decode({seqs_[3], seqs_[0], seqs_[1], seqs_[2]}, {5, 1, 20, 9});  // more queries than keys, and no keys at all
  decode({seqs_[0], 0, seqs_[1], seqs_[2], seqs_[3]}, {1, 2, 1, 1, 1});
  EXPECT_EQ(checked_, 3 * (35 + 4)) << "every token in every cross layer";
}

TEST_P(Cross, ForksShareThemAndTruncateLeavesThem) {
  encode(1, {seqs_[0]}, {21});
  decode({seqs_[0]}, {9});
  const int64_t before = pages_used(1);
  const kvc_seq parents[3] = {seqs_[0], seqs_[0], seqs_[0]};
  const int64_t positions[3] = {-1, 3, 0};
  kvc_seq children[3];
  ASSERT_EQ(kvc_seq_fork(cache_.get(), 3, parents, positions, children, nullptr, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(pages_used(1), before);
  for (kvc_seq child : children) {
    adopt_encoded(seqs_[0], child);
    EXPECT_EQ(encoder_length(1, child), 21);
  }
  const int64_t zero = 0;
  ASSERT_EQ(kvc_seq_truncate(cache_.get(), 1, &children[0], &zero, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(encoder_length(1, children[0]), 21);
  decode({children[1], children[0], seqs_[0], children[2]}, {1, 2, 1, 4});
  // Encoder tokens that a child adds are its own.
  encode(1, {children[1]}, {6});
  decode({seqs_[0], children[1], children[0]}, {1, 1, 1});
  ASSERT_EQ(kvc_seq_remove(cache_.get(), 1, &seqs_[0], nullptr), KVC_OK);
  decode({children[2], children[1], children[0]}, {1, 1, 1});
  ASSERT_EQ(kvc_seq_remove(cache_.get(), 3, children, nullptr), KVC_OK);
  EXPECT_EQ(pages_used(1), 0);
  EXPECT_GT(checked_, 0);
}

TEST_P(Cross, NodesOfATreeSeeThemAll) {
  encode(1, {seqs_[0], seqs_[1]}, {5, 12});
  decode({seqs_[0], seqs_[1]}, {3, 4});
  const int32_t parents[6] = {KVC_TREE_ROOT, 0, 0, KVC_TREE_ROOT, KVC_TREE_NONE, KVC_TREE_NONE};
  decode({seqs_[0], seqs_[1]}, {4, 2}, parents);
  const int32_t leaf = 2;
  ASSERT_EQ(kvc_seq_commit(cache_.get(), 1, &seqs_[0], &leaf, nullptr, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(encoder_length(1, seqs_[0]), 5);
  decode({seqs_[0]}, {1});
}

TEST_P(Cross, AnAbortedWriteLeavesNothing) {
  encode(1, {seqs_[0]}, {6});
  const int64_t before = pages_used(1);
  uint64_t digest = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(cache_.get(), &digest, nullptr), KVC_OK);
  kvc_forward f = 0;
  ASSERT_EQ(begin({seqs_[0], seqs_[1]}, {30, 20}, 2, &f), KVC_OK) << error_.message;
  EXPECT_GT(pages_used(1), before);
  ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_digest(cache_.get(), &after, nullptr), KVC_OK);
  EXPECT_EQ(digest, after);
  decode({seqs_[0], seqs_[1]}, {1, 1});
}

TEST_P(Cross, ExportsGiveWhatWasWritten) {
  encode(1, {seqs_[0]}, {13});
  decode({seqs_[0]}, {2});
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = 2;
  DLManagedTensorVersioned *k = nullptr;
  ASSERT_EQ(export_kv(cache_.get(), seqs_[0], &args, &k, nullptr, nullptr, &error_), KVC_OK) << error_.message;
  const Managed owner(k);
  ASSERT_EQ(k->dl_tensor.shape[0], 13);
  for (int64_t t = 0; t < 13; t++) {
    ASSERT_EQ(load(type(), k->dl_tensor.data, (t * kKvHeads + 1) * kDim + 5),
              (encoded_[{seqs_[0], 2}].k[1][static_cast<size_t>(t * kDim + 5)]));
  }
}

TEST_P(Cross, RefusesWhatMakesNoSense) {
  kvc_forward f = 0;
  EXPECT_EQ(begin({seqs_[0]}, {3}, 1, &f), KVC_ERROR_INVALID_ARGUMENT) << "group 0 is full";
  EXPECT_EQ(begin({seqs_[0]}, {3}, 4, &f), KVC_ERROR_INVALID_ARGUMENT) << "no such group";
  EXPECT_EQ(begin({seqs_[0]}, {3}, -1, &f), KVC_ERROR_INVALID_ARGUMENT);
  const int32_t parents[3] = {-1, 0, 1};
  EXPECT_EQ(begin({seqs_[0]}, {3}, 2, &f, parents), KVC_ERROR_INVALID_ARGUMENT) << "encoders have no trees";
  int64_t length = 0;
  EXPECT_EQ(kvc_seq_encoder_lengths(cache_.get(), 0, 1, &seqs_[0], &length, nullptr), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(kvc_seq_encoder_lengths(cache_.get(), 9, 1, &seqs_[0], &length, nullptr), KVC_ERROR_OUT_OF_RANGE);

  ASSERT_EQ(begin({seqs_[0]}, {3}, 2, &f), KVC_OK) << error_.message;
  Tensor k = random_rows(3, kKvHeads), v = random_rows(3, kKvHeads), q = random_rows(3, kHeads),
         out = random_rows(3, kHeads);
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.out = out.dl();
  EXPECT_EQ(kvc_forward_attend(cache_.get(), f, 1, &args, &error_), KVC_ERROR_ORDER) << "it writes only";
  EXPECT_EQ(append(f, 0, k, v), KVC_ERROR_INVALID_ARGUMENT) << "not of this group";
  EXPECT_EQ(append(f, 3, k, v), KVC_ERROR_INVALID_ARGUMENT) << "not of this group";
  ASSERT_EQ(append(f, 1, k, v), KVC_OK) << error_.message;
  EXPECT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_ERROR_ORDER);
  EXPECT_EQ(error_.index, 2) << "the group's other layer";
  ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);

  ASSERT_EQ(begin({seqs_[0]}, {3}, 0, &f), KVC_OK) << error_.message;
  EXPECT_EQ(append(f, 1, k, v), KVC_ERROR_INVALID_ARGUMENT) << "in a decoder step";
  args.k = k.dl();
  args.v = v.dl();
  EXPECT_EQ(kvc_forward_attend(cache_.get(), f, 1, &args, &error_), KVC_ERROR_INVALID_ARGUMENT);
  args.k = args.v = nullptr;
  args.flags = KVC_ATTEND_PAST;
  EXPECT_EQ(kvc_forward_attend(cache_.get(), f, 1, &args, &error_), KVC_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);

  EXPECT_EQ(begin({seqs_[0], seqs_[1]}, {40, 24}, 2, &f), KVC_OK) << error_.message;
  ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);
  EXPECT_EQ(begin({seqs_[0], seqs_[1]}, {40, 25}, 2, &f), KVC_ERROR_BATCH_TOO_LARGE);
}

INSTANTIATE_TEST_SUITE_P(
    Pages, Cross, testing::Values(std::tuple(1, DType::kF32), std::tuple(4, DType::kF32), std::tuple(16, DType::kBF16)),
    [](const auto &info) {
      return "page" + std::to_string(std::get<0>(info.param)) + "_" + name_of(std::get<1>(info.param));
    });

// An import has the sequence's own tokens, which no layer here stores.
void expect_no_import(kvc_context *context, const kvc_cache_config &config) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_cache *raw = nullptr;
  ASSERT_EQ(kvc_cache_create(context, &config, &raw, &error), KVC_OK) << error.message;
  const CachePtr cache(raw);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(raw, 1, &seq, &error), KVC_OK);
  const DLTensor *none[1] = {nullptr};
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.num_layers = 1;
  args.k = args.v = none;
  EXPECT_EQ(kvc_seq_import(raw, seq, &args, nullptr, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.message, "no layer stores"), nullptr) << error.message;
}

TEST(CrossConfig, WindowsAndRotationAreRefused) {
  ContextPtr context = make_context();
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = 4;
  kvc_group_config group;
  kvc_group_config_init(&group);
  group.visibility = KVC_VISIBLE_ENCODER;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.groups = &group;
  config.num_groups = 1;
  config.capacity_tokens = 64;
  const auto create = [&](kvc_error *error) {
    kvc_cache *raw = nullptr;
    const kvc_status status = kvc_cache_create(context.get(), &config, &raw, error);
    kvc_cache_destroy(raw);
    return status;
  };
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(create(&error), KVC_OK) << error.message;
  expect_no_import(context.get(), config);
  group.window_tokens = 5;
  EXPECT_EQ(create(&error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "window_tokens 5 with KVC_VISIBLE_ENCODER must be 0"), nullptr) << error.message;
  group.window_tokens = 0;
  layer.rope_mode = KVC_ROPE_ON_APPEND;
  EXPECT_EQ(create(&error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "KVC_VISIBLE_ENCODER"), nullptr) << error.message;
}

}  // namespace
}  // namespace kvt
