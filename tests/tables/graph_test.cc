// Graph mode: calls that were recorded once over the tables of a plan are replayed while lengths grow, shrink to 0 and
// cross the edges of pages and splits. Addresses and shapes stay the same, unused parts are inert, and stale replays
// are noticed.
#include <cstring>

#include "server.h"

namespace kvt {
namespace {

constexpr int kRows = 6, kPages = 40, kPage = 4;

struct Graph : testing::Test {
  ContextPtr context = make_context();
  Server server{kRows, kPages + 5, kPage, 3};
  std::unique_ptr<Ints> table;
  PlanPtr plan;
  uint64_t generation = 0;
  int32_t mode = 0;

  Graph() {
    for (int row = 0; row < kRows; row++) {
      for (int64_t e = 0; e < (kPages + 5) * kPage; e++) server.put(row, e, row * 1000 + e);
    }
    table = server.block_table();
  }
  void make(int32_t plan_mode, int64_t window = 0, int64_t chunk = 0) {
    mode = plan_mode;
    kvc_plan_config config = plan_config(mode, kPage);
    config.flags = KVC_PLAN_GRAPH;
    config.max_rows = kRows;
    config.max_pages_per_row = kPages;
    config.max_tokens = mode == KVC_PLAN_EXTEND ? 64 : 0;
    config.num_draft_tokens = mode == KVC_PLAN_VERIFY ? 3 : 0;
    config.window_tokens = window;
    config.chunk_tokens = chunk;
    config.num_pool_pages = server.num_pages;
    plan = make_plan(context.get(), config);
  }
  // before[i] < 0: an inert row.
  kvc_status build(const std::vector<int64_t> &before, const std::vector<int64_t> &fresh, kvc_error *error = nullptr) {
    std::vector<int64_t> rows, lengths;
    for (size_t i = 0; i < before.size(); i++) {
      rows.push_back(before[i] < 0 ? -1 : static_cast<int64_t>(i));
      lengths.push_back(std::max<int64_t>(0, before[i]));
    }
    const Ints seq_lens(lengths), appends(fresh), index(rows);
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &seq_lens.tensor;
    args.append_lengths = mode == KVC_PLAN_EXTEND ? &appends.tensor : nullptr;
    args.rows = &index.tensor;
    args.block_table = &table->tensor;
    return kvc_plan_build(plan.get(), &args, nullptr, &generation, error);
  }
};

// A recorded call. A captured kernel has addresses, shapes and maxima, and attends for every row of the capacity.
struct Recorded {
  kvc_tables tables;
  std::vector<Slots> replay(int64_t window) const {
    kvc_tables t = tables;
    t.num_rows = static_cast<int32_t>(t.cache_seqlens.shape[0]);
    return read_tables(t, int_at(t.cu_seqlens_q, t.num_rows), window);
  }
};

TEST_F(Graph, RecordedCallsFollowTheLengths) {
  for (const int64_t window : {0, 7}) {
    make(KVC_PLAN_EXTEND, window);
    ASSERT_EQ(build({5, 9}, {1, 2}), KVC_OK);
    const Recorded recorded{tables_of(plan.get(), KVC_TABLES_WHOLE)};
    std::mt19937 rng(11);
    for (int round = 0; round < 200; round++) {
      std::vector<int64_t> before, fresh;
      const size_t rows = rng() % (kRows + 1);
      for (size_t i = 0; i < rows; i++) {  // grows and shrinks across pages; to nothing at all
        before.push_back(rng() % 5 == 0 ? -1 : static_cast<int64_t>(rng() % 140));
        fresh.push_back(rng() % 3 == 0 ? 0 : static_cast<int64_t>(rng() % 10));
      }
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(build(before, fresh, &error), KVC_OK) << error.message;
      const kvc_tables now = tables_of(plan.get(), KVC_TABLES_WHOLE);
      const auto old_tensors = tensors(recorded.tables), new_tensors = tensors(now);
      for (size_t i = 0; i < old_tensors.size(); i++) {
        ASSERT_EQ(old_tensors[i]->data, new_tensors[i]->data) << "tensor " << i << " moved";
        for (int d = 0; d < old_tensors[i]->ndim; d++) ASSERT_EQ(old_tensors[i]->shape[d], new_tensors[i]->shape[d]);
      }
      ASSERT_EQ(now.max_seqlen_k, recorded.tables.max_seqlen_k);
      ASSERT_EQ(now.max_seqlen_q, recorded.tables.max_seqlen_q);
      // In a replay, every query of a live row sees its window, and every other row sees nothing.
      const std::vector<Slots> seen = recorded.replay(window);
      size_t token = 0;
      for (size_t i = 0; i < rows; i++) {
        for (int64_t q = before[i]; q < before[i] + fresh[i]; q++, token++) {
          Slots wanted;
          for (int64_t k = window ? std::max<int64_t>(0, q - window + 1) : 0; before[i] >= 0 && k <= q; k++) {
            wanted.push_back(server.slot(static_cast<int>(i), k));
          }
          ASSERT_EQ(seen[token], wanted) << "round " << round << " row " << i << " query " << q;
          ASSERT_EQ(int_at(now.slot_mapping, static_cast<int64_t>(token)), before[i] < 0 ? -1 : wanted.back());
        }
      }
      ASSERT_EQ(seen.size(), token);
      // Unused rows, pages and tokens are inert: 0 where a kernel may prefetch, no keys, slot -1.
      for (int64_t r = static_cast<int64_t>(rows); r < kRows; r++) {
        ASSERT_EQ(int_at(now.cache_seqlens, r), 0);
        ASSERT_EQ(int_at(now.batch_rows, r), -1);
        ASSERT_EQ(int_at(now.last_rows, r), -1);
        for (int64_t c = 0; c < kPages; c++) ASSERT_EQ(int_at(now.block_table, r, c), 0);
      }
      for (int64_t i = int_at(now.indptr, kRows); i < kRows * kPages; i++) ASSERT_EQ(int_at(now.indices, i), 0);
      for (int64_t t = static_cast<int64_t>(token); t < 64; t++) {
        ASSERT_EQ(int_at(now.slot_mapping, t), -1);
        ASSERT_EQ(int_at(now.positions, t), 0);
      }
    }
  }
}

TEST_F(Graph, VirtualRowsOfChunks) {
  make(KVC_PLAN_EXTEND, 0, 5);
  ASSERT_EQ(build({0, 4, 5, 6, 0, 0}, {64, 0, 0, 0, 0, 0}), KVC_OK);
  const Recorded recorded{tables_of(plan.get(), KVC_TABLES_WHOLE)};
  EXPECT_EQ(recorded.tables.num_rows, 13 + 5);
  ASSERT_EQ(build({9, 4}, {3, 12}), KVC_OK);
  const std::vector<Slots> seen = recorded.replay(0);
  size_t token = 0;
  for (const auto &[row, before, fresh] : {std::tuple{0, 9, 3}, std::tuple{1, 4, 12}}) {
    for (int64_t q = before; q < before + fresh; q++, token++) {
      Slots wanted;
      for (int64_t k = q / 5 * 5; k <= q; k++) wanted.push_back(server.slot(row, k));
      ASSERT_EQ(seen[token], wanted) << row << " " << q;
    }
  }
}

TEST_F(Graph, StaleReplaysAreSeen) {
  make(KVC_PLAN_DECODE);
  kvc_tables tables;
  kvc_tables_init(&tables);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_plan_tables(plan.get(), 0, &tables, &error), KVC_ERROR_STALE) << "before any build";
  EXPECT_EQ(kvc_plan_check(plan.get(), 0, nullptr), KVC_ERROR_STALE) << "0 is no build";
  ASSERT_EQ(build({5, 9}, {}), KVC_OK);
  const uint64_t first = generation;
  tables = tables_of(plan.get(), KVC_TABLES_WHOLE);
  EXPECT_EQ(tables.generation, first);
  EXPECT_EQ(int_at(tables.generation_word, 0), static_cast<int64_t>(first));
  EXPECT_EQ(kvc_plan_check(plan.get(), first, nullptr), KVC_OK);
  ASSERT_EQ(build({6, 10}, {}), KVC_OK);
  EXPECT_EQ(kvc_plan_check(plan.get(), first, &error), KVC_ERROR_STALE) << "the arrays hold the next step";
  EXPECT_EQ(kvc_plan_check(plan.get(), generation, nullptr), KVC_OK);
  // A refused build leaves the arrays unchanged, and no call may use them.
  const std::vector<int64_t> before = ints(tables.cache_seqlens);
  ASSERT_EQ(build({7, kPages * kPage}, {}, &error), KVC_ERROR_BATCH_TOO_LARGE) << error.message;
  EXPECT_EQ(error.required, kPages + 1);
  EXPECT_EQ(error.available, kPages);
  EXPECT_EQ(error.index, 1);
  EXPECT_EQ(ints(tables.cache_seqlens), before);
  EXPECT_EQ(int_at(tables.generation_word, 0), 0);
  EXPECT_EQ(kvc_plan_check(plan.get(), generation, nullptr), KVC_ERROR_STALE);
  kvc_tables again = tables;
  again.flags = again.arrays = 0;
  again.pad_value = 0;
  EXPECT_EQ(kvc_plan_tables(plan.get(), 0, &again, nullptr), KVC_ERROR_STALE);
  EXPECT_EQ(std::memcmp(&again, &tables, sizeof tables), 0) << "a refused call filled something";
  ASSERT_EQ(build({7, 11}, {}), KVC_OK);
  EXPECT_EQ(kvc_plan_check(plan.get(), generation, nullptr), KVC_OK);
  ASSERT_EQ(build({1, 1, 1, 1, 1, 1, 1}, {}, &error), KVC_ERROR_BATCH_TOO_LARGE);
}

// If rows only grew, only new pages are read, and the tables are as if all pages had been.
TEST_F(Graph, RowsThatGrew) {
  for (const uint32_t flags : {0u, uint32_t{KVC_PLAN_GRAPH}}) {
    for (const int64_t window : {0, 9}) {
      kvc_plan_config config = plan_config(KVC_PLAN_DECODE, kPage);
      config.flags = flags;
      config.arrays = KVC_TABLES_DENSE | KVC_TABLES_TOKENS;
      config.window_tokens = window;
      if (flags) {
        config.max_rows = kRows;
        config.max_pages_per_row = kPages;
      }
      PlanPtr grown = make_plan(context.get(), config), fresh = make_plan(context.get(), config);
      std::mt19937 rng(5);
      std::vector<int64_t> lengths{0, 3, 4, 5, 30, 31};
      Ints partly(table->wide, false, kPages + 5);
      for (int step = 0; step < 150; step++) {  // the block table is made wider on the way
        const Ints seq_lens(lengths);
        kvc_plan_args args;
        kvc_plan_args_init(&args);
        args.seq_lens = &seq_lens.tensor;
        args.block_table = &table->tensor;
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(kvc_plan_build(fresh.get(), &args, nullptr, nullptr, nullptr), KVC_OK);
        args.flags = step > 0 ? KVC_PLAN_ROWS_GREW : 0;
        // Entries that were read before are not read again, so poison there changes nothing.
        args.block_table = &partly.tensor;
        ASSERT_EQ(kvc_plan_build(grown.get(), &args, nullptr, nullptr, &error), KVC_OK) << error.message;
        if (window == 0) {
          for (int64_t i = 0; i < kRows; i++) {
            for (int64_t c = 0; c < lengths[static_cast<size_t>(i)] / kPage; c++)
              partly.narrow[static_cast<size_t>(i * (kPages + 5) + c)] = -5;
          }
        }
        const kvc_tables a = tables_of(grown.get(), 0), b = tables_of(fresh.get(), 0);
        ASSERT_EQ(a.max_pages, b.max_pages);
        for (int64_t r = 0; r < kRows; r++) {
          for (int64_t c = 0; c < a.max_pages; c++) {
            ASSERT_EQ(int_at(a.block_table, r, c), int_at(b.block_table, r, c)) << step << ": " << r << ", " << c;
          }
        }
        ASSERT_EQ(ints(a.cache_seqlens), ints(b.cache_seqlens));
        ASSERT_EQ(ints(a.slot_mapping), ints(b.slot_mapping));
        for (int64_t &length : lengths) length = std::min<int64_t>(157, length + static_cast<int64_t>(rng() % 3));
      }
      // The promise is held to: a row that shrank, another row, other rows.
      ASSERT_GT(*std::max_element(lengths.begin(), lengths.end()), 32 * kPage);
      lengths[2] = 0;
      const Ints shrunk(lengths);
      kvc_plan_args args;
      kvc_plan_args_init(&args);
      args.seq_lens = &shrunk.tensor;
      args.block_table = &table->tensor;
      args.flags = KVC_PLAN_ROWS_GREW;
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_EQ(kvc_plan_build(grown.get(), &args, nullptr, nullptr, &error), KVC_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(error.index, 2);
      const Ints fewer({158, 158});
      args.seq_lens = &fewer.tensor;
      EXPECT_EQ(kvc_plan_build(grown.get(), &args, nullptr, nullptr, &error), KVC_ERROR_INVALID_ARGUMENT);
    }
  }
}

// A batch of 0 rows is accepted.
TEST_F(Graph, NoRowsAtAll) {
  for (const int32_t mode : {KVC_PLAN_DECODE, KVC_PLAN_EXTEND, KVC_PLAN_VERIFY}) {
    for (const bool graph : {true, false}) {
      make(mode);
      if (!graph) {
        kvc_plan_config config = plan_config(mode, kPage);
        config.num_draft_tokens = mode == KVC_PLAN_VERIFY ? 2 : 0;
        plan = make_plan(context.get(), config);
      }
      const Ints none({});
      kvc_plan_args args;
      kvc_plan_args_init(&args);
      args.seq_lens = &none.tensor;
      args.append_lengths = mode == KVC_PLAN_EXTEND ? &none.tensor : nullptr;
      args.block_table = &table->tensor;
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_OK) << error.message;
      const kvc_tables t = tables_of(plan.get(), KVC_TABLES_WHOLE);
      EXPECT_EQ(t.num_rows, 0);
      EXPECT_EQ(t.num_queries, 0);
      EXPECT_EQ(t.num_pages, 0);
      EXPECT_EQ(int_at(t.cu_seqlens_q, 0), 0);
    }
  }
}

}  // namespace
}  // namespace kvt
