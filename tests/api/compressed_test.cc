// Groups with one row for each of several tokens: configs that are refused, what a cache of such groups refuses, and a
// small program. tests/model/compressed_test.cc has random calls.
#include <cmath>

#include "fixture.h"
#include "saved.h"

namespace kvt {
namespace {

// A full group and one with rows of 4 tokens, a layer each; page size 8.
CacheSpec two_groups() {
  CacheSpec spec;
  spec.page_size = 8;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.rollback = 8;
  spec.capacity_tokens = 96;
  spec.groups.resize(2);
  spec.groups[1].tokens_per_row = 4;
  spec.layers = {LayerSpec{0, 2, 1, 8}, LayerSpec{1, 4, 2, 8, 4}};
  return spec;
}

struct Case {
  const char *what;
  int64_t index, group;
  std::vector<std::string> mentions;
  std::function<void(BuiltConfig &)> change;
};

TEST(CompressedGroups, ConfigsThatAreRefused) {
  const std::vector<Case> cases = {
      {"negative", 1, 1, {"tokens_per_row -1"}, [](BuiltConfig &b) { b.groups[1].tokens_per_row = -1; }},
      {"above the page size", 1, 1, {"tokens_per_row 16"}, [](BuiltConfig &b) { b.groups[1].tokens_per_row = 16; }},
      {"no divisor", 1, 1, {"3", "page size of 8"}, [](BuiltConfig &b) { b.groups[1].tokens_per_row = 3; }},
      {"a window",
       1,
       1,
       {"KVC_VISIBLE_WINDOW"},
       [](BuiltConfig &b) { b.groups[1].visibility = KVC_VISIBLE_WINDOW, b.groups[1].window_tokens = 8; }},
      {"chunks",
       1,
       1,
       {"KVC_VISIBLE_CHUNK"},
       [](BuiltConfig &b) { b.groups[1].visibility = KVC_VISIBLE_CHUNK, b.groups[1].chunk_tokens = 8; }},
      {"an encoder",
       1,
       1,
       {"KVC_VISIBLE_ENCODER"},
       [](BuiltConfig &b) { b.groups[1].visibility = KVC_VISIBLE_ENCODER; }},
      {"states", 1, 1, {"KVC_ROW_STATE"}, [](BuiltConfig &b) { b.groups[1].row = KVC_ROW_STATE; }},
      {"rope on append",
       1,
       -1,
       {"rope_mode 1", "4 tokens"},
       [](BuiltConfig &b) { b.layers[1].rope_mode = KVC_ROPE_ON_APPEND; }},
      {"rope on read", 1, -1, {"rope_mode 2"}, [](BuiltConfig &b) { b.layers[1].rope_mode = KVC_ROPE_ON_READ; }},
      {"streams", 1, 1, {"KVC_CACHE_STREAMING"}, [](BuiltConfig &b) { b.config.flags |= KVC_CACHE_STREAMING; }},
      {"no storage", 1, 1, {"KVC_STORAGE_NONE"}, [](BuiltConfig &b) { b.config.storage = KVC_STORAGE_NONE; }},
  };
  const ContextPtr context = make_context();
  for (const Case &c : cases) {
    SCOPED_TRACE(c.what);
    BuiltConfig built(two_groups());
    c.change(built);
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(
        nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_create",
        [&](kvc_error *e) { return kvc_cache_create(context.get(), &built.config, &cache, e); }, c.mentions);
    EXPECT_EQ(error.index, c.index);
    EXPECT_EQ(error.group, c.group);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    EXPECT_EQ(kvc_cache_estimate(context.get(), &built.config, -1, &estimate, nullptr), KVC_ERROR_INVALID_ARGUMENT);
  }
}

// A page of 8 tokens has 2 rows, so the group takes a quarter of the bytes; exports and pools have rows.
TEST(CompressedGroups, Sizes) {
  const World world(two_groups(), 1, 0);
  BuiltConfig built(two_groups());
  const int64_t row_bytes = 2 * (8 + 4) * 4;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  ASSERT_EQ(kvc_cache_estimate(world.context.get(), &built.config, 1, &estimate, nullptr), KVC_OK);
  EXPECT_EQ(estimate.page_bytes, 2 * row_bytes);
  EXPECT_EQ(estimate.token_bytes, row_bytes / 4);
  EXPECT_EQ(estimate.num_pages, 12);
  EXPECT_EQ(estimate.storage_bytes, 12 * 2 * row_bytes);
  DLManagedTensorVersioned *pool = nullptr;
  ASSERT_EQ(kvc_cache_export_pool(world.cache, 1, KVC_POOL_K, 0, &pool, nullptr, nullptr), KVC_OK);
  const Managed owner(pool);
  EXPECT_EQ(pool->dl_tensor.shape[0], 12);
  EXPECT_EQ(pool->dl_tensor.shape[2], 2);
}

// Pools of the caller have page_size / r slots a page. Outputs of two steps, the second of which closes rows 2 and 3.
TEST(CompressedGroups, PoolsOfTheCaller) {
  const ContextPtr context = make_context();
  std::vector<std::vector<uint8_t>> outputs;
  for (const Layout layout : {Layout::kOwn, Layout::kHndApart, Layout::kNhdApart}) {
    BuiltConfig built(two_groups());
    std::vector<kvc_layer_config> one = {built.layers[1]};
    add_pools(layout, {12, 12}, 8 / 4, &one);
    built.layers[1] = one[0];
    kvc_cache *made = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &made, &error), KVC_OK) << error.message;
    const CachePtr cache(made);
    kvc_seq seq = 0;
    ASSERT_EQ(kvc_seq_add(made, 1, &seq, nullptr), KVC_OK);
    for (const int32_t tokens : {9, 7}) {
      const std::vector<kvc_seq> seqs = {seq};
      const std::vector<int32_t> lengths = {tokens};
      const kvc_batch batch = batch_of(seqs, lengths, 0);
      kvc_forward f = 0;
      ASSERT_EQ(kvc_forward_begin(made, &batch, nullptr, &f, nullptr), KVC_OK);
      for (int32_t l = 0; l < 2; l++) {
        LayerTensors t(two_groups().layers[static_cast<size_t>(l)], tokens);
        const kvc_attend_args args = t.attend_args();
        ASSERT_EQ(kvc_forward_attend(made, f, l, &args, &error), KVC_OK) << error.message;
        if (l == 1 && tokens == 7) outputs.push_back(t.out.bytes());
      }
      ASSERT_EQ(kvc_forward_end(made, f, nullptr), KVC_OK);
    }
    EXPECT_EQ(outputs.back(), outputs[0]);
  }
  BuiltConfig built(two_groups());
  std::vector<kvc_layer_config> one = {built.layers[1]};
  add_pools(Layout::kHndApart, {12, 12}, 8, &one);
  built.layers[1] = one[0];
  kvc_cache *made = nullptr;
  const kvc_error error = refused(nullptr, {KVC_ERROR_SHAPE}, "kvc_cache_create", [&](kvc_error *e) {
    return kvc_cache_create(context.get(), &built.config, &made, e);
  });
  EXPECT_EQ(error.index, 1);
  drop_pools(&built.layers);
}

// A step that closes rows in one of two sequences, and one that closes none.
class CompressedGroup : public ::testing::Test {
 protected:
  World world{two_groups(), 1, 0};
  kvc_error error = KVC_ERROR_INIT;

  // Layer 0 takes all tokens, layer 1 `rows` rows.
  void step(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths, int64_t rows) {
    int64_t tokens = 0;
    for (const int32_t n : lengths) tokens += n;
    const kvc_forward f = world.begin(seqs, lengths);
    LayerTensors local(world.spec.layers[0], tokens);
    const kvc_attend_args args = local.attend_args();
    ASSERT_EQ(kvc_forward_attend(world.cache, f, 0, &args, &error), KVC_OK) << error.message;
    if (rows > 0) {
      LayerTensors closed(world.spec.layers[1], rows);
      const kvc_append_args append = closed.append_args();
      ASSERT_EQ(kvc_forward_append(world.cache, f, 1, &append, &error), KVC_OK) << error.message;
      EXPECT_EQ(kvc_forward_append(world.cache, f, 1, &append, nullptr), KVC_ERROR_ORDER);
    }
    ASSERT_EQ(kvc_forward_end(world.cache, f, &error), KVC_OK) << error.message;
  }
};

TEST_F(CompressedGroup, TakesTheRowsThatClose) {
  EXPECT_EQ(kvc_rows_closed(0, 7, 4), 1);
  step({world.seq, world.forked}, {7, 3}, 1);
  EXPECT_EQ(kvc_rows_closed(7, 1, 4) + kvc_rows_closed(3, 1, 4), 2);
  step({world.seq, world.forked}, {1, 1}, 2);
  EXPECT_EQ(kvc_rows_closed(8, 3, 4), 0);
  step({world.seq}, {3}, 0);
  // One row less than the step closes, and no append at all.
  const kvc_forward f = world.begin({world.seq, world.forked}, {9, 1});  // 11 to 20 and 4 to 5 tokens: rows 2, 3 and 4
  LayerTensors few(world.spec.layers[1], 2);
  const kvc_append_args append = few.append_args();
  const kvc_error short_by_one =
      refused(world.cache, {KVC_ERROR_SHAPE}, "kvc_forward_append",
              [&](kvc_error *e) { return kvc_forward_append(world.cache, f, 1, &append, e); }, {"2", "3"});
  EXPECT_EQ(short_by_one.index, 1);
  LayerTensors local(world.spec.layers[0], 10), queries(world.spec.layers[1], 10);
  kvc_attend_args args = local.attend_args();
  ASSERT_EQ(kvc_forward_attend(world.cache, f, 0, &args, nullptr), KVC_OK);
  args = queries.attend_args(false);
  refused(world.cache, {KVC_ERROR_ORDER}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(world.cache, f, 1, &args, e); });
  refused(world.cache, {KVC_ERROR_ORDER}, "kvc_forward_end",
          [&](kvc_error *e) { return kvc_forward_end(world.cache, f, e); }, {"layer 1"});
  EXPECT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
}

TEST_F(CompressedGroup, AttendsToNothingBeforeTheFirstRow) {
  const kvc_forward f = world.begin({world.seq}, {3});
  LayerTensors queries(world.spec.layers[1], 3);
  const kvc_attend_args args = queries.attend_args(false);
  ASSERT_EQ(kvc_forward_attend(world.cache, f, 1, &args, &error), KVC_OK) << error.message;
  for (int64_t t = 0; t < 3; t++) {
    EXPECT_EQ(queries.lse.at(t, 0), -INFINITY);
    EXPECT_EQ(queries.out.at(t, 3, 3), 0.0f);
  }
  EXPECT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
}

TEST_F(CompressedGroup, OptionsThatNeedAKeyOfEachToken) {
  const kvc_forward f = world.begin({world.seq}, {9});
  LayerTensors t(world.spec.layers[1], 9);
  Tensor slopes(DType::kF32, {4}), bias(DType::kF32, {4, 3}), up(DType::kF32, {4, 8, 4});
  const std::vector<std::pair<const char *, std::function<void(kvc_attend_args &)>>> options = {
      {"PAST", [](kvc_attend_args &a) { a.flags = KVC_ATTEND_PAST; }},
      {"SELF", [](kvc_attend_args &a) { a.flags = KVC_ATTEND_SELF; }},
      {"alibi_slopes", [&](kvc_attend_args &a) { a.alibi_slopes = slopes.dl(); }},
      {"rel_bias", [&](kvc_attend_args &a) { a.rel_bias = bias.dl(); }},
      {"w_uk", [&](kvc_attend_args &a) { a.w_uk = a.w_uv = up.dl(); }},
  };
  for (const auto &[name, set] : options) {
    kvc_attend_args args = t.attend_args();
    set(args);
    const kvc_error refusal =
        refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_forward_attend",
                [&](kvc_error *e) { return kvc_forward_attend(world.cache, f, 1, &args, e); }, {name, "4 tokens"});
    EXPECT_EQ(refusal.index, 1);
  }
  kvc_tables tables;
  kvc_tables_init(&tables);
  const kvc_error refusal =
      refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_forward_tables",
              [&](kvc_error *e) { return kvc_forward_tables(world.cache, f, 1, &tables, e); }, {"group 1"});
  EXPECT_EQ(refusal.group, 1);
  EXPECT_EQ(kvc_forward_tables(world.cache, f, 0, &tables, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
}

TEST_F(CompressedGroup, CallsThatNeedAKeyOfEachToken) {
  step({world.seq}, {9}, 2);
  const int32_t parents[] = {KVC_TREE_ROOT, 0}, spans[] = {1, 1}, two = 2;
  for (const bool trees : {true, false}) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &world.seq, batch.append_lengths = &two, batch.num_sequences = 1;
    (trees ? batch.tree_parents : batch.span_ids) = trees ? parents : spans;
    kvc_forward f = 0;
    refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_forward_begin",
            [&](kvc_error *e) { return kvc_forward_begin(world.cache, &batch, nullptr, &f, e); },
            {trees ? "tree_parents" : "span_ids", "group 1", "4 tokens"});
    EXPECT_EQ(kvc_cache_can_fit(world.cache, &batch, nullptr), KVC_ERROR_UNSUPPORTED);
  }
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  kvc_forward graph = 0;
  refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_graph_create",
          [&](kvc_error *e) { return kvc_graph_create(world.cache, &config, &graph, e); }, {"group 1"});
  LayerTensors a(world.spec.layers[0], 4), b(world.spec.layers[1], 1);
  const DLTensor *k[] = {a.k.dl(), b.k.dl()}, *v[] = {a.v.dl(), b.v.dl()};
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.num_layers = 2, import.k = k, import.v = v;
  refused(world.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(world.cache, world.seq, &import, nullptr, e); }, {"layer 1"});
}

// A list names rows: those that the sequence has, and no more.
TEST_F(CompressedGroup, ListsOfRows) {
  const kvc_forward f = world.begin({world.seq}, {9});
  LayerTensors t(world.spec.layers[1], 9);
  std::vector<int32_t> entries(9, 1);
  int64_t shape[3] = {9, 1, 1};
  DLTensor lists = {entries.data(), test_device(), 3, {kDLInt, 32, 1}, shape, nullptr, 0};
  kvc_attend_args args = t.attend_args();
  args.indices = &lists;
  entries[8] = 2;
  const kvc_error beyond =
      refused(world.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(world.cache, f, 1, &args, e); }, {"indices[8, 0, 0] is 2"});
  EXPECT_EQ(beyond.index, 0);
  entries[8] = 1;
  ASSERT_EQ(kvc_forward_attend(world.cache, f, 1, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(t.lse.at(6, 0), -INFINITY);  // row 1 closes with token 7
  EXPECT_TRUE(std::isfinite(t.lse.at(7, 0)));
  EXPECT_EQ(t.out.at(8, 0, 0), t.v.at(1, 0, 0));  // the only row that is listed
  EXPECT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
}

// Masks and biases of keys have a column for each row, and without causality a query sees all rows.
TEST_F(CompressedGroup, MasksBiasesAndNoCausality) {
  LayerTensors t(world.spec.layers[1], 9);
  std::vector<uint8_t> bits(9 * 2, 1);
  for (int64_t i = 0; i < 9; i++) bits[static_cast<size_t>(2 * i)] = 0;  // hides row 0
  int64_t shape[2] = {9, 2};
  DLTensor mask = {bits.data(), test_device(), 2, {kDLUInt, 8, 1}, shape, nullptr, 0};
  Tensor bias(DType::kF32, {1, 2, 1});
  bias.set(0, 0, 0, 0.0f), bias.set(0, 1, 0, 50.0f);  // row 0 has next to no weight
  const auto attended = [&](const std::function<void(kvc_attend_args &)> &set) {
    const kvc_forward f = world.begin({world.seq}, {9});
    kvc_attend_args args = t.attend_args();
    set(args);
    ASSERT_EQ(kvc_forward_attend(world.cache, f, 1, &args, &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
  };
  attended([&](kvc_attend_args &args) { args.mask = &mask; });
  EXPECT_EQ(t.lse.at(6, 0), -INFINITY);  // sees row 0 alone
  EXPECT_EQ(t.out.at(8, 0, 0), t.v.at(1, 0, 0));
  attended([&](kvc_attend_args &args) { args.key_bias = bias.dl(); });
  EXPECT_EQ(t.out.at(6, 0, 0), t.v.at(0, 0, 0));
  EXPECT_NEAR(t.out.at(8, 0, 0), t.v.at(1, 0, 0), 1e-5);
  attended([&](kvc_attend_args &args) {
    args.flags = KVC_ATTEND_NON_CAUSAL;
    args.mask = &mask;
  });
  EXPECT_EQ(t.out.at(0, 0, 0), t.v.at(1, 0, 0));
  mask.shape[1] = 1;
  const kvc_forward f = world.begin({world.seq}, {9});
  kvc_attend_args args = t.attend_args();
  args.mask = &mask;
  refused(world.cache, {KVC_ERROR_SHAPE}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(world.cache, f, 1, &args, e); });
  EXPECT_EQ(kvc_forward_abort(world.cache, f, nullptr), KVC_OK);
}

// The layout of a saved sequence says how many tokens a row has.
TEST_F(CompressedGroup, SavedSequencesOfOtherRows) {
  step({world.seq}, {9}, 2);
  const std::string bytes = saved(world.cache, world.seq);
  CacheSpec spec = two_groups();
  spec.groups[1].tokens_per_row = 2;
  const CachePtr other = make_cache(world.context.get(), spec);
  kvc_seq loaded = 0;
  refused(other.get(), {KVC_ERROR_LAYOUT}, "kvc_seq_load",
          [&](kvc_error *e) { return load_from(other.get(), bytes, &loaded, e); },
          {"4 tokens a row", "2 tokens a row"});
  spec = two_groups();
  spec.page_size = 16;  // pages may differ
  const CachePtr larger = make_cache(world.context.get(), spec);
  ASSERT_EQ(load_from(larger.get(), bytes, &loaded, &error), KVC_OK) << error.message;
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = 1;
  DLManagedTensorVersioned *k = nullptr;
  ASSERT_EQ(export_kv(larger.get(), loaded, &args, &k, nullptr, nullptr, &error), KVC_OK) << error.message;
  const Managed owner(k);
  EXPECT_EQ(k->dl_tensor.shape[0], 2);
}

}  // namespace
}  // namespace kvt
