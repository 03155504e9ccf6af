// A cache with a group of every kind, sequences that decode in it, and saved sequences in memory.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fixture.h"
#include "hybrid.h"
#include "temporary_folder.h"

namespace kvt {

using Bytes = std::vector<uint8_t>;

// The callbacks of a save and a load over bytes in memory. They fail at call number fail_at.
struct Memory {
  Bytes data;
  size_t at = 0;
  int64_t most = INT64_MAX;  // bytes that one read gives
  int fail_at = -1, calls = 0;

  static int32_t write(void *user, const void *data, int64_t bytes) {
    auto &self = *static_cast<Memory *>(user);
    if (self.calls++ == self.fail_at) return 28;  // ENOSPC
    const auto *begin = static_cast<const uint8_t *>(data);
    self.data.insert(self.data.end(), begin, begin + bytes);
    return 0;
  }
  static int64_t read(void *user, void *data, int64_t bytes) {
    auto &self = *static_cast<Memory *>(user);
    if (self.calls++ == self.fail_at) return -5;  // EIO
    const int64_t left = static_cast<int64_t>(self.data.size() - self.at);
    const int64_t count = std::min({bytes, left, self.most});
    if (count > 0) std::memcpy(data, self.data.data() + self.at, static_cast<size_t>(count));
    self.at += static_cast<size_t>(count);
    return count;
  }
};

inline kvc_save_args save_args(Memory *memory) {
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.write = &Memory::write;
  args.write_user = memory;
  return args;
}

inline kvc_load_args load_args(Memory *memory) {
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.read = &Memory::read;
  args.read_user = memory;
  return args;
}

// A cache with the groups of Hybrid. The inputs of a step are functions of positions and of what the cache has stored.
struct Chat {
  Hybrid hybrid;
  ContextPtr context = make_context(1);
  CachePtr owner;
  kvc_cache *cache = nullptr;

  explicit Chat(const std::function<void(Hybrid *)> &change = {}) {
    if (change) change(&hybrid);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &hybrid.config, &cache, &error), KVC_OK) << error.message;
    owner.reset(cache);
  }

  kvc_seq add() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    return seq;
  }
  int64_t length(kvc_seq seq) {
    int64_t n = -1;
    EXPECT_EQ(kvc_seq_lengths(cache, 1, &seq, &n, nullptr), KVC_OK);
    return n;
  }
  kvc_forward begin(kvc_seq seq, int32_t tokens, int32_t encoder_group) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    batch.encoder_group = encoder_group;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    return f;
  }
  static void fill(Tensor *t, int64_t position, int seed) {
    for (int64_t i = 0; i < t->dim(0); i++) {
      for (int64_t h = 0; h < t->dim(1); h++) {
        for (int64_t d = 0; d < t->dim(2); d++) {
          t->set(i, h, d, static_cast<float>(((position + i) * 7 + h * 5 + d * 3 + seed) % 23) / 16 - 0.6f);
        }
      }
    }
  }
  void encode(kvc_seq seq, int32_t tokens) {
    const kvc_forward f = begin(seq, tokens, kCrossGroup + 1);
    Tensor k(DType::kF32, {tokens, kKvHeads, kDim}), v(DType::kF32, {tokens, kKvHeads, kDim});
    fill(&k, 3, 1);
    fill(&v, 5, 2);
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = k.dl();
    args.v = v.dl();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_forward_append(cache, f, kCrossGroup, &args, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
  }
  // A step. Returns all its outputs and states.
  Bytes step(kvc_seq seq, int32_t tokens) {
    Bytes all;
    const auto keep = [&](const Tensor &t) { all.insert(all.end(), t.bytes().begin(), t.bytes().end()); };
    const int64_t position = length(seq);
    const kvc_forward f = begin(seq, tokens, 0);
    kvc_error error = KVC_ERROR_INIT;
    for (int layer = 0; layer <= kKinds; layer++) {
      if (layer == kRecurrentGroup) {
        for (int s = 0; s < 2; s++) {
          Tensor state(DType::kF32, {1, 5});
          EXPECT_EQ(kvc_forward_load_state(cache, f, layer, s, -1, state.dl(), &error), KVC_OK) << error.message;
          for (int i = 0; i < 5; i++) state.set(0, i, state.at(0, i) * 0.5f + static_cast<float>(position + i + s));
          EXPECT_EQ(kvc_forward_store_state(cache, f, layer, s, -1, state.dl(), &error), KVC_OK) << error.message;
          keep(state);
        }
        continue;
      }
      const int kv_heads = layer == kMlaGroup ? 1 : kKvHeads, v_dim = layer == kMlaGroup ? kLatent : kDim;
      Tensor q(DType::kF32, {tokens, kHeads, kDim}), k(DType::kF32, {tokens, kv_heads, kDim});
      Tensor v(DType::kF32, {tokens, kv_heads, kDim}), out(DType::kF32, {tokens, kHeads, v_dim});
      fill(&q, position, layer);
      fill(&k, position, layer + 10);
      fill(&v, position, layer + 20);
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.out = out.dl();
      if (layer != kCrossGroup && layer != kSharing) args.k = k.dl();
      if (args.k != nullptr && layer != kMlaGroup) args.v = v.dl();
      EXPECT_EQ(kvc_forward_attend(cache, f, layer, &args, &error), KVC_OK) << layer << ": " << error.message;
      keep(out);
    }
    EXPECT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
    return all;
  }
  Bytes steps(kvc_seq seq, int count) {
    Bytes all;
    for (int i = 0; i < count; i++) {
      const Bytes one = step(seq, 1 + i % 3);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  // A sequence with something in every group, and a checkpoint before its end.
  kvc_seq talk() {
    const kvc_seq seq = add();
    encode(seq, 9);
    step(seq, 19);
    EXPECT_EQ(kvc_seq_checkpoint(cache, 1, &seq, nullptr), KVC_OK);
    step(seq, 4);
    return seq;
  }
  Bytes save(kvc_seq seq, const std::vector<int32_t> &tokens = {}, int64_t section_bytes = 4096) {
    Memory memory;
    kvc_save_args args = save_args(&memory);
    args.tokens = tokens.empty() ? nullptr : tokens.data();
    args.num_tokens = static_cast<int64_t>(tokens.size());
    args.section_bytes = section_bytes;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_seq_save(cache, seq, &args, nullptr, &error), KVC_OK) << error.message;
    return memory.data;
  }
  kvc_status try_load(const Bytes &bytes, kvc_seq *seq, kvc_error *error) {
    Memory memory;
    memory.data = bytes;
    const kvc_load_args args = load_args(&memory);
    return kvc_seq_load(cache, &args, nullptr, seq, nullptr, error);
  }
  kvc_seq load(const Bytes &bytes) {
    kvc_seq seq = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(try_load(bytes, &seq, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_cache_check_invariants(cache, &error), KVC_OK) << error.message;
    return seq;
  }
  int64_t used_pages() {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache, -1, &stats, nullptr), KVC_OK);
    return stats.pages_used;
  }
};

// A temporary folder.
struct Folder {
  const std::string path = make_temporary_folder("kvc-save-");
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char *name) const { return path + "/" + name; }
  int64_t count() const {
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  }
};

}  // namespace kvt
