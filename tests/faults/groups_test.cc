// A cache of full, cross and recurrent layers. Every allocation of its creation and of its calls fails once. In the
// steady state it allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "interpose.h"
#include "wrappers.h"

namespace kvt {
namespace {

// Layers 0 (full), 1 (cross), 2 (recurrent, two states).
struct SmallHybrid {
  kvc_state_config states[2];
  kvc_layer_config layers[3];
  kvc_group_config groups[3];
  kvc_cache_config config;
  ContextPtr context = make_context(1);
  CachePtr owner;
  kvc_cache *cache = nullptr;
  kvc_seq seqs[2] = {0, 0};
  kvc_error error = KVC_ERROR_INIT;
  Tensor rows{DType::kF32, {8, 2, 16}}, q{DType::kF32, {8, 4, 16}}, out{DType::kF32, {8, 4, 16}};
  Tensor state_rows[2] = {{DType::kF32, {2, 4, 4}}, {DType::kF16, {2, 9}}};

  SmallHybrid() {
    for (kvc_state_config &s : states) kvc_state_config_init(&s);
    states[0].rank = 2;
    states[0].shape[0] = states[0].shape[1] = 4;
    states[1].rank = 1;
    states[1].shape[0] = 9;
    states[1].dtype = {kDLFloat, 16, 1};
    const int32_t stored[3] = {KVC_ROW_KV, KVC_ROW_KV, KVC_ROW_STATE};
    for (int i = 0; i < 3; i++) {
      kvc_layer_config_init(&layers[i]);
      kvc_group_config_init(&groups[i]);
      groups[i].row = stored[i];
      layers[i].group = i;
      if (i == 2) continue;
      layers[i].num_q_heads = 4;
      layers[i].num_kv_heads = 2;
      layers[i].head_dim = 16;
    }
    groups[1].visibility = KVC_VISIBLE_ENCODER;
    layers[2].states = states;
    layers[2].num_states = 2;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.groups = groups;
    config.num_layers = config.num_groups = 3;
    config.page_size = 4;
    config.max_sequences = 6;
    config.max_batch_tokens = 8;
    config.max_checkpoints = 2;
    config.capacity_tokens = 4096;
    for (Tensor *t : {&rows, &q, &state_rows[0], &state_rows[1]})
      std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
  }
  kvc_status create() {
    cache = nullptr;
    const kvc_status status = kvc_cache_create(context.get(), &config, &cache, &error);
    owner.reset(cache);
    return status;
  }
  // From here on the test itself allocates nothing.
  kvc_status begin(int32_t length, int32_t encoder_group, kvc_forward *f) {
    const int32_t lengths[2] = {length, length};
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs;
    batch.append_lengths = lengths;
    batch.num_sequences = 2;
    batch.encoder_group = encoder_group;
    return kvc_forward_begin(cache, &batch, nullptr, f, &error);
  }
  kvc_status append(kvc_forward f, int32_t layer) {
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = rows.dl();
    return kvc_forward_append(cache, f, layer, &args, &error);
  }
  kvc_status encode(int32_t length) {
    kvc_forward f = 0;
    if (kvc_status status = begin(length, 2, &f)) return status;
    if (kvc_status status = append(f, 1)) return status;
    return kvc_forward_end(cache, f, &error);
  }
  kvc_status step() {
    kvc_forward f = 0;
    if (kvc_status status = begin(1, 0, &f)) return status;
    if (kvc_status status = append(f, 0)) return status;
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.out = out.dl();
    if (kvc_status status = kvc_forward_attend(cache, f, 1, &args, &error)) return status;
    for (int32_t i = 0; i < 2; i++) {
      if (kvc_status status = kvc_forward_load_state(cache, f, 2, i, -1, state_rows[i].dl(), &error)) return status;
      if (kvc_status status = kvc_forward_store_state(cache, f, 2, i, -1, state_rows[i].dl(), &error)) return status;
    }
    return kvc_forward_end(cache, f, &error);
  }
  // Rejected drafts, and a child that is made and removed.
  kvc_status round(int64_t length) {
    const int64_t lengths[2] = {length, length};
    kvc_seq children[2];
    if (kvc_status status = kvc_seq_checkpoint(cache, 2, seqs, &error)) return status;
    for (int i = 0; i < 3; i++) {
      if (kvc_status status = step()) return status;
    }
    if (kvc_status status = kvc_seq_truncate(cache, 2, seqs, lengths, &error)) return status;
    if (kvc_status status = kvc_seq_fork(cache, 2, seqs, nullptr, children, nullptr, &error)) return status;
    if (kvc_status status = kvc_seq_remove(cache, 2, seqs, &error)) return status;
    std::copy_n(children, 2, seqs);
    return step();
  }
};

TEST(Faults, CreateOfAHybridCache) {
  SmallHybrid h;
  ASSERT_EQ(h.create(), KVC_OK) << h.error.message;
  h.owner.reset();
  const int64_t blocks = live_blocks(), mapped = live_mapped_bytes();
  int64_t failures = 0;
  for (int64_t n = 1; n < 2000; n++) {
    fail_allocation(n);
    const kvc_status status = h.create();
    const bool happened = failed();
    fail_allocation(0);
    ASSERT_EQ(status, happened ? KVC_ERROR_OUT_OF_MEMORY : KVC_OK) << h.error.message;
    h.owner.reset();
    ASSERT_EQ(live_blocks(), blocks) << "leak at allocation " << n;
    ASSERT_EQ(live_mapped_bytes(), mapped) << "leak at allocation " << n;
    if (!happened) break;
    failures++;
  }
  EXPECT_GT(failures, 20);
}

// The first calls of a fresh cache may allocate (forks do). Each allocation fails once, and the state is that before or
// after.
void fork_with_failing_allocations(SmallHybrid *h, int count) {
  kvc_seq parents[16], children[16];
  for (int i = 0; i < count; i++) parents[i] = h->seqs[i % 2];
  for (int64_t n = 1;; n++) {
    uint64_t before = 0, after = 0;
    ASSERT_EQ(kvc_cache_digest(h->cache, &before, nullptr), KVC_OK);
    fail_allocation(n);
    const kvc_status status = kvc_seq_fork(h->cache, count, parents, nullptr, children, nullptr, &h->error);
    const bool happened = failed();
    fail_allocation(0);
    ASSERT_EQ(kvc_cache_check_invariants(h->cache, &h->error), KVC_OK) << h->error.message;
    if (!happened) {
      ASSERT_EQ(status, KVC_OK) << h->error.message;
      break;
    }
    ASSERT_EQ(status, KVC_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(kvc_cache_digest(h->cache, &after, nullptr), KVC_OK);
    ASSERT_EQ(before, after);
    ASSERT_LT(n, 100);
  }
}

TEST(Faults, ForkOfAHybridSequence) {
  SmallHybrid h;
  ASSERT_EQ(h.create(), KVC_OK) << h.error.message;
  ASSERT_EQ(kvc_seq_add(h.cache, 2, h.seqs, &h.error), KVC_OK);
  ASSERT_EQ(h.encode(3), KVC_OK) << h.error.message;
  for (int i = 0; i < 5; i++) ASSERT_EQ(h.step(), KVC_OK) << h.error.message;
  ASSERT_EQ(kvc_seq_checkpoint(h.cache, 2, h.seqs, &h.error), KVC_OK);
  fork_with_failing_allocations(&h, 4);
}

// Each child needs a copy and a clear of its last page. These are more than the cache has room for at first.
TEST(Faults, ForkWithClearedPages) {
  SmallHybrid h;
  h.config.flags |= KVC_CACHE_ZERO_ON_FREE;
  h.config.num_layers = h.config.num_groups = 1;
  h.config.max_checkpoints = 0;
  h.config.max_sequences = 12;
  ASSERT_EQ(h.create(), KVC_OK) << h.error.message;
  ASSERT_EQ(kvc_seq_add(h.cache, 2, h.seqs, &h.error), KVC_OK);
  kvc_forward f = 0;
  ASSERT_EQ(h.begin(3, 0, &f), KVC_OK) << h.error.message;
  ASSERT_EQ(h.append(f, 0), KVC_OK) << h.error.message;
  ASSERT_EQ(kvc_forward_end(h.cache, f, &h.error), KVC_OK) << h.error.message;
  fork_with_failing_allocations(&h, 10);
}

TEST(Steady, NoAllocationOverStatesAndEncoderSequences) {
  SmallHybrid h;
  ASSERT_EQ(h.create(), KVC_OK) << h.error.message;
  ASSERT_EQ(kvc_seq_add(h.cache, 2, h.seqs, &h.error), KVC_OK);
  ASSERT_EQ(h.encode(4), KVC_OK) << h.error.message;
  int64_t length = 0;
  for (; length < 50; length++) ASSERT_EQ(h.round(length), KVC_OK) << h.error.message;
  count_from_now();
  kvc_status status = KVC_OK;
  for (; length < 600 && status == KVC_OK; length++) {
    status = h.round(length);
    if (length % 100 == 0 && status == KVC_OK) status = h.encode(3);
  }
  const Counts c = counts();
  EXPECT_EQ(status, KVC_OK) << h.error.message;
  EXPECT_EQ(c.allocations, 0);
  EXPECT_EQ(kvc_cache_check_invariants(h.cache, &h.error), KVC_OK) << h.error.message;
}

}  // namespace
}  // namespace kvt
