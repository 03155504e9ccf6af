// Configurations with values that are out of range, contradict each other, or overflow.
#include <cmath>
#include <cstring>

#include "fixture.h"

namespace kvt {
namespace {

const Statuses kBad{KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_OUT_OF_RANGE, KVC_ERROR_UNSUPPORTED};
const Statuses kHuge{KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_OUT_OF_RANGE, KVC_ERROR_UNSUPPORTED,
                     KVC_ERROR_OUT_OF_MEMORY};

struct Case {
  const char *what;
  Statuses statuses;
  int64_t layer;  // expected error->index, -2 = not checked
  std::function<void(BuiltConfig &)> change;
};

kvc_error create_refused(kvc_context *context, const kvc_cache_config &config, const Case &c) {
  kvc_cache *cache = nullptr;
  const kvc_error error = refused(nullptr, c.statuses, "kvc_cache_create",
                                  [&](kvc_error *e) { return kvc_cache_create(context, &config, &cache, e); });
  EXPECT_EQ(cache, nullptr) << c.what;
  kvc_cache_destroy(cache);
  if (c.layer != -2) {
    EXPECT_EQ(error.index, c.layer) << c.what << ": " << error.message;
  }
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  kvc_error estimated = KVC_ERROR_INIT;
  const kvc_status status = kvc_cache_estimate(context, &config, -1, &estimate, &estimated);
  if (error.code == KVC_ERROR_OUT_OF_MEMORY) {
    EXPECT_TRUE(status == KVC_OK || status == KVC_ERROR_OUT_OF_MEMORY) << c.what;
  } else {
    EXPECT_EQ(status, error.code) << c.what << ": create and estimate disagree (" << error.message << ")";
    EXPECT_EQ(estimated.index, error.index) << c.what;
  }
  return error;
}

TEST(Limits, CacheConfigs) {
  ContextPtr context = make_context();
  const std::vector<Case> cases{
      {"no layers", kBad, -2, [](BuiltConfig &b) { b.config.num_layers = 0; }},
      {"negative layers", kBad, -2, [](BuiltConfig &b) { b.config.num_layers = -1; }},
      {"4097 layers", kBad, -2,
       [](BuiltConfig &b) {
         b.layers.resize(4097, b.layers[0]);
         b.config.layers = b.layers.data();
         b.config.num_layers = 4097;
       }},
      {"65 groups", kBad, -2,
       [](BuiltConfig &b) {
         b.groups.resize(65, b.groups[0]);
         b.config.groups = b.groups.data();
         b.config.num_groups = 65;
       }},
      {"no groups in an array", kBad, -2, [](BuiltConfig &b) { b.config.num_groups = 0; }},
      {"negative groups", kBad, -2, [](BuiltConfig &b) { b.config.num_groups = -1; }},
      {"page size -1", kBad, -2, [](BuiltConfig &b) { b.config.page_size = -1; }},
      {"page size 65537", kBad, -2, [](BuiltConfig &b) { b.config.page_size = 65537; }},
      {"negative sequences", kBad, -2, [](BuiltConfig &b) { b.config.max_sequences = -1; }},
      {"1048576 sequences", kBad, -2, [](BuiltConfig &b) { b.config.max_sequences = 1048576; }},
      {"negative batch", kBad, -2, [](BuiltConfig &b) { b.config.max_batch_tokens = -4; }},
      {"1048577 tokens", kBad, -2, [](BuiltConfig &b) { b.config.max_batch_tokens = 1048577; }},
      {"65 forwards", kBad, -2, [](BuiltConfig &b) { b.config.max_open_forwards = 65; }},
      {"negative forwards", kBad, -2, [](BuiltConfig &b) { b.config.max_open_forwards = -1; }},
      {"negative rollback", kBad, -2, [](BuiltConfig &b) { b.config.rollback_tokens = -1, b.config.flags = 0; }},
      {"no rollback and a rollback", kBad, -2,
       [](BuiltConfig &b) { b.config.rollback_tokens = 5, b.config.flags = KVC_CACHE_NO_ROLLBACK; }},
      {"K and V of a later layer", kBad, 0, [](BuiltConfig &b) { b.layers[0].kv_layer = 2; }},
      {"K and V of itself", kBad, 1, [](BuiltConfig &b) { b.layers[1].kv_layer = 2; }},
      {"K and V of layer -2", kBad, 1, [](BuiltConfig &b) { b.layers[1].kv_layer = -1; }},
      {"K and V of a layer that has none", kBad, 2,
       [](BuiltConfig &b) {
         b.layers[1] = b.layers[2] = b.layers[0];
         b.layers[1].kv_layer = 1, b.layers[2].kv_layer = 2;
       }},
      {"K and V of another group", kBad, 1,
       [](BuiltConfig &b) { b.layers[1].kv_layer = 1, b.layers[1].group = 1 - b.layers[0].group; }},
      {"K and V of other dims", kBad, 1,
       [](BuiltConfig &b) {
         b.layers[1] = b.layers[0];
         b.layers[1].kv_layer = 1;
         b.layers[1].head_dim += 2;
       }},
      {"K and V rotated otherwise", kBad, 1,
       [](BuiltConfig &b) {
         b.layers[1] = b.layers[0];
         b.layers[1].kv_layer = 1;
         b.layers[1].rope_mode = b.layers[0].rope_mode == KVC_ROPE_NONE ? KVC_ROPE_ON_APPEND : KVC_ROPE_NONE;
       }},
      {"negative tree", kBad, -2, [](BuiltConfig &b) { b.config.max_tree_nodes = -1; }},
      {"1025 tree nodes", kBad, -2, [](BuiltConfig &b) { b.config.max_tree_nodes = 1025; }},
      {"checkpoints without states", kBad, -2, [](BuiltConfig &b) { b.config.max_checkpoints = 1; }},
      {"prefixes shared never and always", kBad, -2,
       [](BuiltConfig &b) { b.config.flags |= KVC_CACHE_NO_PREFIX_SHARING | KVC_CACHE_SHARE_ALL_PREFIXES; }},
      {"deterministic and all prefixes shared", kBad, -2,
       [](BuiltConfig &b) { b.config.flags |= KVC_CACHE_DETERMINISTIC | KVC_CACHE_SHARE_ALL_PREFIXES; }},
      {"unknown flag", kBad, -2, [](BuiltConfig &b) { b.config.flags |= 0x8000; }},
      {"negative capacity", kBad, -2, [](BuiltConfig &b) { b.config.capacity_tokens = -1; }},
      {"negative pages", kBad, -2, [](BuiltConfig &b) { b.config.capacity_pages = -1; }},
      {"negative bytes", kBad, -2, [](BuiltConfig &b) { b.config.capacity_bytes = -1; }},
      {"two capacities", kBad, -2,
       [](BuiltConfig &b) { b.config.capacity_tokens = 100, b.config.capacity_pages = 100; }},
      {"three capacities", kBad, -2,
       [](BuiltConfig &b) {
         b.config.capacity_tokens = 100, b.config.capacity_pages = 100, b.config.capacity_bytes = 100000;
       }},
      {"no capacity", kBad, -2, [](BuiltConfig &b) { b.groups[1].num_pages = 0; }},
      {"bytes for less than a page", kHuge, -2,
       [](BuiltConfig &b) { b.groups[0].num_pages = b.groups[1].num_pages = 0, b.config.capacity_bytes = 7; }},
      {"unknown row", kBad, -2, [](BuiltConfig &b) { b.groups[0].row = 9; }},
      {"negative row", kBad, -2, [](BuiltConfig &b) { b.groups[0].row = -1; }},
      {"unknown visibility", kBad, -2, [](BuiltConfig &b) { b.groups[0].visibility = 9; }},
      {"negative visibility", kBad, -2, [](BuiltConfig &b) { b.groups[0].visibility = -1; }},
      {"full with a window", kBad, -2, [](BuiltConfig &b) { b.groups[0].window_tokens = 5; }},
      {"sliding without a window", kBad, -2, [](BuiltConfig &b) { b.groups[1].window_tokens = 0; }},
      {"sliding with a chunk", kBad, -2, [](BuiltConfig &b) { b.groups[1].chunk_tokens = 8; }},
      {"chunked with a window", kBad, -2, [](BuiltConfig &b) { b.groups[1].visibility = KVC_VISIBLE_CHUNK; }},
      {"a chunk of 0", kBad, -2,
       [](BuiltConfig &b) {
         b.groups[1].visibility = KVC_VISIBLE_CHUNK;
         b.groups[1].window_tokens = 0;
       }},
      {"negative window", kBad, -2, [](BuiltConfig &b) { b.groups[1].window_tokens = -3; }},
      {"negative group pages", kBad, -2, [](BuiltConfig &b) { b.groups[1].num_pages = -3; }},
      // Overflows.
      {"INT64_MAX tokens", kHuge, -2,
       [](BuiltConfig &b) { b.groups[0].num_pages = b.groups[1].num_pages = 0, b.config.capacity_tokens = INT64_MAX; }},
      {"INT64_MAX pages", kHuge, -2,
       [](BuiltConfig &b) { b.groups[0].num_pages = b.groups[1].num_pages = 0, b.config.capacity_pages = INT64_MAX; }},
      {"2^40 pages", kHuge, -2,
       [](BuiltConfig &b) {
         b.groups[0].num_pages = b.groups[1].num_pages = 0, b.config.capacity_pages = int64_t{1} << 40;
       }},
      {"2^31 pages in a group", kHuge, -2, [](BuiltConfig &b) { b.groups[0].num_pages = int64_t{1} << 31; }},
      {"INT64_MAX pages in a group", kHuge, -2, [](BuiltConfig &b) { b.groups[1].num_pages = INT64_MAX; }},
      {"2^31-1 pages of 65536 tokens", kHuge, -2,
       [](BuiltConfig &b) {
         b.config.page_size = 65536;
         b.groups[0].num_pages = INT32_MAX - 1;
         for (auto &l : b.layers) l.head_dim = 512, l.v_head_dim = 512, l.num_kv_heads = l.num_q_heads = 1 << 20;
       }},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.what);
    BuiltConfig b(World::default_spec());
    c.change(b);
    create_refused(context.get(), b.config, c);
  }
  // Enormous sizes either fit into the address space or are refused. Nothing crashes.
  for (int64_t window : {int64_t{1} << 20, int64_t{1} << 40, INT64_MAX}) {
    BuiltConfig b(World::default_spec());
    b.groups[1].window_tokens = window;
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_cache_create(context.get(), &b.config, &cache, &error);
    if (status == KVC_OK) {
      kvc_cache_destroy(cache);
    } else {
      EXPECT_TRUE(std::find(kHuge.begin(), kHuge.end(), status) != kHuge.end()) << error.message;
    }
  }
  BuiltConfig b(World::default_spec());
  b.groups[0].num_pages = b.groups[1].num_pages = 0;
  b.config.capacity_bytes = INT64_MAX;
  kvc_cache *cache = nullptr;
  const kvc_status status = kvc_cache_create(context.get(), &b.config, &cache, nullptr);
  EXPECT_TRUE(std::find(kHuge.begin(), kHuge.end(), status) != kHuge.end()) << kvc_status_name(status);
}

TEST(Limits, LayerConfigs) {
  ContextPtr context = make_context();
  auto layer = [](auto change) { return [change](BuiltConfig &b) { change(b.layers[1]); }; };
  using L = kvc_layer_config;
  Statuses dtype{KVC_ERROR_DTYPE};
  const std::vector<Case> cases{
      {"group -1", kBad, 1, layer([](L &l) { l.group = -1; })},
      {"group 2", kBad, 1, layer([](L &l) { l.group = 2; })},
      {"no q heads", kBad, 1, layer([](L &l) { l.num_q_heads = 0; })},
      {"negative q heads", kBad, 1, layer([](L &l) { l.num_q_heads = -2; })},
      {"no kv heads", kBad, 1, layer([](L &l) { l.num_kv_heads = 0; })},
      {"negative kv heads", kBad, 1, layer([](L &l) { l.num_kv_heads = -1; })},
      {"5 q heads, 2 kv heads", kBad, 1, layer([](L &l) { l.num_q_heads = 5, l.num_kv_heads = 2; })},
      {"fewer q heads than kv heads", kBad, 1, layer([](L &l) { l.num_q_heads = 1, l.num_kv_heads = 2; })},
      {"head dim 0", kBad, 1, layer([](L &l) { l.head_dim = 0; })},
      {"head dim 513", kBad, 1, layer([](L &l) { l.head_dim = 513; })},
      {"head dim -8", kBad, 1, layer([](L &l) { l.head_dim = -8; })},
      {"v head dim 513", kBad, 1, layer([](L &l) { l.v_head_dim = 513; })},
      {"v head dim -1", kBad, 1, layer([](L &l) { l.v_head_dim = -1; })},
      {"uint8", dtype, 1, layer([](L &l) { l.dtype = {kDLUInt, 8, 1}; })},
      {"float64", dtype, 1, layer([](L &l) { l.dtype = {kDLFloat, 64, 1}; })},
      {"float16 x 2", dtype, 1, layer([](L &l) { l.dtype = {kDLFloat, 16, 2}; })},
      {"float8 with an infinity", dtype, 1, layer([](L &l) { l.dtype = {kDLFloat8_e4m3, 8, 1}; })},
      {"float8 x 2", dtype, 1, layer([](L &l) { l.dtype = {kDLFloat8_e4m3fn, 8, 2}; })},
      {"rope mode 7", kBad, 1, layer([](L &l) { l.rope_mode = 7; })},
      {"rope mode -1", kBad, 1, layer([](L &l) { l.rope_mode = -1; })},
      {"odd rope dim", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_dim = 3; })},
      {"odd head dim rotated", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.head_dim = 7; })},
      {"rope dim over head dim", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_dim = 10; })},
      {"negative rope dim", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_dim = -2; })},
      {"theta -1", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_theta = -1; })},
      {"theta NaN", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_theta = NAN; })},
      {"theta infinite", kBad, 1, layer([](L &l) { l.rope_mode = KVC_ROPE_ON_APPEND, l.rope_theta = INFINITY; })},
      {"scale NaN", kBad, 1, layer([](L &l) { l.softmax_scale = NAN; })},
      {"scale infinite", kBad, 1, layer([](L &l) { l.softmax_scale = INFINITY; })},
      {"states without a recurrent group", kBad, 1, layer([](L &l) { l.num_states = 1; })},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.what);
    BuiltConfig b(World::default_spec());
    c.change(b);
    create_refused(context.get(), b.config, c);
  }
}

// With rope_mode NONE the other rope fields are ignored, even an invalid rope_scaling.
TEST(Limits, ScalingOfALayerThatDoesNotRotate) {
  ContextPtr context = make_context();
  BuiltConfig b(World::default_spec());
  kvc_rope_scaling garbage;
  std::memset(&garbage, 0xA5, sizeof garbage);
  b.layers[0].rope_mode = KVC_ROPE_NONE;
  b.layers[0].rope_scaling = &garbage;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_cache_estimate(context.get(), &b.config, -1, &estimate, &error), KVC_OK) << error.message;
}

TEST(Limits, LimitsThemselvesWork) {
  ContextPtr context = make_context();
  auto works = [&](auto change) {
    BuiltConfig b(World::default_spec());
    change(b);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_estimate(context.get(), &b.config, -1, &estimate, &error), KVC_OK) << error.message;
  };
  works([](BuiltConfig &b) { b.config.page_size = 65536; });
  works([](BuiltConfig &b) { b.config.max_sequences = 1048575; });
  works([](BuiltConfig &b) { b.config.max_batch_tokens = 1048576; });
  works([](BuiltConfig &b) { b.config.max_open_forwards = 64; });
  works([](BuiltConfig &b) { b.layers[0].head_dim = 512, b.layers[0].v_head_dim = 1; });
  works([](BuiltConfig &b) { b.layers[0].head_dim = 1; });
  works([](BuiltConfig &b) {
    b.layers.resize(4096, b.layers[0]);
    b.config.layers = b.layers.data();
    b.config.num_layers = 4096;
  });
  works([](BuiltConfig &b) {
    b.groups.resize(64, b.groups[0]);
    b.config.groups = b.groups.data();
    b.config.num_groups = 64;
    b.layers.resize(64, b.layers[0]);
    for (int i = 0; i < 64; i++) b.layers[i].group = i;
    b.config.layers = b.layers.data();
    b.config.num_layers = 64;
  });
  works([](BuiltConfig &b) {  // one full group without an array
    for (auto &l : b.layers) l.group = 0;
    b.config.groups = nullptr;
    b.config.num_groups = 0;
    b.config.capacity_tokens = 1000;
  });
}

TEST(Limits, Contexts) {
  auto context_refused = [](const Statuses &statuses, auto change, const char *word) {
    kvc_context_config config;
    kvc_context_config_init(&config);
    change(config);
    kvc_context *context = nullptr;
    refused(nullptr, statuses, "kvc_context_create",
            [&](kvc_error *e) { return kvc_context_create(&config, &context, e); }, {word});
    EXPECT_EQ(context, nullptr);
  };
  using C = kvc_context_config;
  context_refused({KVC_ERROR_INVALID_ARGUMENT}, [](C &c) { c.num_threads = -1; }, "-1");
  context_refused({KVC_ERROR_INVALID_ARGUMENT}, [](C &c) { c.num_threads = 1025; }, "1025");
  context_refused({KVC_ERROR_UNSUPPORTED}, [](C &c) { c.simd = "avx1024"; }, "avx1024");
  context_refused({KVC_ERROR_UNSUPPORTED}, [](C &c) { c.simd = ""; }, "");
  context_refused({KVC_ERROR_DEVICE_UNAVAILABLE}, [](C &c) { c.device_type = kDLMetal; }, "");
  context_refused({KVC_ERROR_DEVICE_UNAVAILABLE}, [](C &c) { c.device_type = 12345; }, "12345");
  context_refused({KVC_ERROR_DEVICE_UNAVAILABLE}, [](C &c) { c.device_type = kDLCUDA; }, "");
  context_refused({KVC_ERROR_UNSUPPORTED}, [](C &c) { c.flags = 2; }, "0x2");
  context_refused({KVC_ERROR_UNSUPPORTED}, [](C &c) { c.reserved = 7; }, "7");
  context_refused({KVC_ERROR_DEVICE_UNAVAILABLE, KVC_ERROR_INVALID_ARGUMENT}, [](C &c) { c.device_id = 3; }, "3");
  context_refused({KVC_ERROR_DEVICE_UNAVAILABLE, KVC_ERROR_INVALID_ARGUMENT}, [](C &c) { c.device_id = -1; }, "-1");
}

TEST(Limits, SequencesAndPositions) {
  World w;
  kvc_seq seqs[8] = {w.seq, w.forked}, children[8] = {};
  int64_t lengths[2] = {0, 0};
  for (int64_t n : {int64_t{-1}, INT64_MIN}) {
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_add",
            [&](kvc_error *e) { return kvc_seq_add(w.cache, n, children, e); }, {std::to_string(n)});
  }
  for (int64_t n : {int64_t{-1}, INT64_MIN}) {
    const Statuses invalid{KVC_ERROR_INVALID_ARGUMENT};
    refused(w.cache, invalid, "kvc_seq_remove", [&](kvc_error *e) { return kvc_seq_remove(w.cache, n, seqs, e); });
    refused(w.cache, invalid, "kvc_seq_fork",
            [&](kvc_error *e) { return kvc_seq_fork(w.cache, n, seqs, nullptr, children, nullptr, e); });
    refused(w.cache, invalid, "kvc_seq_truncate",
            [&](kvc_error *e) { return kvc_seq_truncate(w.cache, n, seqs, lengths, e); });
    refused(w.cache, invalid, "kvc_seq_lengths",
            [&](kvc_error *e) { return kvc_seq_lengths(w.cache, n, seqs, lengths, e); });
    refused(w.cache, invalid, "kvc_seq_max_append",
            [&](kvc_error *e) { return kvc_seq_max_append(w.cache, n, seqs, lengths, e); });
    refused(w.cache, invalid, "kvc_seq_exclusive_pages",
            [&](kvc_error *e) { return kvc_seq_exclusive_pages(w.cache, 0, n, seqs, lengths, e); });
  }
  for (int64_t position : {int64_t{21}, int64_t{-2}, INT64_MAX, INT64_MIN}) {
    const int64_t positions[2] = {20, position};
    EXPECT_EQ(refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_fork",
                      [&](kvc_error *e) { return kvc_seq_fork(w.cache, 2, seqs, positions, children, nullptr, e); },
                      {std::to_string(position), "20"})
                  .index,
              1);
    EXPECT_EQ(refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_truncate",
                      [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 2, seqs, positions, e); },
                      {std::to_string(position), "20"})
                  .index,
              1);
    int64_t before = 0;
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_nearest_position",
            [&](kvc_error *e) { return kvc_seq_nearest_position(w.cache, w.seq, position, &before, nullptr, e); });
  }
  for (int32_t group : {-1, 2, INT32_MAX, INT32_MIN}) {
    int64_t count = 0;
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_pages",
            [&](kvc_error *e) { return kvc_seq_pages(w.cache, w.seq, group, nullptr, 0, &count, e); });
    kvc_stats stats;
    kvc_stats_init(&stats);
    if (group != -1) {
      refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_stats",
              [&](kvc_error *e) { return kvc_cache_stats(w.cache, group, &stats, e); });
      BuiltConfig b(w.spec);
      kvc_estimate estimate;
      kvc_estimate_init(&estimate);
      refused(nullptr, {KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_estimate",
              [&](kvc_error *e) { return kvc_cache_estimate(w.context.get(), &b.config, group, &estimate, e); });
    }
  }
  // Duplicates: the error has the index of one of the two.
  kvc_seq twice[3] = {w.seq, w.forked, w.seq};
  const int64_t zeros[3] = {0, 0, 0};
  const Statuses duplicate{KVC_ERROR_DUPLICATE};
  EXPECT_NE(
      refused(w.cache, duplicate, "kvc_seq_remove", [&](kvc_error *e) { return kvc_seq_remove(w.cache, 3, twice, e); })
          .index,
      1);
  EXPECT_NE(refused(w.cache, duplicate, "kvc_seq_truncate",
                    [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 3, twice, zeros, e); })
                .index,
            1);
}

TEST(Limits, ExportsAndPools) {
  World w;
  DLManagedTensorVersioned *t = nullptr;
  for (int32_t layer : {-1, 3, INT32_MAX}) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = layer;
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_export",
            [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &t, nullptr, nullptr, e); });
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_export_pool",
            [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, layer, KVC_POOL_K, 0, &t, nullptr, e); });
  }
  for (auto [begin, end] :
       {std::pair<int64_t, int64_t>{-1, 5}, {0, 21}, {21, 21}, {10, 9}, {INT64_MIN, INT64_MAX}, {0, -1}}) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.position_begin = begin;
    args.position_end = end;
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_export",
            [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &t, nullptr, nullptr, e); });
  }
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = 1;  // window 8, no margin: at length 20 the keys before 12 are gone
  refused(w.cache, {KVC_ERROR_EVICTED}, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &t, nullptr, nullptr, e); });
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, 5, 0, &t, nullptr, e); });
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, -1, 0, &t, nullptr, e); });
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 0, KVC_POOL_K, 8, &t, nullptr, e); });
  // D != Dv: K and V are apart.
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(w.cache, 1, KVC_POOL_KV, 0, &t, nullptr, e); });
  EXPECT_EQ(t, nullptr);
}

// States of recurrent layers; a group that no layer is in.
TEST(Limits, StatesAndGroups) {
  ContextPtr context = make_context();
  kvc_state_config state;
  const auto refuse = [&](const char *what, kvc_status status, const std::function<void(BuiltConfig &)> &change) {
    kvc_state_config_init(&state);
    state.rank = 2, state.shape[0] = 3, state.shape[1] = 4;
    BuiltConfig b(World::default_spec());
    kvc_layer_config_init(&b.layers[2]);
    b.groups[1].row = KVC_ROW_STATE, b.groups[1].visibility = KVC_VISIBLE_ALL;
    b.groups[1].window_tokens = b.groups[1].num_pages = 0;
    b.layers[1] = b.layers[2];
    b.layers[1].group = b.layers[2].group = 1;
    b.layers[1].num_states = b.layers[2].num_states = 1;
    b.layers[1].states = b.layers[2].states = &state;
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &b.config, &cache, &error), KVC_OK) << what << ": " << error.message;
    kvc_cache_destroy(cache);
    change(b);
    return create_refused(context.get(), b.config, {what, {status}, -2, {}});
  };
  const auto bad_state = [&](const char *what, kvc_status status, const std::function<void()> &change) {
    EXPECT_EQ(refuse(what, status, [&](BuiltConfig &) { change(); }).index, 1) << what;
  };
  bad_state("int8", KVC_ERROR_DTYPE, [&] { state.dtype = {kDLInt, 8, 1}; });
  bad_state("rank 5", KVC_ERROR_INVALID_ARGUMENT, [&] { state.rank = 5; });
  bad_state("an empty dim", KVC_ERROR_INVALID_ARGUMENT, [&] { state.shape[1] = 0; });
  bad_state("a dim more than the rank", KVC_ERROR_INVALID_ARGUMENT, [&] { state.shape[2] = 2; });
  bad_state("2^41 bytes", KVC_ERROR_INVALID_ARGUMENT, [&] { state.shape[0] = state.shape[1] = int64_t{1} << 20; });
  bad_state("reserved", KVC_ERROR_UNSUPPORTED, [&] { state.reserved = 1; });
  EXPECT_EQ(refuse("no states", KVC_ERROR_NULL_ARGUMENT, [](BuiltConfig &b) { b.layers[2].states = nullptr; }).index,
            2);
  const kvc_error lonely = refuse("a group without layers", KVC_ERROR_INVALID_ARGUMENT,
                                  [](BuiltConfig &b) { b.layers[1] = b.layers[2] = b.layers[0]; });
  EXPECT_EQ(lonely.index, 1) << lonely.message;
  EXPECT_EQ(lonely.group, 1) << lonely.message;
}

}  // namespace
}  // namespace kvt
