// Plans over arrays with wrong contents: offsets that wrap around, sums beyond int32, lengths beyond the table, and
// arrays that another thread writes meanwhile. A build returns a status soon, and stays within the caller's memory.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "server.h"

namespace kvt {
namespace {

int64_t peak_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

kvc_plan_args args_of(const Ints &lens, const Ints &table) {
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  args.seq_lens = &lens.tensor;
  args.block_table = &table.tensor;
  return args;
}

TEST(HostilePlans, OffsetsThatWrapAround) {
  const ContextPtr context = make_context();
  const PlanPtr plan = make_plan(context.get(), plan_config(KVC_PLAN_DECODE, 16));
  const Ints lens({5, 5}), table({0, 1, 2, 3}, false, 2);
  const kvc_plan_args good = args_of(lens, table);
  ASSERT_EQ(kvc_plan_build(plan.get(), &good, nullptr, nullptr, nullptr), KVC_OK);
  for (const bool of_table : {false, true}) {
    DLTensor wrapped = of_table ? table.tensor : lens.tensor;
    wrapped.byte_offset = uint64_t{0} - (uint64_t{1} << 20);  // a MiB before the data
    kvc_plan_args args = good;
    (of_table ? args.block_table : args.seq_lens) = &wrapped;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_ERROR_STRIDE) << error.message;
    EXPECT_NE(std::string(error.message).find("address space"), std::string::npos) << error.message;
  }
}

// 4,200 chains of 1,024 drafts list 2.2 billion keys. This is refused before 8 GiB are allocated for them.
TEST(HostilePlans, KeysOfBranchesBeyondInt32) {
  const ContextPtr context = make_context();
  constexpr int64_t kRows = 4200, kDrafts = 1024;
  kvc_plan_config config = plan_config(KVC_PLAN_VERIFY, 1024);
  config.num_draft_tokens = kDrafts;
  const PlanPtr plan = make_plan(context.get(), config);
  std::vector<int64_t> parents(kRows * kDrafts);
  for (size_t i = 0; i < parents.size(); i++) parents[i] = static_cast<int64_t>(i) % kDrafts - 1;
  const Ints lens(std::vector<int64_t>(kRows, 0)), table(std::vector<int64_t>(kRows, 7), false, 1), chains(parents);
  kvc_plan_args args = args_of(lens, table);
  args.tree_parents = &chains.tensor;
  const int64_t before = peak_bytes();
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_ERROR_BATCH_TOO_LARGE) << error.message;
  EXPECT_EQ(error.required, kRows * kDrafts * (kDrafts + 1) / 2);
  EXPECT_EQ(error.available, INT32_MAX);
  EXPECT_LT(peak_bytes() - before, int64_t{1} << 30);
}

// A row for each chunk of 2^30 tokens, over a table of one page.
TEST(HostilePlans, ChunksBeyondTheTable) {
  const ContextPtr context = make_context();
  for (const bool of_slots : {false, true}) {
    kvc_plan_config config = plan_config(KVC_PLAN_EXTEND, 16);
    config.chunk_tokens = 1;
    const PlanPtr plan = make_plan(context.get(), config);
    const Ints lens({0}), fresh({int64_t{1} << 26}), table({0}, false, 1);
    kvc_plan_args args = args_of(lens, table);
    args.append_lengths = &fresh.tensor;
    if (of_slots) std::swap(args.block_table, args.req_to_token);
    const int64_t before = peak_bytes();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &error), KVC_ERROR_OUT_OF_RANGE) << error.message;
    EXPECT_EQ(error.index, 0);
    EXPECT_LT(peak_bytes() - before, int64_t{256} << 20);
  }
}

// Builds repeatedly, while a thread writes two values in turn, one of them bad. `values` ends at the end of accessible
// memory.
template <class Build>
void race(volatile int32_t *values, int64_t count, int32_t good, int32_t bad, Build build) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (const int32_t value : {bad, good}) {
        for (int64_t i = 0; i < count; i++) values[i] = value;
      }
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
  while (std::chrono::steady_clock::now() < end) {
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = build(&error);
    if (status == KVC_OK || status == KVC_ERROR_OUT_OF_RANGE) continue;
    ADD_FAILURE() << kvc_status_name(status) << ": " << error.message;
    break;
  }
  stop = true;
  writer.join();
}

TEST(HostilePlans, ArraysThatAreWrittenMeanwhile) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a server's table is read in vector loops, which TSan reports: its ids are only handed back";
#endif
  const ContextPtr context = make_context();
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // A writable page between two inaccessible ones.
  char *const memory =
      static_cast<char *>(mmap(nullptr, 3 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + page_bytes, page_bytes, PROT_READ | PROT_WRITE), 0);
  const auto count = static_cast<int64_t>(page_bytes / sizeof(int32_t));
  auto *const values = reinterpret_cast<int32_t *>(memory + page_bytes);
  std::fill_n(values, count, 3);
  {  // only the last entry: it may be good again when the bad one is looked for
    const PlanPtr plan = make_plan(context.get(), plan_config(KVC_PLAN_DECODE, 1));
    const Ints lens({count - 1}), small({0});
    DLTensor table = small.tensor;
    int64_t shape[2] = {1, count}, strides[2] = {count, 1};
    table.data = values, table.ndim = 2, table.shape = shape, table.strides = strides;
    kvc_plan_args args = args_of(lens, lens);
    args.block_table = &table;
    race(values + count - 1, 1, 3, -3,
         [&](kvc_error *e) { return kvc_plan_build(plan.get(), &args, nullptr, nullptr, e); });
  }
  {
    kvc_plan_config config = plan_config(KVC_PLAN_EXTEND, 1);
    config.flags = KVC_PLAN_LENGTHS_WITH_NEW;
    config.chunk_tokens = 4;
    const PlanPtr plan = make_plan(context.get(), config);
    std::vector<int64_t> fresh(8, 900);
    const Ints appends(fresh);
    Ints lens(std::vector<int64_t>(8, 1000));
    Ints table_values(std::vector<int64_t>(1000, 3));
    DLTensor table = table_values.tensor;
    int64_t shape[2] = {8, 1000}, strides[2] = {0, 1};
    table.ndim = 2, table.shape = shape, table.strides = strides;
    kvc_plan_args args = args_of(lens, lens);
    args.block_table = &table;
    args.append_lengths = &appends.tensor;
    for (const int32_t bad : {-1, 5, INT32_MAX}) {
      race(lens.narrow.data(), 1, 1000, bad,
           [&](kvc_error *e) { return kvc_plan_build(plan.get(), &args, nullptr, nullptr, e); });
    }
  }
  munmap(memory, 3 * page_bytes);
}

}  // namespace
}  // namespace kvt
