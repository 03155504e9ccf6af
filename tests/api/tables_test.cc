// Wrong arguments of plans and of tables of forwards, one at a time. Nothing is written, and the message has the
// values.
#include "fixture.h"
#include "tables/server.h"

namespace kvt {
namespace {

const Statuses kInvalid{KVC_ERROR_INVALID_ARGUMENT}, kRange{KVC_ERROR_OUT_OF_RANGE},
    kUnsupported{KVC_ERROR_UNSUPPORTED};

TEST(PlanConfig, Refused) {
  ContextPtr context = make_context();
  const auto create = [&](const std::function<void(kvc_plan_config &)> &change, const Statuses &statuses,
                          const std::vector<std::string> &mentions) {
    kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 16);
    change(config);
    kvc_plan *plan = nullptr;
    refused(
        nullptr, statuses, "kvc_plan_create",
        [&](kvc_error *e) { return kvc_plan_create(context.get(), &config, &plan, e); }, mentions);
    EXPECT_EQ(plan, nullptr);
  };
  create([](auto &c) { c.mode = 4; }, kInvalid, {"mode 4"});
  create([](auto &c) { c.mode = -1; }, kInvalid, {"mode -1"});
  create([](auto &c) { c.flags = 16; }, kUnsupported, {"0x10"});
  create([](auto &c) { c.arrays = 8; }, kUnsupported, {"0x8"});
  create([](auto &c) { c.page_size = -3; }, kRange, {"page_size -3"});
  create([](auto &c) { c.page_size = 65537; }, kRange, {"65537"});
  create([](auto &c) { c.num_draft_tokens = 1; }, kRange, {"num_draft_tokens 1"});
  create([](auto &c) { c.mode = KVC_PLAN_VERIFY; }, kRange, {"num_draft_tokens 0"});
  create([](auto &c) { c.mode = KVC_PLAN_VERIFY, c.num_draft_tokens = 1025; }, kRange, {"1025"});
  create([](auto &c) { c.num_steps = 2; }, kRange, {"num_steps 2"});
  create([](auto &c) { c.mode = KVC_PLAN_DRAFT_DECODE; }, kRange, {"num_steps 0"});
  create([](auto &c) { c.mode = KVC_PLAN_DRAFT_DECODE, c.num_steps = 2, c.top_k = 65; }, kRange, {"top_k 65"});
  create([](auto &c) { c.top_k = 1; }, kRange, {"top_k 1"});
  create([](auto &c) { c.max_rows = 1; }, kRange, {"max_rows 1"});
  create([](auto &c) { c.flags = KVC_PLAN_GRAPH; }, kRange, {"max_rows 0"});
  create([](auto &c) { c.flags = KVC_PLAN_GRAPH, c.max_rows = 1; }, kRange, {"max_pages_per_row 0"});
  create([](auto &c) { c.flags = KVC_PLAN_GRAPH, c.max_rows = 1, c.max_pages_per_row = 1, c.mode = KVC_PLAN_EXTEND; },
         kRange, {"max_tokens 0"});
  create([](auto &c) { c.window_tokens = -1; }, kRange, {"window_tokens -1"});
  create([](auto &c) { c.chunk_tokens = int64_t{1} << 31; }, kRange, {"chunk_tokens"});
  create([](auto &c) { c.window_tokens = c.chunk_tokens = 8; }, kInvalid, {"window_tokens 8"});
  create([](auto &c) { c.num_pool_pages = (int64_t{1} << 27) + 1; }, kRange, {"num_pool_pages"});
  create([](auto &c) { c.pad_value = 3; }, kInvalid, {"pad_value 3"});
  create([](auto &c) { c.mode = KVC_PLAN_DRAFT_DECODE, c.num_steps = 2, c.flags = KVC_PLAN_LENGTHS_WITH_NEW; },
         kInvalid, {"LENGTHS_WITH_NEW"});
  kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 16);
  kvc_plan *plan = nullptr;
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_create",
          [&](kvc_error *e) { return kvc_plan_create(nullptr, &config, &plan, e); }, {"context"});
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_create",
          [&](kvc_error *e) { return kvc_plan_create(context.get(), nullptr, &plan, e); }, {"config"});
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_create",
          [&](kvc_error *e) { return kvc_plan_create(context.get(), &config, nullptr, e); }, {"plan"});
  config.struct_size = 8;
  refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_plan_create",
          [&](kvc_error *e) { return kvc_plan_create(context.get(), &config, &plan, e); });
  kvc_plan_destroy(nullptr);
}

// A plan of two rows over a table of 3 rows and 5 pages of 4 tokens.
struct Refused : testing::Test {
  ContextPtr context = make_context();
  std::vector<int64_t> pages{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  std::vector<int64_t> lens{7, 12}, fresh{2, 1}, rows{2, 0};
  kvc_plan_config config = plan_config(KVC_PLAN_EXTEND, 4);
  PlanPtr plan;

  // Builds with changed args twice, as refused() does, with a good build before and after.
  void expect(const std::function<void(kvc_plan_args &)> &change, const Statuses &statuses, int64_t index,
              const std::vector<std::string> &mentions) {
    config.num_pool_pages = 15;
    if (!plan) plan = make_plan(context.get(), config);
    const Ints table({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, false, 5), good_lens({1, 1}),
        good_fresh({1, 1});
    kvc_plan_args good;
    kvc_plan_args_init(&good);
    good.seq_lens = &good_lens.tensor;
    good.append_lengths = config.mode == KVC_PLAN_EXTEND ? &good_fresh.tensor : nullptr;
    good.block_table = &table.tensor;
    ASSERT_EQ(kvc_plan_build(plan.get(), &good, nullptr, nullptr, nullptr), KVC_OK);
    const kvc_tables t = tables_of(plan.get(), KVC_TABLES_WHOLE);
    const std::vector<int64_t> seqlens = ints(t.cache_seqlens), slots = ints(t.slot_mapping);

    const Ints bad_table(pages, false, 5), bad_lens(lens), bad_fresh(fresh), index_array(rows);
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &bad_lens.tensor;
    args.append_lengths = config.mode == KVC_PLAN_EXTEND ? &bad_fresh.tensor : nullptr;
    args.rows = &index_array.tensor;
    args.block_table = &bad_table.tensor;
    change(args);
    const kvc_error error = refused(
        nullptr, statuses, "kvc_plan_build",
        [&](kvc_error *e) { return kvc_plan_build(plan.get(), &args, nullptr, nullptr, e); }, mentions);
    EXPECT_EQ(error.index, index) << error.message;
    EXPECT_EQ(ints(t.cache_seqlens), seqlens) << "a refused build wrote something";
    EXPECT_EQ(ints(t.slot_mapping), slots);
    EXPECT_EQ(kvc_plan_check(plan.get(), 1, nullptr), KVC_ERROR_STALE);
  }
  static void none(kvc_plan_args &) {}
};

TEST_F(Refused, Lengths) {
  lens = {-1, 2};
  expect(none, kRange, 0, {"seq_lens[0] is -1"});
  lens = {2, (int64_t{1} << 30) + 1};
  expect(none, kRange, 1, {"seq_lens[1]"});
  lens = {2, 2};
  fresh = {1, -2};
  expect(none, kRange, 1, {"append_lengths[1] is -2"});
  fresh = {1, 1};
  lens = {2, 20};
  expect(none, kRange, 1, {"row 1", "6 columns of block_table", "5"});
  lens = {2, 2};
  expect([](kvc_plan_args &a) { a.flags = 2; }, kUnsupported, -1, {"0x2"});
}

// The sums of keys must fit in int32.
TEST(PlanSums, ThatDoNotFit) {
  ContextPtr context = make_context();
  PlanPtr plan = make_plan(context.get(), plan_config(KVC_PLAN_DECODE, 65536));
  const int64_t most = (int64_t{1} << 30) - 1;
  const Ints table(std::vector<int64_t>(3 * 16384, 5), false, 16384), two({most, most - 65536, 0}),
      three({most, most, most});
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.block_table = &table.tensor;
  args.seq_lens = &three.tensor;
  kvc_error error = refused(nullptr, {KVC_ERROR_BATCH_TOO_LARGE}, "kvc_plan_build",
                            [&](kvc_error *e) { return kvc_plan_build(plan.get(), &args, nullptr, nullptr, e); });
  EXPECT_EQ(error.required, 3 * (most + 1));
  args.seq_lens = &two.tensor;
  EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_OK) << error.message;
}

TEST_F(Refused, LengthsWithNewTokens) {
  config.flags = KVC_PLAN_LENGTHS_WITH_NEW;
  lens = {2, 1};
  fresh = {1, 3};
  expect(none, kRange, 1, {"seq_lens[1] is 1", "3 new"});
}

TEST_F(Refused, Entries) {
  rows = {3, 0};
  expect(none, kRange, 0, {"rows[0] is 3", "-1..2"});
  rows = {0, -2};
  expect(none, kRange, 1, {"rows[1] is -2"});
  rows = {2, 0};
  pages[2] = 15;  // row 0 of the table is row 1 of the batch: the third of its 4 pages
  expect(none, kRange, 1, {"block_table[0, 2]", "row 1", "is 15", "0..14"});
  pages[2] = -1;
  expect(none, kRange, 1, {"block_table[0, 2]", "is -1"});
  pages[2] = 2;
  pages[12] = INT32_MIN;
  expect(none, kRange, 0, {"block_table[2, 2]"});
  pages[12] = 12;
  pages[4] = pages[13] = -9;  // unused
  plan.reset();
  plan = make_plan(context.get(), config);
  const Ints table(pages, false, 5), lens_array(lens), fresh_array(fresh), index(rows);
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.seq_lens = &lens_array.tensor;
  args.append_lengths = &fresh_array.tensor;
  args.rows = &index.tensor;
  args.block_table = &table.tensor;
  EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, nullptr), KVC_OK);
}

TEST_F(Refused, SlotsOfTokens) {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < 60; i++) slots.push_back(i);
  const auto with = [](const Ints &table) {
    return [&table](kvc_plan_args &a) {
      a.block_table = nullptr;
      a.req_to_token = &table.tensor;
    };
  };
  slots[8] = 60;  // token 8 of row 0 of the table, which begins a page
  const Ints beyond(slots, false, 20);
  expect(with(beyond), kRange, 1, {"req_to_token[0, 8]", "is 60", "0..59"});
  slots[8] = 10;
  const Ints crooked(slots, false, 20);
  expect(with(crooked), kInvalid, 1, {"req_to_token[0, 8]", "page of 4"});
  slots[8] = 8;
  slots[12] = -1;  // of the new token, which also begins a page
  const Ints missing(slots, false, 20);
  expect(with(missing), kRange, 1, {"req_to_token[0, 12]", "is -1"});
}

TEST_F(Refused, Tensors) {
  const Ints two({1, 1}), three({1, 1, 1}), table({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, false, 5);
  Ints wide({0, 1, 2, 3}, true, 2);
  expect([](kvc_plan_args &a) { a.seq_lens = nullptr; }, {KVC_ERROR_NULL_ARGUMENT}, -1, {"seq_lens"});
  expect([](kvc_plan_args &a) { a.append_lengths = nullptr; }, {KVC_ERROR_NULL_ARGUMENT}, -1, {"append_lengths"});
  expect([](kvc_plan_args &a) { a.block_table = nullptr; }, {KVC_ERROR_NULL_ARGUMENT}, -1, {"block_table"});
  expect([&](kvc_plan_args &a) { a.req_to_token = &table.tensor; }, kInvalid, -1, {"both"});
  expect([&](kvc_plan_args &a) { a.append_lengths = &three.tensor; }, {KVC_ERROR_SHAPE}, -1, {"append_lengths", "3"});
  expect([&](kvc_plan_args &a) { a.rows = &three.tensor; }, {KVC_ERROR_SHAPE}, -1, {"rows", "3"});
  expect([&](kvc_plan_args &a) { a.seq_lens = &table.tensor; }, {KVC_ERROR_RANK}, -1, {"seq_lens has 2"});
  expect([&](kvc_plan_args &a) { a.block_table = &two.tensor; }, {KVC_ERROR_RANK}, -1, {"block_table has 1"});
  expect([&](kvc_plan_args &a) { a.block_table = &wide.tensor; }, {KVC_ERROR_DTYPE}, -1, {"block_table", "int32"});
  expect([&](kvc_plan_args &a) { a.tree_parents = &two.tensor; }, kInvalid, -1, {"tree_parents", "mode 1"});
  DLTensor floats = two.tensor;
  floats.dtype = {kDLFloat, 32, 1};
  expect([&](kvc_plan_args &a) { a.seq_lens = &floats; }, {KVC_ERROR_DTYPE}, -1, {"seq_lens"});
  DLTensor elsewhere = two.tensor;
  elsewhere.device = {kDLCUDA, 1};
  expect([&](kvc_plan_args &a) { a.rows = &elsewhere; }, {KVC_ERROR_DEVICE}, -1, {"rows", "{2, 1}"});
  DLTensor strided = three.tensor;
  int64_t stride = 2, size = 2;
  strided.strides = &stride;
  strided.shape = &size;
  expect([&](kvc_plan_args &a) { a.seq_lens = &strided; }, {KVC_ERROR_STRIDE}, -1, {"seq_lens", "stride 2"});
  DLTensor empty = two.tensor;
  empty.data = nullptr;
  expect([&](kvc_plan_args &a) { a.seq_lens = &empty; }, {KVC_ERROR_NULL_ARGUMENT}, -1, {"seq_lens"});
  DLTensor shapeless = two.tensor;
  shapeless.shape = nullptr;
  expect([&](kvc_plan_args &a) { a.seq_lens = &shapeless; }, {KVC_ERROR_NULL_ARGUMENT}, -1, {"seq_lens"});
  DLTensor crooked = two.tensor;
  crooked.byte_offset = 2;
  expect([&](kvc_plan_args &a) { a.seq_lens = &crooked; }, {KVC_ERROR_STRIDE}, -1, {"aligned"});
  int64_t negative = -2;
  DLTensor minus = two.tensor;
  minus.shape = &negative;
  expect([&](kvc_plan_args &a) { a.seq_lens = &minus; }, {KVC_ERROR_SHAPE}, -1, {"-2"});
  const Ints five({1, 1, 1, 1, 1});
  expect(
      [&](kvc_plan_args &a) {
        a.seq_lens = a.append_lengths = &five.tensor;
        a.rows = nullptr;
      },
      {KVC_ERROR_SHAPE}, -1, {"5", "3"});
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_build",
          [&](kvc_error *e) { return kvc_plan_build(plan.get(), nullptr, nullptr, nullptr, e); }, {"args"});
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_build",
          [&](kvc_error *e) { return kvc_plan_build(nullptr, &args, nullptr, nullptr, e); }, {"plan"});
  refused(nullptr, {KVC_ERROR_DEVICE}, "kvc_plan_build",
          [&](kvc_error *e) { return kvc_plan_build(plan.get(), &args, &args, nullptr, e); });
}

TEST_F(Refused, TreesAndEncoders) {
  config.mode = KVC_PLAN_VERIFY;
  config.num_draft_tokens = 2;
  const Ints later({-1, 0, -1, 1}), below({-2, 0, -1, 0}), few({-1, 0}), frames({1, 1});
  expect([&](kvc_plan_args &a) { a.tree_parents = &later.tensor; }, kInvalid, 1, {"row 1", "node 1 is 1", "-1..0"});
  expect([&](kvc_plan_args &a) { a.tree_parents = &below.tensor; }, kInvalid, 0, {"node 0 is -2"});
  expect([&](kvc_plan_args &a) { a.tree_parents = &few.tensor; }, {KVC_ERROR_SHAPE}, -1, {"tree_parents"});
  expect([&](kvc_plan_args &a) { a.encoder_lens = &frames.tensor; }, kInvalid, -1, {"encoder_lens"});
  expect([&](kvc_plan_args &a) { a.append_lengths = &frames.tensor; }, kInvalid, -1, {"append_lengths"});
  expect([](kvc_plan_args &a) { a.flags = KVC_PLAN_ROWS_GREW; }, kInvalid, -1, {"ROWS_GREW"});
  plan.reset();
  config.mode = KVC_PLAN_EXTEND;
  config.num_draft_tokens = 0;
  const Ints minus({1, -4});
  expect([&](kvc_plan_args &a) { a.encoder_lens = &minus.tensor; }, kRange, 1, {"-4 encoder"});
  const Ints many({14, 1});
  expect([&](kvc_plan_args &a) { a.encoder_lens = &many.tensor; }, kRange, 0, {"6 columns"});
}

TEST_F(Refused, WhatIsAskedOfAPlan) {
  plan = make_plan(context.get(), config);
  const Ints table(pages, false, 5), lens_array(lens), fresh_array(fresh);
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.seq_lens = &lens_array.tensor;
  args.append_lengths = &fresh_array.tensor;
  args.block_table = &table.tensor;
  ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, nullptr), KVC_OK);
  const auto ask = [&](int32_t step, int32_t part, uint32_t flags, const Statuses &statuses) {
    kvc_tables tables;
    kvc_tables_init(&tables);
    tables.part = part;
    tables.flags = flags;
    refused(nullptr, statuses, "kvc_plan_tables",
            [&](kvc_error *e) { return kvc_plan_tables(plan.get(), step, &tables, e); });
    EXPECT_EQ(tables.block_table.data, nullptr);
  };
  ask(1, KVC_TABLES_WHOLE, 0, kRange);
  ask(-1, KVC_TABLES_WHOLE, 0, kRange);
  ask(0, KVC_TABLES_PREFIX, 0, kInvalid);
  ask(0, KVC_TABLES_BRANCHES, 0, kInvalid);
  ask(0, KVC_TABLES_ENCODER, 0, kInvalid);
  ask(0, 17, 0, kInvalid);
  ask(0, KVC_TABLES_WHOLE, KVC_TABLES_SLOTS, kInvalid);
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_tables",
          [&](kvc_error *e) { return kvc_plan_tables(plan.get(), 0, nullptr, e); }, {"tables"});
  kvc_tables tables;
  kvc_tables_init(&tables);
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_tables",
          [&](kvc_error *e) { return kvc_plan_tables(nullptr, 0, &tables, e); }, {"plan"});
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_plan_check",
          [&](kvc_error *e) { return kvc_plan_check(nullptr, 1, e); }, {"plan"});
  tables.struct_size = 12;
  refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_plan_tables",
          [&](kvc_error *e) { return kvc_plan_tables(plan.get(), 0, &tables, e); });
}

TEST(ForwardTables, Refused) {
  World w;
  const kvc_forward f = w.begin({w.seq, 0}, {2, 1});
  kvc_tables tables;
  const auto expect = [&](kvc_status status, int32_t group, const std::function<void(kvc_tables &)> &change,
                          const std::vector<std::string> &mentions) {
    kvc_tables_init(&tables);
    change(tables);
    refused(
        w.cache, {status}, "kvc_forward_tables",
        [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, group, &tables, e); }, mentions);
    EXPECT_EQ(tables.cache_seqlens.data, nullptr);
  };
  const auto nothing = [](kvc_tables &) {};
  expect(KVC_ERROR_OUT_OF_RANGE, 2, nothing, {"group 2"});
  expect(KVC_ERROR_OUT_OF_RANGE, -1, nothing, {"group -1"});
  expect(KVC_ERROR_INVALID_ARGUMENT, 0, [](auto &t) { t.part = KVC_TABLES_PREFIX; }, {"no trees"});
  expect(KVC_ERROR_INVALID_ARGUMENT, 0, [](auto &t) { t.part = KVC_TABLES_ENCODER; }, {"part 3"});
  expect(KVC_ERROR_INVALID_ARGUMENT, 0, [](auto &t) { t.part = -1; }, {"part -1"});
  expect(KVC_ERROR_INVALID_ARGUMENT, 0, [](auto &t) { t.pad_value = 4; }, {"pad_value 4"});
  expect(KVC_ERROR_UNSUPPORTED, 0, [](auto &t) { t.flags = 4; }, {"0x4"});
  expect(KVC_ERROR_UNSUPPORTED, 0, [](auto &t) { t.arrays = 8; }, {"0x8"});
  expect(KVC_ERROR_STRUCT_SIZE, 0, [](auto &t) { t.struct_size = 4; }, {});
  kvc_tables_init(&tables);
  refused(w.cache, {KVC_ERROR_NULL_ARGUMENT}, "kvc_forward_tables",
          [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, nullptr, e); }, {"tables"});
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_forward_tables",
          [&](kvc_error *e) { return kvc_forward_tables(nullptr, f, 0, &tables, e); }, {"cache"});
  // Only requested arrays are made.
  tables.arrays = KVC_TABLES_CSR;
  ASSERT_EQ(kvc_forward_tables(w.cache, f, 0, &tables, nullptr), KVC_OK);
  EXPECT_EQ(tables.block_table.ndim, 0);
  EXPECT_EQ(tables.slot_mapping.ndim, 0);
  EXPECT_EQ(ints(tables.indptr), (std::vector<int64_t>{0, 6, 6}));
  EXPECT_EQ(ints(tables.last_page_len), (std::vector<int64_t>{2, 0}));
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  refused(w.cache, {KVC_ERROR_STALE_ID}, "kvc_forward_tables",
          [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, &tables, e); });
}

TEST(ForwardTables, SpansNeedAMask) {
  World w;
  const int32_t length = 3, spans[] = {0, 1, 1};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &w.seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  batch.span_ids = spans;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  kvc_tables tables;
  kvc_tables_init(&tables);
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_forward_tables",
          [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, &tables, e); }, {"spans"});
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  const int32_t none[] = {0, 0, 0};  // no token has one
  batch.span_ids = none;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_tables(w.cache, f, 0, &tables, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
