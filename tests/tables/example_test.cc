// The worked example of chunk-local virtual batches: chunk 4, page 2, q lengths 4, 10, 5, kv lengths 6, 17, 9.
#include "server.h"

namespace kvt {
namespace {

struct Example {
  ContextPtr context = make_context();
  PlanPtr plan;
  std::vector<int64_t> pages;
  kvc_tables tables;

  explicit Example(int64_t chunk, uint32_t flags = 0) {
    kvc_plan_config config = plan_config(KVC_PLAN_EXTEND, 2);
    config.chunk_tokens = chunk;
    config.flags = KVC_PLAN_LENGTHS_WITH_NEW | flags;
    plan = make_plan(context.get(), config);
    pages.resize(30);
    std::iota(pages.begin(), pages.end(), 0);
    const Ints table(pages, false, 10), kv({6, 17, 9}), q({4, 10, 5}, true);
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &kv.tensor;
    args.append_lengths = &q.tensor;
    args.block_table = &table.tensor;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_OK) << error.message;
    tables = tables_of(plan.get(), KVC_TABLES_WHOLE);
  }
  std::vector<int64_t> differences(const DLTensor &t) const {
    const std::vector<int64_t> sums = ints(t);
    std::vector<int64_t> values;
    for (size_t i = 1; i < sums.size(); i++) values.push_back(sums[i] - sums[i - 1]);
    return values;
  }
};

using Values = std::vector<int64_t>;

TEST(WorkedExample, VirtualBatches) {
  const Example e(4);
  EXPECT_EQ(e.tables.num_rows, 8);
  EXPECT_EQ(e.differences(e.tables.cu_seqlens_q), (Values{2, 2, 1, 4, 4, 1, 4, 1}));
  EXPECT_EQ(ints(e.tables.cu_seqlens_q), (Values{0, 2, 4, 5, 9, 13, 14, 18, 19}));
  EXPECT_EQ(ints(e.tables.cache_seqlens), (Values{4, 2, 4, 4, 4, 1, 4, 1}));
  EXPECT_EQ(e.differences(e.tables.cu_seqlens_k), (Values{4, 2, 4, 4, 4, 1, 4, 1}));
  EXPECT_EQ(ints(e.tables.key_starts), (Values{0, 4, 4, 8, 12, 16, 4, 8}));
  EXPECT_EQ(ints(e.tables.leftpad), Values(8, 0));
  EXPECT_EQ(ints(e.tables.batch_rows), (Values{0, 0, 1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(e.tables.causal, 1u);
  EXPECT_EQ(e.tables.max_seqlen_q, 4);
  EXPECT_EQ(e.tables.max_seqlen_k, 4);
  // The example's table; pages that a row's keys do not reach (3, 19, 25) are padding here.
  const Values wanted[] = {{0, 1}, {2, -1}, {12, 13}, {14, 15}, {16, 17}, {18, -1}, {22, 23}, {24, -1}};
  ASSERT_EQ(e.tables.max_pages, 2);
  for (int r = 0; r < 8; r++) {
    EXPECT_EQ((Values{int_at(e.tables.block_table, r, 0), int_at(e.tables.block_table, r, 1)}), wanted[r]) << r;
  }
  EXPECT_EQ(ints(e.tables.indptr), (Values{0, 2, 3, 5, 7, 9, 10, 12, 13}));
  EXPECT_EQ(ints(e.tables.last_page_len), (Values{2, 2, 2, 2, 2, 1, 2, 1}));
}

// Chunks of 3 begin inside pages of 2: with leftpad, and with a table of page size 1. No chunk is rounded.
TEST(WorkedExample, ChunksThatBeginInsideAPage) {
  const Example pages(3), slots(3, KVC_PLAN_SLOTS);
  const Values starts{0, 3, 6, 9, 12, 15, 3, 6};  // rows at 2..5, 7..16, 4..8
  EXPECT_EQ(ints(pages.tables.key_starts), starts);
  EXPECT_EQ(ints(slots.tables.key_starts), starts);
  EXPECT_EQ(ints(pages.tables.leftpad), (Values{0, 1, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(ints(slots.tables.leftpad), Values(8, 0));
  EXPECT_EQ(ints(slots.tables.cache_seqlens), (Values{3, 3, 3, 3, 3, 2, 3, 3}));
  EXPECT_EQ(ints(pages.tables.cache_seqlens), (Values{3, 4, 3, 4, 3, 3, 4, 3}));
  EXPECT_EQ(pages.differences(pages.tables.cu_seqlens_k), ints(slots.tables.cache_seqlens));
  EXPECT_EQ(read_tables(pages.tables, 19, 0), read_tables(slots.tables, 19, 0));
}

// A decoding row sees p mod c + 1 keys.
TEST(WorkedExample, DecodeRows) {
  ContextPtr context = make_context();
  kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 2);
  config.chunk_tokens = 4;
  PlanPtr plan = make_plan(context.get(), config);
  std::vector<int64_t> pages(5 * 5), lengths{0, 3, 4, 7, 9};
  std::iota(pages.begin(), pages.end(), 0);
  const Ints table(pages, false, 5), seq_lens(lengths);
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.seq_lens = &seq_lens.tensor;
  args.block_table = &table.tensor;
  ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, nullptr), KVC_OK);
  const kvc_tables tables = tables_of(plan.get(), KVC_TABLES_WHOLE);
  EXPECT_EQ(ints(tables.cache_seqlens), (Values{1, 4, 1, 4, 2}));
  EXPECT_EQ(ints(tables.indices), (Values{0, 5, 6, 12, 17, 18, 24}));
}

}  // namespace
}  // namespace kvt
