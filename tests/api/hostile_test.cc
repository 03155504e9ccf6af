// Defects that hostile input once found, one test for each.
#include <climits>

#include "fixture.h"

namespace kvt {
namespace {

// Regression: strides that overflow only in bytes, and addresses that wrap, were computed modulo 2^64.
TEST(Hostile, TensorsThatLeaveTheAddressSpace) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {2});
  for (int which = 0; which < 5; which++) {
    for (const int64_t stride : {INT64_C(1) << 62, INT64_C(1) << 61, INT64_MAX}) {
      LayerTensors t(w.spec.layers[0], 2);
      kvc_attend_args args = t.attend_args();
      const DLTensor *const originals[5] = {args.q, args.k, args.v, args.out, args.lse};
      DLTensor changed = *originals[which];
      int64_t strides[3] = {stride, changed.ndim == 3 ? changed.shape[2] : 1, 1};
      changed.strides = strides;
      const DLTensor **const places[5] = {&args.q, &args.k, &args.v, &args.out, &args.lse};
      *places[which] = &changed;
      refused(w.cache, {KVC_ERROR_STRIDE}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &args, e); });
      changed.strides = originals[which]->strides;
      changed.byte_offset = UINT64_MAX - 3;
      refused(w.cache, {KVC_ERROR_STRIDE}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &args, e); });
    }
  }
  w.attend_all(f, 2);
  EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
}

// Regression: where an output overlapped an input, the call read what it had written.
TEST(Hostile, OutputsThatOverlapInputs) {
  World w;
  kvc_seq ids[4] = {w.seq, w.forked, 0, 0};
  const int64_t positions[2] = {0, 16};
  auto *numbers = reinterpret_cast<int64_t *>(ids) + 1;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_fork",
          [&](kvc_error *e) { return kvc_seq_fork(w.cache, 2, ids, positions, ids + 1, nullptr, e); }, {"overlaps"});
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_lengths",
          [&](kvc_error *e) { return kvc_seq_lengths(w.cache, 2, ids, numbers, e); }, {"overlaps"});
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_max_append",
          [&](kvc_error *e) { return kvc_seq_max_append(w.cache, 2, ids, numbers, e); }, {"overlaps"});
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_exclusive_pages",
          [&](kvc_error *e) { return kvc_seq_exclusive_pages(w.cache, 0, 2, ids, numbers, e); }, {"overlaps"});
}

// Regression: the end of an array was computed beyond 2^64, so overlapping arrays seemed disjoint.
TEST(Hostile, OverlapsWhoseEndLeavesTheAddressSpace) {
  World w;
  auto *const last = reinterpret_cast<kvc_seq *>(UINTPTR_MAX - 31);
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_lengths",
          [&](kvc_error *e) { return kvc_seq_lengths(w.cache, 8, last, reinterpret_cast<int64_t *>(last), e); },
          {"overlaps"});
  kvc_seq ids[2] = {w.seq, w.forked};
  auto *const numbers = reinterpret_cast<int64_t *>(ids) + 1;
  for (const int64_t n : {int64_t{1} << 61, INT64_MAX}) {
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_lengths",
            [&](kvc_error *e) { return kvc_seq_lengths(w.cache, n, ids, numbers, e); }, {"overlaps"});
  }
}

// Regression: encoder_group - 1 overflowed for INT32_MIN.
TEST(Hostile, EncoderGroupsThatDoNotExist) {
  World w;  // two groups, and no cross group
  const int32_t length = 1;
  for (const int32_t group : {-1, 1, 2, 3, INT32_MAX, INT32_MIN}) {
    SCOPED_TRACE(group);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &w.seq;
    batch.append_lengths = &length;
    batch.num_sequences = 1;
    batch.encoder_group = group;
    kvc_forward f = 0;
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_begin",
            [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); },
            {"encoder_group", std::to_string(group < 0 ? group : group - 1)});
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_can_fit",
            [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &batch, e); }, {"encoder_group"});
  }
}

// While a thread of the host waits for its tasks, it may run another task that calls this cache. No lock may be held
// then.
struct Stealing {
  kvc_cache *cache = nullptr;
  kvc_seq seq = 0;
  int calls = 0;
  static void run(void *user, int64_t n, kvc_parallel_item_fn item, void *arg) {
    auto &self = *static_cast<Stealing *>(user);
    int64_t length = 0;
    if (self.cache != nullptr) {
      EXPECT_EQ(kvc_seq_lengths(self.cache, 1, &self.seq, &length, nullptr), KVC_OK);
      self.calls++;
    }
    for (int64_t i = 0; i < n; i++) item(arg, i);
  }
};

TEST(Hostile, TheHostsPoolMayCallTheCache) {
  Stealing stealing;
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = 4;
  config.parallel_for = Stealing::run;
  config.parallel_for_user = &stealing;
  kvc_context *context = nullptr;
  ASSERT_EQ(kvc_context_create(&config, &context, nullptr), KVC_OK);
  CacheSpec spec;
  spec.page_size = 16;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 512;
  spec.groups = {{0, 100}};
  spec.layers = {LayerSpec{0, 8, 8, 128}};
  CachePtr owner = make_cache(context, spec);
  kvc_context_destroy(context);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(owner.get(), 1, &seq, nullptr), KVC_OK);
  stealing.cache = owner.get();
  stealing.seq = seq;
  const auto step = [&](std::vector<kvc_seq> seqs, int32_t tokens) {
    std::vector<int32_t> lengths(seqs.size(), tokens);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(owner.get(), &batch, nullptr, &f, nullptr), KVC_OK);
    LayerTensors t(spec.layers[0], tokens * static_cast<int64_t>(seqs.size()));
    const kvc_attend_args args = t.attend_args();
    ASSERT_EQ(kvc_forward_attend(owner.get(), f, 0, &args, nullptr), KVC_OK);
    ASSERT_EQ(kvc_forward_end(owner.get(), f, nullptr), KVC_OK);
  };
  step({seq}, 136);  // ends inside a page, which forks copy
  EXPECT_GT(stealing.calls, 0);
  const std::vector<kvc_seq> parents(3, seq);
  std::vector<kvc_seq> children(3);
  ASSERT_EQ(kvc_seq_fork(owner.get(), 3, parents.data(), nullptr, children.data(), nullptr, nullptr), KVC_OK);
  const std::vector<int64_t> lengths(3, 120);  // into a shared page: the next step copies it
  ASSERT_EQ(kvc_seq_truncate(owner.get(), 3, children.data(), lengths.data(), nullptr), KVC_OK);
  step(children, 1);
  stealing.cache = nullptr;
}

TEST(Hostile, NumbersThatLeaveFloat) {
  for (const double bad : {1e300, 1e-300, 5e-324, -1.0}) {
    for (const bool scale : {false, true}) {
      ContextPtr context = make_context(1);
      kvc_layer_config layer;
      kvc_layer_config_init(&layer);
      layer.num_q_heads = layer.num_kv_heads = 1;
      layer.head_dim = 8;
      layer.rope_mode = KVC_ROPE_ON_APPEND;
      (scale ? layer.softmax_scale : layer.rope_theta) = bad;
      kvc_cache_config config;
      kvc_cache_config_init(&config);
      config.layers = &layer;
      config.num_layers = 1;
      config.capacity_tokens = 64;
      kvc_cache *cache = nullptr;
      refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
              [&](kvc_error *e) { return kvc_cache_create(context.get(), &config, &cache, e); },
              {scale ? "softmax_scale" : "rope_theta"});
    }
  }
}

TEST(Hostile, OneTensorForTwoLayers) {
  static int deleted;
  deleted = 0;
  std::vector<float> memory(4 * 2 * 16 * 8);
  int64_t shape[5] = {4, 2, 1, 16, 8}, strides[5] = {256, 128, 128, 8, 1};
  DLManagedTensorVersioned tensor = {};
  tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor.deleter = [](DLManagedTensorVersioned *) { deleted++; };
  tensor.dl_tensor = {memory.data(), {kDLCPU, 0}, 5, {kDLFloat, 32, 1}, shape, strides, 0};
  kvc_layer_config layers[2];
  for (kvc_layer_config &layer : layers) {
    kvc_layer_config_init(&layer);
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = 8;
    layer.kv_storage = &tensor;
  }
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = 2;
  config.capacity_pages = 4;
  ContextPtr context = make_context(1);
  kvc_cache *cache = nullptr;
  const kvc_error error = refused(nullptr, {KVC_ERROR_DUPLICATE}, "kvc_cache_create",
                                  [&](kvc_error *e) { return kvc_cache_create(context.get(), &config, &cache, e); });
  EXPECT_EQ(error.index, 1);
  config.num_layers = 1;
  ASSERT_EQ(kvc_cache_create(context.get(), &config, &cache, nullptr), KVC_OK);
  EXPECT_EQ(deleted, 0);
  kvc_cache_destroy(cache);
  EXPECT_EQ(deleted, 1);
}

TEST(Hostile, MessagesAreText) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.simd = "\xff\xfe\x80 \xe2\x82\xac";
  kvc_context *context = nullptr;
  const kvc_error error = refused(nullptr, {KVC_ERROR_UNSUPPORTED}, "kvc_context_create",
                                  [&](kvc_error *e) { return kvc_context_create(&config, &context, e); });
  for (const char c : error.message) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST(Hostile, AnIdOfLongAgoStaysStale) {
  World w;
  kvc_seq old = 0, seq = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &old, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_remove(w.cache, 1, &old, nullptr), KVC_OK);
  for (int i = 0; i < 100000; i++) {
    ASSERT_EQ(kvc_seq_add(w.cache, 1, &seq, nullptr), KVC_OK);
    ASSERT_NE(seq, old);
    ASSERT_EQ(kvc_seq_remove(w.cache, 1, &seq, nullptr), KVC_OK);
  }
  EXPECT_EQ(kvc_seq_remove(w.cache, 1, &old, nullptr), KVC_ERROR_STALE_ID);
}

TEST(Hostile, LargeBatchesCostMemoryOnlyWhenTheyCome) {
  ContextPtr context = make_context(1);
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = layer.head_dim = 1;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.capacity_tokens = 4096;
  config.max_batch_tokens = 1 << 20;
  config.max_open_forwards = 64;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  ASSERT_EQ(kvc_cache_estimate(context.get(), &config, -1, &estimate, nullptr), KVC_OK);
  EXPECT_GE(estimate.scratch_bytes, int64_t{64} * (1 << 20) * 12);  // positions and slots of 64 batches
}

}  // namespace
}  // namespace kvt
