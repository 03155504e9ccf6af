// Caches without storage: refused calls, and copies that wait. Pools of the caller: pools that cannot be adopted.
#include <algorithm>
#include <random>
#include <set>

#include "fixture.h"

namespace kvt {
namespace {

CacheSpec tables_spec() {
  CacheSpec spec = World::default_spec();
  spec.storage = KVC_STORAGE_NONE;
  return spec;
}

// A cache without storage, one sequence of `tokens` tokens.
struct Tables {
  ContextPtr context = make_context();
  CachePtr owner;
  kvc_cache *cache;
  kvc_seq seq = 0;

  explicit Tables(int32_t tokens, const CacheSpec &spec = tables_spec())
      : owner(make_cache(context.get(), spec)), cache(owner.get()) {
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    if (tokens > 0) end(begin(seq, tokens));
  }
  kvc_forward begin(kvc_seq s, int32_t tokens, kvc_status expected = KVC_OK) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &s;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_can_fit(cache, &batch, &error), expected) << error.message;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), expected) << error.message;
    if (expected) {
      EXPECT_NE(std::string(error.message).find("kvc_cache_take_copies"), std::string::npos) << error.message;
    }
    return f;
  }
  void end(kvc_forward f) { EXPECT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK); }
  kvc_seq fork(kvc_status expected = KVC_OK) {
    kvc_seq child = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_seq_fork(cache, 1, &seq, nullptr, &child, nullptr, &error), expected) << error.message;
    return child;
  }
  int64_t waiting() {
    int64_t count = -1;
    EXPECT_EQ(kvc_cache_take_copies(cache, nullptr, sizeof(kvc_copy), 0, &count, nullptr), KVC_OK);
    return count;
  }
  std::vector<kvc_copy> take() {
    std::vector<kvc_copy> copies(100);
    int64_t count = 0;
    EXPECT_EQ(kvc_cache_take_copies(cache, copies.data(), sizeof(kvc_copy), 100, &count, nullptr), KVC_OK);
    copies.resize(static_cast<size_t>(count));
    return copies;
  }
  std::vector<int32_t> pages(kvc_seq s, int32_t group) {
    std::vector<int32_t> pages(64);
    int64_t count = 0;
    EXPECT_EQ(kvc_seq_pages(cache, s, group, pages.data(), 64, &count, nullptr), KVC_OK);
    pages.resize(static_cast<size_t>(count));
    return pages;
  }
};

TEST(StorageNone, AForkHandsOverItsPartialPageInEveryGroup) {
  Tables t(6);  // pages of 4: two tokens in the last
  EXPECT_EQ(t.waiting(), 0);
  const kvc_seq child = t.fork();
  EXPECT_EQ(t.waiting(), 2);
  const std::vector<kvc_copy> copies = t.take();
  ASSERT_EQ(copies.size(), 2u);
  for (int32_t g = 0; g < 2; g++) {
    const kvc_copy &c = copies[static_cast<size_t>(g)];
    EXPECT_EQ(c.group, g);
    EXPECT_EQ(c.count, 2);
    EXPECT_EQ(c.source_slot, t.pages(t.seq, g)[1] * 4);
    EXPECT_EQ(c.target_slot, t.pages(child, g)[1] * 4);
  }
  EXPECT_EQ(t.waiting(), 0);
  t.end(t.begin(child, 1));  // its own page: nothing to copy
  EXPECT_EQ(t.waiting(), 0);
}

TEST(StorageNone, AStepIsRefusedWhileCopiesWait) {
  Tables t(6);
  const kvc_seq child = t.fork();
  t.begin(child, 1, KVC_ERROR_ORDER);
  EXPECT_EQ(t.waiting(), 2) << "a refused step leaves them";
  t.take();
  t.end(t.begin(child, 1));
}

TEST(StorageNone, AnAbortDropsTheCopiesOfItsStepOnly) {
  Tables t(8);
  kvc_seq other = t.fork();  // whole pages: no copy
  ASSERT_EQ(t.waiting(), 0);
  const int64_t length = 6;
  ASSERT_EQ(kvc_seq_truncate(t.cache, 1, &other, &length, nullptr), KVC_OK);
  ASSERT_EQ(t.waiting(), 0) << "truncate copies nothing";
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(t.cache, &before, nullptr), KVC_OK);
  for (const bool taken : {false, true}) {
    SCOPED_TRACE(taken);
    const kvc_forward f = t.begin(other, 1);  // its last page is shared
    ASSERT_EQ(t.waiting(), 2);
    if (taken) {
      EXPECT_EQ(t.take().size(), 2u);
    }
    kvc_seq child = 0;
    const int64_t position = 5;
    ASSERT_EQ(kvc_seq_fork(t.cache, 1, &t.seq, &position, &child, nullptr, nullptr), KVC_OK);
    EXPECT_EQ(t.waiting(), taken ? 2 : 4);
    ASSERT_EQ(kvc_forward_abort(t.cache, f, nullptr), KVC_OK);
    const std::vector<kvc_copy> left = t.take();
    ASSERT_EQ(left.size(), 2u);
    EXPECT_EQ(left[0].count, 1) << "the fork's";
    EXPECT_EQ(left[0].target_slot, t.pages(child, 0)[1] * 4);
    ASSERT_EQ(kvc_seq_remove(t.cache, 1, &child, nullptr), KVC_OK);
  }
  const kvc_forward f = t.begin(other, 1);
  ASSERT_EQ(kvc_forward_abort(t.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(t.waiting(), 0);
  ASSERT_EQ(kvc_cache_digest(t.cache, &after, nullptr), KVC_OK);
  EXPECT_NE(before, 0u);
  const kvc_forward kept = t.begin(other, 1);
  t.end(kept);
  EXPECT_EQ(t.waiting(), 2) << "they wait on when the step has ended";
  t.begin(t.seq, 1, KVC_ERROR_ORDER);
  ASSERT_EQ(kvc_cache_clear(t.cache, nullptr), KVC_OK);
  EXPECT_EQ(t.waiting(), 0);
}

TEST(StorageNone, ACommitHandsOverTheMovesOfKeptNodes) {
  Tables t(2);
  const int32_t nodes = 3, parents[3] = {KVC_TREE_ROOT, KVC_TREE_ROOT, 1};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &t.seq;
  batch.append_lengths = &nodes;
  batch.tree_parents = parents;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(t.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  t.end(f);
  const std::vector<int32_t> before = t.pages(t.seq, 0);
  const int32_t leaf = 2;  // nodes 1 and 2, at slots 3 and 4: to 2 and 3
  ASSERT_EQ(kvc_seq_commit(t.cache, 1, &t.seq, &leaf, nullptr, nullptr), KVC_OK);
  const std::vector<kvc_copy> copies = t.take();
  ASSERT_EQ(copies.size(), 4u) << "two a group: the second is in another page";
  for (const kvc_copy &c : copies) EXPECT_EQ(c.count, 1);
  EXPECT_EQ(copies[0].source_slot, before[0] * 4 + 3);
  EXPECT_EQ(copies[0].target_slot, before[0] * 4 + 2);
  EXPECT_EQ(copies[1].source_slot % 4, 0);
  EXPECT_EQ(copies[1].target_slot, before[0] * 4 + 3);
}

TEST(StorageNone, SoManyCopiesWaitAndNoMore) {
  CacheSpec spec = tables_spec();
  Tables t(6, spec);
  std::vector<kvc_seq> children;
  for (int i = 0; i < 6; i++) {  // 6 sequences * 2 groups
    const kvc_seq child = t.fork();
    ASSERT_EQ(kvc_seq_remove(t.cache, 1, &child, nullptr), KVC_OK);
  }
  EXPECT_EQ(t.waiting(), 12);
  const kvc_error error = refused(t.cache, {KVC_ERROR_ORDER}, "kvc_seq_fork",
                                  [&](kvc_error *e) {
                                    kvc_seq child = 0;
                                    return kvc_seq_fork(t.cache, 1, &t.seq, nullptr, &child, nullptr, e);
                                  },
                                  {"12", "kvc_cache_take_copies"});
  EXPECT_EQ(error.code, KVC_ERROR_ORDER);
  int64_t count = -1;
  kvc_copy few[11], last;
  refused(t.cache, {KVC_ERROR_BUFFER_TOO_SMALL}, "kvc_cache_take_copies",
          [&](kvc_error *e) {
            const kvc_status status = kvc_cache_take_copies(t.cache, few, sizeof(kvc_copy), 11, &count, e);
            if (e) {
              EXPECT_EQ(std::make_pair(e->required, e->available), std::make_pair(int64_t{12}, int64_t{11}));
            }
            return status;
          },
          {"12", "11"});
  EXPECT_EQ(count, 12) << "and nothing was taken:";
  EXPECT_EQ(t.take().size(), 12u);
  t.fork();
  refused(t.cache, {KVC_ERROR_STRUCT_SIZE}, "kvc_cache_take_copies",
          [&](kvc_error *e) { return kvc_cache_take_copies(t.cache, &last, 16, 1, &count, e); }, {"16", "24"});
  refused(t.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_cache_take_copies",
          [&](kvc_error *e) { return kvc_cache_take_copies(t.cache, nullptr, sizeof last, 1, &count, e); });
  refused(t.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_cache_take_copies",
          [&](kvc_error *e) { return kvc_cache_take_copies(t.cache, &last, sizeof last, 1, nullptr, e); });
  refused(t.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_take_copies",
          [&](kvc_error *e) { return kvc_cache_take_copies(t.cache, &last, sizeof last, -1, &count, e); });
}

TEST(StorageNone, WhatNeedsKAndVIsUnsupported) {
  Tables t(6);
  const kvc_forward f = t.begin(t.seq, 2);
  LayerTensors tensors(tables_spec().layers[0], 2);
  const Statuses unsupported = {KVC_ERROR_UNSUPPORTED};
  refused(t.cache, unsupported, "kvc_forward_append",
          [&](kvc_error *e) {
            const kvc_append_args args = tensors.append_args();
            return kvc_forward_append(t.cache, f, 0, &args, e);
          },
          {"layer 0", "KVC_STORAGE_NONE"});
  refused(t.cache, unsupported, "kvc_forward_attend", [&](kvc_error *e) {
    const kvc_attend_args args = tensors.attend_args();
    return kvc_forward_attend(t.cache, f, 0, &args, e);
  });
  char text[2000];
  ASSERT_EQ(kvc_forward_describe(t.cache, f, text, sizeof text, nullptr, nullptr), KVC_OK);
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  ASSERT_EQ(kvc_forward_get_info(t.cache, f, &info, nullptr), KVC_OK);
  EXPECT_EQ(info.positions_host[1], 7);
  t.end(f);  // no append was needed
  DLManagedTensorVersioned *tensor = nullptr;
  refused(t.cache, unsupported, "kvc_cache_export_pool",
          [&](kvc_error *e) { return kvc_cache_export_pool(t.cache, 0, KVC_POOL_K, 0, &tensor, nullptr, e); });
  refused(t.cache, unsupported, "kvc_seq_export", [&](kvc_error *e) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    kvc_exported exported;
    kvc_exported_init(&exported);
    return kvc_seq_export(t.cache, t.seq, &args, &exported, nullptr, e);
  });
  refused(t.cache, unsupported, "kvc_seq_import", [&](kvc_error *e) {
    kvc_import_args args;
    kvc_import_args_init(&args);
    return kvc_seq_import(t.cache, t.seq, &args, nullptr, e);
  });
  EXPECT_EQ(tensor, nullptr);
  int64_t count = -1;  // a cache with storage never has copies for the caller
  World w;
  kvc_copy copy;
  ASSERT_EQ(kvc_cache_take_copies(w.cache, &copy, sizeof copy, 1, &count, nullptr), KVC_OK);
  EXPECT_EQ(count, 0);
}

TEST(StorageNone, TakesNoPoolAndNoScratchForOne) {
  ContextPtr context = make_context();
  kvc_estimate own, none;
  for (int group = -1; group < 2; group++) {
    BuiltConfig a(World::default_spec()), b(tables_spec());
    kvc_estimate_init(&own);
    kvc_estimate_init(&none);
    ASSERT_EQ(kvc_cache_estimate(context.get(), &a.config, group, &own, nullptr), KVC_OK);
    ASSERT_EQ(kvc_cache_estimate(context.get(), &b.config, group, &none, nullptr), KVC_OK);
    EXPECT_GT(own.storage_bytes, 0);
    EXPECT_EQ(none.storage_bytes, 0);
    EXPECT_EQ(none.page_bytes, own.page_bytes) << "what a page takes in the engine's pools";
    EXPECT_EQ(none.num_pages, own.num_pages);
    if (group < 0) {
      EXPECT_LT(none.scratch_bytes, own.scratch_bytes);
    }
  }
  Tables t(6);
  kvc_stats stats;
  kvc_stats_init(&stats);
  ASSERT_EQ(kvc_cache_stats(t.cache, -1, &stats, nullptr), KVC_OK);
  EXPECT_EQ(stats.storage_bytes, 0);
  EXPECT_EQ(stats.tokens_held, 6);
}

TEST(StorageNone, BadConfigs) {
  ContextPtr context = make_context();
  const auto create = [&](const char *mention, kvc_status status, const std::function<void(BuiltConfig &)> &change) {
    BuiltConfig built(tables_spec());
    change(built);
    kvc_cache *cache = nullptr;
    refused(nullptr, {status}, "kvc_cache_create",
            [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, {mention});
    drop_pools(&built.layers);
  };
  create("storage 2", KVC_ERROR_INVALID_ARGUMENT, [](BuiltConfig &b) { b.config.storage = 2; });
  create("storage -1", KVC_ERROR_INVALID_ARGUMENT, [](BuiltConfig &b) { b.config.storage = -1; });
  create("prefix_policy 1", KVC_ERROR_INVALID_ARGUMENT, [](BuiltConfig &b) { b.config.prefix_policy = 1; });
  create("layer 0", KVC_ERROR_INVALID_ARGUMENT,
         [](BuiltConfig &b) { add_pools(Layout::kNhd, {40, 40}, 4, &b.layers); });
  EXPECT_EQ(Pool::alive, 0);
}

// The cache owns recurrent states in any case.
TEST(StorageNone, RecurrentStatesStay) {
  ContextPtr context = make_context();
  kvc_layer_config layers[2];
  kvc_group_config groups[2];
  kvc_state_config state;
  kvc_state_config_init(&state);
  state.rank = 1;
  state.shape[0] = 3;
  for (int i = 0; i < 2; i++) {
    kvc_layer_config_init(&layers[i]);
    kvc_group_config_init(&groups[i]);
    layers[i].group = i;
  }
  layers[0].num_q_heads = layers[0].num_kv_heads = 1;
  layers[0].head_dim = 4;
  groups[1].row = KVC_ROW_STATE;
  layers[1].states = &state;
  layers[1].num_states = 1;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.groups = groups;
  config.num_layers = config.num_groups = 2;
  config.capacity_tokens = 64;
  config.storage = KVC_STORAGE_NONE;
  kvc_cache *raw = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_create(context.get(), &config, &raw, &error), KVC_OK) << error.message;
  CachePtr cache(raw);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(raw, 1, &seq, nullptr), KVC_OK);
  for (int step = 0; step < 3; step++) {
    const int32_t tokens = 5;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(raw, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_forward_end(raw, f, nullptr), KVC_ERROR_ORDER) << "its state was not stored";
    Tensor loaded(DType::kF32, {1, 3}), next(DType::kF32, {1, 3});
    for (int i = 0; i < 3; i++) next.set(0, i, static_cast<float>(step + 1));
    ASSERT_EQ(kvc_forward_load_state(raw, f, 1, 0, -1, loaded.dl(), &error), KVC_OK) << error.message;
    EXPECT_EQ(loaded.at(0, 2), static_cast<float>(step));
    ASSERT_EQ(kvc_forward_store_state(raw, f, 1, 0, -1, next.dl(), &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_end(raw, f, &error), KVC_OK) << error.message;
    int64_t count = -1;
    ASSERT_EQ(kvc_cache_take_copies(raw, nullptr, sizeof(kvc_copy), 0, &count, nullptr), KVC_OK);
    EXPECT_EQ(count, 0);
  }
}

// ---- Pools of the caller ---------------------------------------------------------------------------

CacheSpec two_layers() {
  CacheSpec spec;
  spec.page_size = 3;
  spec.groups = {{0, 4}};
  spec.layers = {LayerSpec{0, 2, 2, 4}, LayerSpec{0, 2, 2, 4}};
  return spec;
}

// Bytes of a pool: [pages, heads, page_size] rows of 4 floats.
std::set<int64_t> bytes_of(int64_t begin, const std::vector<int64_t> &strides) {
  std::set<int64_t> bytes;
  for (int64_t p = 0; p < 4; p++) {
    for (int64_t h = 0; h < 2; h++) {
      for (int64_t s = 0; s < 3; s++) {
        for (int64_t d = 0; d < 4; d++) bytes.insert(begin + p * strides[0] + h * strides[1] + s * strides[2] + d);
      }
    }
  }
  return bytes;
}

// Two layers in one allocation, with any nesting of the dims and any distance. They are refused if and only if a slot
// belongs to two pools. The test decides that by a set of all elements.
TEST(AdoptedPools, MayInterleaveButNotOverlap) {
  ContextPtr context = make_context();
  std::mt19937_64 random(5);
  int refusals = 0, adoptions = 0;
  for (int round = 0; round < 3000; round++) {
    // Dims nest in a random order, with gaps. All pools nest alike, or K of layer 0 nests in another way.
    std::vector<int64_t> order = {0, 1, 2}, counts = {4, 2, 3};
    const auto strides_of = [&](int64_t innermost) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<int64_t> strides(3);
      int64_t stride = innermost;
      for (int64_t dim : order) {
        strides[static_cast<size_t>(dim)] = stride;
        stride = stride * counts[static_cast<size_t>(dim)] + 4 * static_cast<int64_t>(random() % 3 ? 0 : random() % 20);
      }
      return strides;
    };
    const std::vector<int64_t> common = strides_of(4 * static_cast<int64_t>(1 + random() % 5));
    auto memory = std::make_shared<std::vector<uint8_t>>(64 << 10);
    BuiltConfig built(two_layers());
    std::set<int64_t> seen;
    size_t total = 0;
    const bool alike = random() % 4 != 0;
    for (int part = 0; part < 4; part++) {
      const std::vector<int64_t> strides = alike || part != 1 ? common : strides_of(4);
      const int64_t begin = static_cast<int64_t>(random() % 3 ? random() % 10 : random() % 400) * 4 +
                            (random() % 2 ? static_cast<int64_t>(part) * 480 : 0);
      const std::set<int64_t> bytes = bytes_of(begin, strides);
      seen.insert(bytes.begin(), bytes.end());
      total += bytes.size();
      DLManagedTensorVersioned *tensor =
          Pool::make(memory, begin * 4, {kDLFloat, 32, 1}, {4, 2, 3, 4}, {strides[0], strides[1], strides[2], 1});
      kvc_layer_config &layer = built.layers[static_cast<size_t>(part / 2)];
      (part % 2 ? layer.v_storage : layer.k_storage) = tensor;
    }
    const bool overlap = seen.size() < total;
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_cache_create(context.get(), &built.config, &cache, &error);
    if (status == KVC_OK) {
      ASSERT_FALSE(overlap) << "round " << round;
      kvc_cache_destroy(cache);
      adoptions++;
    } else {
      ASSERT_EQ(status, KVC_ERROR_DUPLICATE) << error.message;
      ASSERT_NE(std::string(error.message).find("overlaps"), std::string::npos) << error.message;
      if (alike) {
        ASSERT_TRUE(overlap) << "round " << round << ": " << error.message;
      }
      refusals++;
      drop_pools(&built.layers);
    }
    ASSERT_EQ(Pool::alive, 0) << "round " << round;
  }
  EXPECT_GT(refusals, 300);
  EXPECT_GT(adoptions, 300);
}

TEST(AdoptedPools, AFailedCreateGivesEveryPoolBack) {
  ContextPtr context = make_context();
  for (const Layout layout : kAdoptedLayouts) {
    SCOPED_TRACE(name_of(layout));
    BuiltConfig built(two_layers());
    add_pools(layout, {4}, 3, &built.layers);
    const int given = Pool::alive;
    EXPECT_EQ(given, layout == Layout::kHnd || layout == Layout::kNhd || layout == Layout::kHalves ? 2 : 4);
    DLManagedTensorVersioned *last =
        built.layers[1].kv_storage ? built.layers[1].kv_storage : built.layers[1].v_storage;
    kvc_cache *cache = nullptr;
    last->flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    const kvc_error error =
        refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
                [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, {"read-only"});
    EXPECT_EQ(error.index, 1);
    EXPECT_EQ(Pool::alive, given) << "they stay the caller's";
    last->flags = 0;
    ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, nullptr), KVC_OK);
    DLManagedTensorVersioned *view = nullptr;
    ASSERT_EQ(kvc_cache_export_pool(cache, 1, KVC_POOL_V, 0, &view, nullptr, nullptr), KVC_OK);
    kvc_cache_destroy(cache);
    EXPECT_EQ(Pool::alive, given / 2) << "layer 1's, which the view holds";
    view->deleter(view);
    EXPECT_EQ(Pool::alive, 0);
  }
}

// A tensor without a deleter is borrowed.
TEST(AdoptedPools, ATensorWithoutDeleterIsBorrowed) {
  ContextPtr context = make_context();
  CacheSpec spec = two_layers();
  spec.layers.pop_back();
  std::vector<float> memory(4 * 2 * 2 * 3 * 4);
  int64_t shape[5] = {4, 2, 2, 3, 4};
  DLManagedTensorVersioned tensor{};
  tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor.dl_tensor = {memory.data(), {kDLCPU, 0}, 5, {kDLFloat, 32, 1}, shape, nullptr, 0};
  BuiltConfig built(spec);
  built.layers[0].kv_storage = &tensor;
  kvc_cache *cache = nullptr;
  ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, nullptr), KVC_OK);
  kvc_cache_destroy(cache);
}

}  // namespace
}  // namespace kvt
