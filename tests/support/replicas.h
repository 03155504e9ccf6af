// Replicas: caches that get the same calls with the same numbers, so that tests can compare their outputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "wrappers.h"

namespace kvt {

// Options of attend, for every layer of a step.
struct StepOptions {
  uint32_t flags = 0;  // KVC_ATTEND_*
  double softcap = 0;
  bool alibi = false, sinks = false;
  bool rel_bias = false;   // one for each query
  bool by_key = false;     // a bias for each key and head, and a mask; both by the index of the key
  bool projected = false;  // MLA layers: q and out by up-projections
  // Lists of keys in blocks of list_block tokens, of about half of a query's blocks: the same sets for the same tags
  // and positions, in another order in each call. 0: none. positions: of the tokens, where list_block is given.
  int32_t list_block = 0;
  std::vector<int64_t> positions = {};
};

// Outputs of a step: of each layer [tokens, Hq, Dv] and [tokens, Hq].
struct StepOutputs {
  std::vector<Tensor> out, lse;
  std::string plan;  // kvc_forward_describe
};

class Replica {
 public:
  explicit Replica(const CacheSpec &spec, int threads = 1, const char *simd = nullptr)
      : spec_(spec), context_(make_context(threads, simd)), cache_(make_cache(context_.get(), spec)) {}

  // A sequence has the same index in all replicas.
  int add() {
    seqs_.push_back(0);
    check(kvc_seq_add(cache_.get(), 1, &seqs_.back(), &error_));
    return static_cast<int>(seqs_.size()) - 1;
  }
  int fork(int parent, int64_t position) {
    seqs_.push_back(0);
    check(
        kvc_seq_fork(cache_.get(), 1, &seqs_[static_cast<size_t>(parent)], &position, &seqs_.back(), nullptr, &error_));
    return static_cast<int>(seqs_.size()) - 1;
  }
  void remove(int seq) { check(kvc_seq_remove(cache_.get(), 1, &seqs_[static_cast<size_t>(seq)], &error_)); }
  void stream(int seq, int64_t sinks, int64_t window) {
    check(kvc_seq_set_streaming(cache_.get(), 1, &seqs_[static_cast<size_t>(seq)], &sinks, &window, 0, &error_));
  }
  void truncate(int seq, int64_t length) {
    check(kvc_seq_truncate(cache_.get(), 1, &seqs_[static_cast<size_t>(seq)], &length, &error_));
  }

  // Commits the path to `leaf` of a sequence's tree.
  void commit(int seq, int32_t leaf) {
    check(kvc_seq_commit(cache_.get(), 1, &seqs_[static_cast<size_t>(seq)], &leaf, nullptr, &error_));
  }

  // Appends lengths[i] tokens to rows[i], with the numbers value(tags[token], ...), and attends in every layer.
  // parents: empty, or of each token as in kvc_batch.tree_parents.
  StepOutputs step(const std::vector<int> &rows, const std::vector<int32_t> &lengths, const std::vector<uint64_t> &tags,
                   const StepOptions &options = {}, const std::vector<int32_t> &parents = {}) {
    std::vector<kvc_seq> ids;
    for (int row : rows) ids.push_back(seqs_[static_cast<size_t>(row)]);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = ids.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(ids.size());
    if (!parents.empty()) batch.tree_parents = parents.data();
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache_.get(), &batch, nullptr, &forward, &error_));
    StepOutputs outputs;
    outputs.plan = text_of([&](char *buffer, int64_t capacity, int64_t *length) {
      return kvc_forward_describe(cache_.get(), forward, buffer, capacity, length, nullptr);
    });
    for (size_t layer = 0; layer < spec_.layers.size(); layer++) {
      attend(forward, static_cast<int>(layer), rows.size(), tags, options, &outputs);
    }
    check(kvc_forward_end(cache_.get(), forward, &error_));
    return outputs;
  }
  kvc_cache *cache() { return cache_.get(); }
  kvc_seq id(int seq) const { return seqs_[static_cast<size_t>(seq)]; }

  static float value(uint64_t tag, int layer, int head, int dim, int which) {
    uint64_t x = tag * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(((layer * 64 + head) * 512 + dim) * 4 + which);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return static_cast<float>(static_cast<int32_t>(x >> 33) - (1 << 30)) / static_cast<float>(1 << 29);
  }

 private:
  static constexpr int kNope = 20, kOut = 12;  // dims of a head that up-projections give

  void check(kvc_status status) {
    if (status != KVC_OK) throw std::runtime_error(describe(error_));
  }
  static Tensor rows_of(const std::vector<uint64_t> &tags, DType type, int layer, int heads, int dims, int which) {
    Tensor tensor(type, {static_cast<int64_t>(tags.size()), heads, dims});
    for (size_t t = 0; t < tags.size(); t++) {
      for (int h = 0; h < heads; h++) {
        for (int d = 0; d < dims; d++) tensor.set(static_cast<int64_t>(t), h, d, value(tags[t], layer, h, d, which));
      }
    }
    return tensor;
  }
  static constexpr int kListEntries = 64, kBiasKeys = 4096, kBiasDistances = 300;
  std::vector<int32_t> random_lists(const std::vector<uint64_t> &tags, const StepOptions &options, int layer,
                                    int heads) {
    std::vector<int32_t> entries(tags.size() * static_cast<size_t>(heads * kListEntries), -1);
    int32_t *list = entries.data();
    for (size_t t = 0; t < tags.size(); t++) {
      for (int h = 0; h < heads; h++, list += kListEntries) {
        int n = 0;
        for (int32_t unit = 0; unit <= options.positions[t] / options.list_block && n < kListEntries; unit++) {
          if (value(tags[t], layer, h, unit, 3) > -0.2f) list[n++] = unit;
        }
        std::shuffle(list, list + kListEntries, shuffler_);
      }
    }
    return entries;
  }
  struct Biases {
    Tensor rel_bias, key_bias;
    std::vector<uint8_t> mask;
    int64_t mask_shape[2];
    DLTensor mask_tensor;
  };
  void make_biases(int layer, size_t rows, const std::vector<uint64_t> &tags, const StepOptions &options,
                   Biases *biases, kvc_attend_args *args) {
    const LayerSpec &l = spec_.layers[static_cast<size_t>(layer)];
    if (options.rel_bias) {
      biases->rel_bias = rows_of(tags, DType::kF32, layer, l.hq, kBiasDistances, 3);
      args->rel_bias = biases->rel_bias.dl();
    }
    if (!options.by_key) return;
    biases->key_bias = Tensor(DType::kF32, {static_cast<int64_t>(rows), kBiasKeys, l.hkv});
    for (int64_t key = 0; key < kBiasKeys; key++) {
      for (int h = 0; h < l.hkv; h++) {
        const float bias = value(static_cast<uint64_t>(key), layer, h, 1, 3);
        for (size_t row = 0; row < rows; row++) biases->key_bias.set(static_cast<int64_t>(row), key, h, bias);
      }
    }
    args->key_bias = biases->key_bias.dl();
    for (uint64_t tag : tags) {
      for (int key = 0; key < kBiasKeys; key++) biases->mask.push_back(value(tag, layer, 0, key, 3) > -1.0f ? 1 : 0);
    }
    biases->mask_shape[0] = static_cast<int64_t>(tags.size());
    biases->mask_shape[1] = kBiasKeys;
    biases->mask_tensor = {biases->mask.data(), test_device(), 2, {kDLBool, 8, 1}, biases->mask_shape, nullptr, 0};
    args->mask = &biases->mask_tensor;
  }
  void attend(kvc_forward forward, int layer, size_t rows, const std::vector<uint64_t> &tags,
              const StepOptions &options, StepOutputs *outputs) {
    const LayerSpec &l = spec_.layers[static_cast<size_t>(layer)];
    const DType type = is_quantised(l.dtype) ? DType::kF32 : l.dtype;
    const auto tokens = static_cast<int64_t>(tags.size());
    const bool projected = options.projected && l.latent > 0;
    const int q_dims = projected ? kNope + l.d - l.latent : l.d, out_dims = projected ? kOut : l.v_dim();
    Tensor q = rows_of(tags, type, layer, l.hq, q_dims, 0), k = rows_of(tags, type, layer, l.hkv, l.d, 1),
           v = rows_of(tags, type, layer, l.hkv, l.v_dim(), 2), w_uk(type, {l.hq, kNope, std::max(l.latent, 1)}),
           w_uv(type, {l.hq, kOut, std::max(l.latent, 1)});
    for (int h = 0; projected && h < l.hq; h++) {
      for (int d = 0; d < l.latent; d++) {
        for (int n = 0; n < kNope; n++) w_uk.set(h, n, d, value(static_cast<uint64_t>(n), 60, h, d, 3) / 8);
        for (int n = 0; n < kOut; n++) w_uv.set(h, n, d, value(static_cast<uint64_t>(n), 61, h, d, 3) / 8);
      }
    }
    Tensor slopes(DType::kF32, {l.hq}), sinks(DType::kF32, {l.hq});
    for (int h = 0; h < l.hq; h++) {
      store(DType::kF32, slopes.data(), h, std::exp2(-static_cast<float>(h + 1)));
      store(DType::kF32, sinks.data(), h, static_cast<float>(h % 3) - 1.0f);
    }
    outputs->out.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hq, out_dims});
    outputs->lse.emplace_back(DType::kF32, std::vector<int64_t>{tokens, l.hq});
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.k = k.dl();
    args.v = l.latent > 0 ? nullptr : v.dl();
    args.w_uk = projected ? w_uk.dl() : nullptr;
    args.w_uv = projected ? w_uv.dl() : nullptr;
    args.out = outputs->out.back().dl();
    args.lse = outputs->lse.back().dl();
    args.flags = options.flags;
    args.softcap = options.softcap;
    std::vector<int32_t> entries;
    int64_t list_shape[3] = {tokens, l.hkv, kListEntries};
    const DLTensor lists = {nullptr, test_device(), 3, {kDLInt, 32, 1}, list_shape, nullptr, 0};
    DLTensor list_tensor = lists;
    if (options.list_block > 0) {
      entries = random_lists(tags, options, layer, l.hkv);
      list_tensor.data = entries.data();
      args.indices = &list_tensor;
      args.index_block = options.list_block;
    }
    Biases biases;
    if (options.rel_bias || options.by_key) make_biases(layer, rows, tags, options, &biases, &args);
    if (options.alibi) args.alibi_slopes = slopes.dl();
    if (options.sinks) args.sinks = sinks.dl();
    check(kvc_forward_attend(cache_.get(), forward, layer, &args, &error_));
  }

  CacheSpec spec_;
  ContextPtr context_;
  CachePtr cache_;
  std::vector<kvc_seq> seqs_;
  kvc_error error_ = KVC_ERROR_INIT;
  std::mt19937 shuffler_{std::random_device{}()};
};

}  // namespace kvt
