// Plans over arrays on the device, compared with the CPU's over the same arrays: every element of every array, also
// unused ones, for random batches. Batches that the CPU refuses leave the arrays unchanged, and a word of 0.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "cuda_runtime.h"
#include "server.h"

namespace kvt {
namespace {

constexpr int kRows = 7, kTableRows = 9;

// One batch: the arrays of a server.
struct Batch {
  std::vector<int64_t> lens, appends, rows, encoders, parents, table;
  bool wide, picks, slots, with_encoders, with_parents;
  int64_t columns;
};

// The tensors of a batch, on a device.
struct Args {
  Args(const Batch &b, int32_t mode, DLDevice device)
      : lens(b.lens, b.wide),
        appends(b.appends, b.wide),
        rows(b.rows, !b.wide),
        encoders(b.encoders, b.wide),
        parents(b.parents),
        table(b.table, false, b.columns) {
    for (Ints *ints : {&lens, &appends, &rows, &encoders, &parents, &table}) ints->tensor.device = device;
    kvc_plan_args_init(&args);
    args.seq_lens = &lens.tensor;
    if (mode == KVC_PLAN_EXTEND) args.append_lengths = &appends.tensor;
    if (b.picks) args.rows = &rows.tensor;
    if (b.with_encoders) args.encoder_lens = &encoders.tensor;
    if (b.with_parents) args.tree_parents = &parents.tensor;
    (b.slots ? args.req_to_token : args.block_table) = &table.tensor;
  }
  Ints lens, appends, rows, encoders, parents, table;
  kvc_plan_args args;
};

// The tensors of tables, by name.
std::map<std::string, DLTensor> tensors(const kvc_tables &t) {
  std::map<std::string, DLTensor> all = {{"block_table", t.block_table},
                                         {"cache_seqlens", t.cache_seqlens},
                                         {"cu_seqlens_q", t.cu_seqlens_q},
                                         {"cu_seqlens_k", t.cu_seqlens_k},
                                         {"indptr", t.indptr},
                                         {"indices", t.indices},
                                         {"last_page_len", t.last_page_len},
                                         {"key_starts", t.key_starts},
                                         {"leftpad", t.leftpad},
                                         {"batch_rows", t.batch_rows},
                                         {"slot_mapping", t.slot_mapping},
                                         {"positions", t.positions},
                                         {"last_rows", t.last_rows}};
  return all;
}

std::vector<char> bytes_of(const DLTensor &t) {
  if (t.ndim == 0) return {};
  int64_t elements = t.shape[0];
  if (t.ndim == 2) elements *= t.strides[0];
  std::vector<char> bytes(static_cast<size_t>(elements * t.dtype.bits / 8));
  if (!bytes.empty()) std::memcpy(bytes.data(), t.data, bytes.size());
  return bytes;
}

class Plans : public testing::TestWithParam<int32_t> {
 protected:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); }

  void deal_config() {
    page = std::vector<int>{1, 3, 16}[static_cast<size_t>(below(3))];
    config = plan_config(GetParam(), page);
    config.flags = KVC_PLAN_GRAPH;
    config.max_rows = kRows;
    config.max_pages_per_row = static_cast<int32_t>(160 / page + 3);
    if (below(3) == 0) config.flags |= KVC_PLAN_SLOTS;
    if (below(2)) {
      config.flags |= KVC_PLAN_PAD_VALUE;
      config.pad_value = static_cast<int32_t>(below(100)) - 50;
    }
    if (config.mode != KVC_PLAN_DRAFT_DECODE && below(2)) config.flags |= KVC_PLAN_LENGTHS_WITH_NEW;
    if (config.mode == KVC_PLAN_EXTEND) config.max_tokens = 90;
    if (config.mode == KVC_PLAN_VERIFY) config.num_draft_tokens = static_cast<int32_t>(1 + below(9));
    if (config.mode == KVC_PLAN_DRAFT_DECODE) {
      config.num_steps = static_cast<int32_t>(below(4) == 0 ? 20 : 1 + below(5));  // 20: not in one launch
      config.top_k = static_cast<int32_t>(1 + below(3));
    }
    if (below(3) == 0) {
      config.window_tokens = 1 + below(30);
    } else if (below(2)) {
      config.chunk_tokens = 1 + below(30);
    }
    const uint32_t subsets[] = {0, KVC_TABLES_DENSE, KVC_TABLES_CSR, KVC_TABLES_DENSE | KVC_TABLES_TOKENS};
    config.arrays = subsets[below(4)];
  }

  int64_t length() {
    const int64_t edges[] = {0, 1, page - 1, page, page + 1, 3 * page, 3 * page + 1, 2 + below(70)};
    return edges[below(8)];
  }

  Batch deal(bool bad) {
    Batch b = {};
    const int64_t size = below(kRows + 1), n = config.num_draft_tokens;
    b.wide = below(2), b.picks = below(2), b.slots = below(2);
    b.with_encoders = config.mode <= KVC_PLAN_EXTEND && below(3) == 0;
    b.with_parents = config.mode == KVC_PLAN_VERIFY && below(3) > 0;
    for (int64_t i = 0; i < size; i++) {
      const int64_t fresh = config.mode == KVC_PLAN_EXTEND   ? below(3) * below(2 * page + 4) % 13
                            : config.mode == KVC_PLAN_VERIFY ? n
                                                             : 1;
      int64_t before = length();
      if ((config.flags & KVC_PLAN_LENGTHS_WITH_NEW) != 0) before = below(5) == 0 ? 0 : before + fresh;
      b.lens.push_back(before);
      b.appends.push_back(fresh);
      b.rows.push_back(below(6) == 0 ? -1 : below(kTableRows));
      b.encoders.push_back(below(3) * below(20));
      for (int64_t k = 0; k < n; k++) b.parents.push_back(below(k + 1) - 1);
    }
    b.columns = (b.slots ? page : 1) * (220 / page + 3 * 9);
    const int64_t num_pages = 500;
    for (int64_t i = 0; i < kTableRows; i++) {
      for (int64_t c = 0; c < b.columns;) {
        const int64_t id = below(num_pages);
        if (!b.slots) b.table.push_back(id), c++;
        for (int64_t j = 0; b.slots && j < page; j++, c++) b.table.push_back(id * page + j);
      }
    }
    if (bad && size > 0) spoil(&b, static_cast<size_t>(below(size)));
    return b;
  }
  void spoil(Batch *b, size_t i) {
    switch (below(5)) {
      case 0:
        b->lens[i] = -1;
        break;
      case 1:
        b->lens[i] = below(2) ? 100000 : (int64_t{1} << 30) - below(3);
        break;
      case 2:
        b->rows[i] = below(2) ? kTableRows : -2;
        b->picks = true;
        break;
      case 3:
        b->appends[i] = below(2) ? -1 : 91;
        break;
      default:
        if (!b->parents.empty()) b->parents[i] = below(2) ? 1000 : -2;
    }
  }

  // Changes one id or slot of the server's table, which may be one that is never read.
  void spoil_table(Batch *b, size_t i) {
    const auto row = static_cast<size_t>(b->picks ? std::max<int64_t>(0, b->rows[i]) : static_cast<int64_t>(i));
    const int64_t end = std::min<int64_t>(b->columns, (b->slots ? 1 : 0) * b->lens[i] + 12);
    int64_t column = below(end);
    if (b->slots && below(2)) column -= column % page;  // where a page begins
    int64_t &value = b->table[row * static_cast<size_t>(b->columns) + static_cast<size_t>(column)];
    const int64_t limit = 500 * (b->slots ? page : 1);
    value =
        b->slots && below(2) ? value + 1 : std::vector<int64_t>{-1, limit, INT32_MAX}[static_cast<size_t>(below(3))];
  }

  void compare(kvc_plan *ours, kvc_plan *theirs) {
    const int32_t steps = std::max(1, config.num_steps);
    for (int32_t step = 0; step < steps; step++) {
      for (int32_t part = KVC_TABLES_WHOLE; part <= KVC_TABLES_ENCODER; part++) {
        kvc_tables a, b;
        for (kvc_tables *t : {&a, &b}) kvc_tables_init(t), t->part = part;
        const kvc_status wanted = kvc_plan_tables(theirs, step, &b, nullptr);
        ASSERT_EQ(kvc_plan_tables(ours, step, &a, nullptr), wanted);
        if (wanted != KVC_OK) continue;
        EXPECT_EQ(a.causal, b.causal);
        EXPECT_EQ(a.page_size, b.page_size);
        EXPECT_EQ(a.max_seqlen_q, b.max_seqlen_q);
        EXPECT_EQ(a.max_seqlen_k, b.max_seqlen_k);
        EXPECT_EQ(a.max_pages, b.max_pages);
        EXPECT_EQ(a.generation_word.device.device_type, kDLCUDA);
        EXPECT_EQ(*static_cast<int64_t *>(a.generation_word.data), static_cast<int64_t>(a.generation));
        const auto of_a = tensors(a), of_b = tensors(b);
        for (const auto &[name, tensor] : of_a) {
          const DLTensor &other = of_b.at(name);
          ASSERT_EQ(tensor.ndim, other.ndim) << name;
          if (tensor.ndim == 0) continue;
          EXPECT_EQ(tensor.device.device_type, kDLCUDA) << name;
          ASSERT_EQ(bytes_of(tensor), bytes_of(other)) << name << " of part " << part << ", step " << step;
        }
        seen_.insert(part);
      }
    }
  }

  std::mt19937 rng{11};
  int page = 1;
  kvc_plan_config config;
  std::set<int32_t> seen_;
};

TEST_P(Plans, AreTheCpusBitForBit) {
  const ContextPtr cpu = make_context_on(kDLCPU), cuda = make_context_on(kDLCUDA);
  int built = 0, refused = 0;
  for (int trial = 0; trial < 40; trial++) {
    deal_config();
    const PlanPtr theirs = make_plan(cpu.get(), config), ours = make_plan(cuda.get(), config);
    std::vector<char> before;
    kvc_tables last;
    bool any = false;
    for (int step = 0; step < 5; step++) {
      const Batch batch = deal(below(3) == 0);
      Args on_host(batch, config.mode, {kDLCPU, 0}), on_device(batch, config.mode, {kDLCUDA, 0});
      kvc_error error = KVC_ERROR_INIT;
      const kvc_status wanted = kvc_plan_build(theirs.get(), &on_host.args, nullptr, nullptr, nullptr);
      ASSERT_EQ(kvc_plan_build(ours.get(), &on_device.args, nullptr, nullptr, &error), KVC_OK) << error.message;
      if (wanted == KVC_OK) {
        built++;
        compare(ours.get(), theirs.get());
        if (HasFailure())
          FAIL() << "trial " << trial << " step " << step << " page " << page << " mode " << config.mode << " window "
                 << config.window_tokens << " chunk " << config.chunk_tokens << " flags " << config.flags;
        const int32_t part = batch.with_parents || (config.mode == KVC_PLAN_DRAFT_DECODE && config.top_k > 1)
                                 ? KVC_TABLES_BRANCHES
                                 : KVC_TABLES_WHOLE;
        last = tables_of(ours.get(), part);
        before = bytes_of(last.cache_seqlens);
        any = true;
      } else if (any) {
        refused++;
        EXPECT_EQ(*static_cast<int64_t *>(last.generation_word.data), 0) << "refused by the CPU: " << wanted;
        EXPECT_EQ(bytes_of(last.cache_seqlens), before);
      }
      if (HasFailure()) FAIL() << "trial " << trial << " step " << step;
    }
  }
  EXPECT_GT(built, 60);
  EXPECT_GT(refused, 15);
}

// A context that validates refuses exactly what the CPU refuses, also wrong ids, and reports the value.
TEST_P(Plans, ThatAreValidatedRefuseWhatTheCpuRefuses) {
  const ContextPtr cpu = make_context_on(kDLCPU), cuda = make_context_on(kDLCUDA, KVC_CONTEXT_VALIDATE);
  int built = 0, refused = 0;
  for (int trial = 0; trial < 90; trial++) {
    deal_config();
    config.num_pool_pages = 500;
    const PlanPtr theirs = make_plan(cpu.get(), config), ours = make_plan(cuda.get(), config);
    Batch batch = deal(below(3) == 0);
    if (!batch.lens.empty() && below(2))
      spoil_table(&batch, static_cast<size_t>(below(static_cast<int64_t>(batch.lens.size()))));
    Args on_host(batch, config.mode, {kDLCPU, 0}), on_device(batch, config.mode, {kDLCUDA, 0});
    kvc_error wanted = KVC_ERROR_INIT, error = KVC_ERROR_INIT;
    const kvc_status status = kvc_plan_build(theirs.get(), &on_host.args, nullptr, nullptr, &wanted);
    uint64_t generation = 0;
    ASSERT_EQ(kvc_plan_build(ours.get(), &on_device.args, nullptr, &generation, &error), KVC_OK) << error.message;
    const kvc_status reported = kvc_plan_check(ours.get(), generation, &error);
    const std::string what = "trial " + std::to_string(trial) + ", page " + std::to_string(page) +
                             "\nCPU: " + wanted.message + "\ndevice: " + error.message;
    ASSERT_EQ(reported, status == KVC_OK ? KVC_OK : KVC_ERROR_EARLIER_CALL) << what;
    EXPECT_EQ(kvc_plan_check(ours.get(), generation, &error), KVC_OK) << what;
    if (status == KVC_OK) {
      built++;
      compare(ours.get(), theirs.get());
    } else {
      refused++;
      EXPECT_EQ(std::string(error.message).rfind("kvc_plan_check: an earlier kvc_plan_build", 0), 0u) << what;
      const bool parts = batch.with_parents || (config.mode == KVC_PLAN_DRAFT_DECODE && config.top_k > 1);
      const kvc_tables tables = tables_of(ours.get(), parts ? KVC_TABLES_BRANCHES : KVC_TABLES_WHOLE);
      EXPECT_EQ(*static_cast<int64_t *>(tables.generation_word.data), 0) << what;
      // A build that reports an error of an earlier call makes no tables, and makes its plan stale.
      ASSERT_EQ(kvc_plan_build(ours.get(), &on_device.args, nullptr, &generation, &error), KVC_OK) << error.message;
      EXPECT_EQ(kvc_plan_build(ours.get(), &on_device.args, nullptr, nullptr, &error), KVC_ERROR_EARLIER_CALL) << what;
      EXPECT_EQ(kvc_plan_check(ours.get(), generation, &error), KVC_ERROR_STALE) << what;
    }
    if (HasFailure()) FAIL() << what;
  }
  EXPECT_GT(built, 20);
  EXPECT_GT(refused, 20);
}

TEST_P(Plans, OnTheDeviceNeedGraphModeAndOnePlace) {
  const ContextPtr cuda = make_context_on(kDLCUDA);
  deal_config();
  config.flags &= ~uint32_t{KVC_PLAN_GRAPH};
  config.max_rows = config.max_tokens = config.max_pages_per_row = 0;
  const Batch batch = deal(false);
  Args on_device(batch, config.mode, {kDLCUDA, 0});
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_plan_build(make_plan(cuda.get(), config).get(), &on_device.args, nullptr, nullptr, &error),
            KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "KVC_PLAN_GRAPH"), nullptr) << error.message;
  deal_config();
  Args mixed(deal(false), config.mode, {kDLCUDA, 0});
  mixed.table.tensor.device = {kDLCPU, 0};
  EXPECT_EQ(kvc_plan_build(make_plan(cuda.get(), config).get(), &mixed.args, nullptr, nullptr, &error),
            KVC_ERROR_DEVICE);
}

// A plan for graphs of a decode step with up to 3 rows.
struct SmallPlan {
  const ContextPtr cuda = make_context_on(kDLCUDA);
  PlanPtr plan;

  SmallPlan() {
    kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 4);
    config.flags = KVC_PLAN_GRAPH;
    config.max_rows = 3;
    config.max_pages_per_row = 2;
    plan = make_plan(cuda.get(), config);
  }
  kvc_status build(size_t rows, int64_t table_rows, kvc_error *error) const {
    Ints lens(std::vector<int64_t>(rows, 5)),
        table(std::vector<int64_t>(static_cast<size_t>(2 * table_rows), 1), false, 2);
    lens.tensor.device = table.tensor.device = {kDLCUDA, 0};
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &lens.tensor;
    args.block_table = &table.tensor;
    return kvc_plan_build(plan.get(), &args, nullptr, nullptr, error);
  }
  const int64_t *word() const {
    return static_cast<const int64_t *>(tables_of(plan.get(), KVC_TABLES_WHOLE).generation_word.data);
  }
};

// The host refuses wrong shapes, with their numbers. Captured kernels that read the word see that there are no tables.
TEST(PlansOnTheDevice, ThatTheHostRefuses) {
  const SmallPlan plan;
  const auto build = [&](size_t rows, int64_t table_rows, kvc_error *error) {
    return plan.build(rows, table_rows, error);
  };
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(build(3, 3, &error), KVC_OK) << error.message;
  const int64_t *const word = plan.word();
  EXPECT_GT(*word, 0);
  EXPECT_EQ(build(4, 4, &error), KVC_ERROR_BATCH_TOO_LARGE);
  EXPECT_EQ(std::make_pair(error.required, error.available), std::make_pair(int64_t{4}, int64_t{3})) << error.message;
  EXPECT_EQ(*word, 0);
  ASSERT_EQ(build(3, 3, &error), KVC_OK) << error.message;
  EXPECT_EQ(build(3, 2, &error), KVC_ERROR_SHAPE);
  EXPECT_NE(std::strstr(error.message, "seq_lens has 3 rows, and block_table 2"), nullptr) << error.message;
  EXPECT_EQ(*word, 0);
}

// If the word cannot be set to 0, the call reports that, and not why it refused the arrays.
TEST(PlansOnTheDevice, AreReportedIfTheyStayValid) {
  const SmallPlan plan;
  kvc_error error = KVC_ERROR_INIT;
  int failures = 0;
  for (int64_t n = 1; n < 50; ++n) {
    ASSERT_EQ(plan.build(3, 3, &error), KVC_OK) << error.message;
    const int64_t *const word = plan.word();
    cuda_emulation::fail_call(n, cudaErrorInvalidValue);
    const kvc_status status = plan.build(4, 4, &error);
    const bool reached = cuda_emulation::calls() >= n;
    cuda_emulation::fail_call(0, cudaSuccess);
    EXPECT_EQ(status, reached ? KVC_ERROR_DEVICE_FAILED : KVC_ERROR_BATCH_TOO_LARGE) << error.message;
    EXPECT_EQ(std::strstr(error.message, "could not be marked as stale: cuda") != nullptr, reached) << error.message;
    failures += *word != 0 ? 1 : 0;
    EXPECT_EQ(plan.build(4, 4, &error), KVC_ERROR_BATCH_TOO_LARGE) << error.message;
    EXPECT_EQ(*word, 0);
    if (!reached) break;
  }
  EXPECT_GT(failures, 0);
}

// A plan for graphs of a decode step, built from arrays on the device: the result of the build, and the word of the
// tables.
struct DecodeBuild {
  kvc_status status;
  bool is_good;
};
// of_slots: the table has slots, else pages.
DecodeBuild build_decode(DLDeviceType type, int64_t page_size, Ints lens, Ints table, bool of_slots) {
  const ContextPtr context = make_context_on(type);
  const int64_t columns = table.shape[1];
  kvc_plan_config config = plan_config(KVC_PLAN_DECODE, page_size);
  config.flags = KVC_PLAN_GRAPH;
  config.max_rows = lens.shape[0];
  config.max_pages_per_row = of_slots ? (columns + page_size - 1) / page_size : columns;
  const PlanPtr plan = make_plan(context.get(), config);
  lens.tensor.device = table.tensor.device = {type, 0};
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.seq_lens = &lens.tensor;
  (of_slots ? args.req_to_token : args.block_table) = &table.tensor;
  const kvc_status status = kvc_plan_build(plan.get(), &args, nullptr, nullptr, nullptr);
  if (status != KVC_OK) return {status, false};
  const kvc_tables tables = tables_of(plan.get(), KVC_TABLES_WHOLE);
  return {status, *static_cast<int64_t *>(tables.generation_word.data) != 0};
}

// Pages are known by their first slot, new tokens by their own: the table has the page's, and not the token's.
TEST(PlansOnTheDevice, SlotsOfNewTokensHaveColumns) {
  for (const int64_t columns : {5, 6}) {
    std::vector<int64_t> slots(static_cast<size_t>(columns));
    std::iota(slots.begin(), slots.end(), 8);
    const auto build = [&](DLDeviceType type) {
      return build_decode(type, 4, Ints({5}), Ints(slots, false, columns), true);
    };
    EXPECT_EQ(build(kDLCPU).status, columns == 5 ? KVC_ERROR_OUT_OF_RANGE : KVC_OK);
    const DecodeBuild on_device = build(kDLCUDA);
    EXPECT_EQ(on_device.status, KVC_OK);
    EXPECT_EQ(on_device.is_good, columns == 6);
  }
}

// Each length is valid, but their sum exceeds int32.
TEST(PlansOnTheDevice, KeysOfAllRowsFitAnInt32) {
  constexpr int64_t kPage = 65536, kColumns = (int64_t{1} << 30) / kPage, kMost = (int64_t{1} << 30) - 1;
  for (const int64_t less : {0, 2}) {
    const auto build = [&](DLDeviceType type) {
      const std::vector<int64_t> pages(2 * kColumns, 3);
      return build_decode(type, kPage, Ints({kMost, kMost - less}), Ints(pages, false, kColumns), false);
    };
    EXPECT_EQ(build(kDLCPU).status, less == 0 ? KVC_ERROR_BATCH_TOO_LARGE : KVC_OK);
    const DecodeBuild on_device = build(kDLCUDA);
    EXPECT_EQ(on_device.status, KVC_OK);
    EXPECT_EQ(on_device.is_good, less != 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Plans,
                         testing::Values(KVC_PLAN_DECODE, KVC_PLAN_EXTEND, KVC_PLAN_VERIFY, KVC_PLAN_DRAFT_DECODE));

}  // namespace
}  // namespace kvt
