// KVC_CONTEXT_VALIDATE: the device finds bad values in index tensors that only it reads, leaves them out, and a later
// call reports them with their place. On the CPU the call itself reports them. Each case makes one value of a good call
// wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "cuda_runtime.h"
#include "paged_call.h"
#include "server.h"

namespace kvt {
namespace {

ContextPtr validating() { return make_context_on(kDLCUDA, KVC_CONTEXT_VALIDATE); }

struct Case {
  const char *message;  // what the report says
  int bad_row;
  std::function<void(PagedCall *)> spoil;
  bool ragged = false;
};

std::vector<Case> cases() {
  return {
      {"row 1: cache_seqlens[1] is -1, not in 0..18", 1, [](PagedCall *c) { c->lengths.values[1] = -1; }},
      {"row 2: cache_seqlens[2] is 19, not in 0..18", 2, [](PagedCall *c) { c->lengths.values[2] = 19; }},
      {"row 2: seqused_k[2] is 1000000000, not in 0..18", 2,
       [](PagedCall *c) { c->lengths.values[2] = 1000000000, c->other_name = true; }},
      {"row 0: cache_batch_idx[0] is 3, not in 0..2", 0, [](PagedCall *c) { c->cache_rows.values[0] = 3; }},
      {"row 1: cache_batch_idx[1] is -2147483648, not in 0..2", 1,
       [](PagedCall *c) { c->cache_rows.values[1] = INT32_MIN; }},
      {"row 1: cache_leftpad[1] is 1, not in 0..0", 1, [](PagedCall *c) { c->pads.values[1] = 1; }},
      {"row 0: cache_leftpad[0] is -1, not in 0..9", 0, [](PagedCall *c) { c->pads.values[0] = -1; }},
      {"row 2: rotary_seqlens[2] is 39, not in 0..38", 2, [](PagedCall *c) { c->rotary.values[2] = 39; }},
      {"row 2: rotary_seqlens[2] is -1, not in 0..38", 2, [](PagedCall *c) { c->rotary.values[2] = -1; }},
      {"row 1: block_table[0, 0] is 18, not in 0..17", 1, [](PagedCall *c) { c->table.values[0] = 18; }},
      {"row 0: block_table[2, 2] is -1, not in 0..17", 0, [](PagedCall *c) { c->table.values[12] = -1; }},
      {"row 2: block_table[1, 3] is 2147483647, not in 0..17", 2, [](PagedCall *c) { c->table.values[8] = INT32_MAX; }},
      {"row 0: block_table[2, 0] is 18, not in 0..17", 0,
       [](PagedCall *c) { c->table.values[10] = 18; }},  // of the past
      {"row 0: cu_seqlens_q[0] is 1, not in 0..0", 0, [](PagedCall *c) { c->cu_q.values[0] = 1; }, true},
      {"row 2: cu_seqlens_q[3] is 7, not in 4..6", 2, [](PagedCall *c) { c->cu_q.values[3] = 7; }, true},
      {"row 2: cu_seqlens_q[3] is 3, not in 4..6", 2, [](PagedCall *c) { c->cu_q.values[3] = 3; }, true},
      {"row 2: cu_seqlens_k_new[3] is -5, not in 4..6", 2, [](PagedCall *c) { c->cu_new.values[3] = -5; }, true},
      {"row 0: cu_seqlens_k_new[0] is -1, not in 0..0", 0, [](PagedCall *c) { c->cu_new.values[0] = -1; }, true},
  };
}

class Validation : public testing::Test {
 protected:
  ~Validation() override {
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
    cuda_emulation::fail_call(0, cudaSuccess);
  }
  DeviceIndexes indexes_;
};

void expect_report(kvc_status status, const PagedCall &call, const char *function, const std::string &what,
                   int64_t row) {
  EXPECT_EQ(status, KVC_ERROR_EARLIER_CALL) << call.error.message;
  EXPECT_EQ(call.error.message, std::string(function) + ": an earlier " + what);
  EXPECT_EQ(call.error.index, row);
}

TEST_F(Validation, AttentionLeavesTheRowOutAndTheNextCallSaysWhy) {
  const ContextPtr cpu = make_context_on(kDLCPU, KVC_CONTEXT_VALIDATE), cuda = validating();
  for (const Case &c : cases()) {
    SCOPED_TRACE(c.message);
    PagedCall good(c.ragged), bad(c.ragged), on_host(c.ragged);
    c.spoil(&bad), c.spoil(&on_host);
    use_device("cpu");
    const kvc_status at_once = on_host.attend(cpu.get());
    EXPECT_TRUE(at_once == KVC_ERROR_OUT_OF_RANGE || at_once == KVC_ERROR_BUFFER_TOO_SMALL) << on_host.error.message;
    EXPECT_EQ(on_host.check(cpu.get()), KVC_OK);
    use_device("cuda");
    ASSERT_EQ(good.attend(cuda.get()), KVC_OK) << good.error.message;
    const Array before = bad.out;
    ASSERT_EQ(bad.attend(cuda.get()), KVC_OK) << bad.error.message;
    for (int row = 0; row < PagedCall::kRows; row++) {
      for (int i = 0; i < PagedCall::kEach * PagedCall::kHq * PagedCall::kDim; i++) {
        const int64_t query = i / (PagedCall::kHq * PagedCall::kDim), head = i / PagedCall::kDim % PagedCall::kHq,
                      dim = i % PagedCall::kDim;
        const Index at = c.ragged ? Index{row * PagedCall::kEach + query, head, dim} : Index{row, query, head, dim};
        EXPECT_EQ(bad.out.get(at), row == c.bad_row ? before.get(at) : good.out.get(at)) << row << ", " << i;
      }
    }
    // The next call makes the report and does nothing else. Then it may be repeated.
    PagedCall next(c.ragged);
    const std::string what = std::string("kvc_flash_attn_with_kvcache, ") + c.message;
    const int64_t row = what[what.find(", row ") + 6] - '0';
    expect_report(next.attend(cuda.get()), next, "kvc_flash_attn_with_kvcache", what, row);
    EXPECT_EQ(next.out.bytes, before.bytes);
    EXPECT_EQ(next.check(cuda.get()), KVC_OK) << next.error.message;
    EXPECT_EQ(next.attend(cuda.get()), KVC_OK) << next.error.message;
    EXPECT_EQ(next.out.bytes, good.out.bytes);
    EXPECT_EQ(next.check(cuda.get()), KVC_OK) << next.error.message;
  }
}

TEST_F(Validation, AppendedTokensWithoutASlotOrPosition) {
  const ContextPtr cuda = validating();
  struct {
    const char *what;
    int64_t slot, position;
  } spoiled[] = {{"kvc_append_slots, row 3: slot_mapping[3] is 72, not in 0..71", 72, 3},
                 {"kvc_append_slots, row 3: slot_mapping[3] is 4294967296, not in 0..71", int64_t{1} << 32, 3},
                 {"kvc_append_slots, row 3: positions[3] is 40, not in 0..39", 0, 40},
                 {"kvc_append_slots, row 3: positions[3] is -1, not in 0..39", 0, -1}};
  for (const auto &value : spoiled) {
    PagedCall good(true), bad(true);
    bad.slots.values[3] = value.slot, bad.positions.values[3] = value.position;
    good.slots.values[3] = -1;  // the result must be as if this slot were left out
    ASSERT_EQ(good.append(cuda.get()), KVC_OK) << good.error.message;
    ASSERT_EQ(bad.append(cuda.get()), KVC_OK) << bad.error.message;
    EXPECT_EQ(bad.k_cache.bytes, good.k_cache.bytes) << value.what;
    EXPECT_EQ(bad.v_cache.bytes, good.v_cache.bytes) << value.what;
    expect_report(bad.check(cuda.get()), bad, "kvc_context_check", value.what, 3);
    EXPECT_EQ(bad.check(cuda.get()), KVC_OK) << bad.error.message;
  }
}

TEST_F(Validation, SlotsAndPositionsAreInOnePlace) {
  const ContextPtr cuda = validating();
  PagedCall call(true);
  kvc_append_slots_args args = call.append_args();
  DLTensor positions = *args.positions;
  positions.device = {kDLCPU, 0};
  args.positions = &positions;
  EXPECT_EQ(kvc_append_slots(cuda.get(), &args, nullptr, &call.error), KVC_ERROR_DEVICE);
  EXPECT_STREQ(call.error.message,
               "kvc_append_slots: slot_mapping is on the device, and positions on the host: both on one of them");
}

// The device checks when it runs the work. Until then no call waits, and nothing is reported.
TEST_F(Validation, TheFirstOfTwoIsReportedOnceTheDeviceHasComeToIt) {
  const ContextPtr cuda = validating(), other = validating();
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  PagedCall one(true), two(true), after(true);
  ASSERT_EQ(one.append(cuda.get(), stream), KVC_OK);  // now scratch is allocated
  cudaDeviceSynchronize();
  for (int round = 0; round < 3; round++) {
    cuda_emulation::set_order(cuda_emulation::kInTurn);
    one.slots.values[1] = 100 + round, two.slots.values[4] = 200;
    const int64_t waits = cuda_emulation::counts().host_waits;
    ASSERT_EQ(one.append(cuda.get(), stream), KVC_OK) << one.error.message;
    ASSERT_EQ(two.append(cuda.get(), stream), KVC_OK) << two.error.message;
    EXPECT_EQ(two.check(cuda.get()), KVC_OK) << "the device is late";
    EXPECT_EQ(cuda_emulation::counts().host_waits, waits);
    cudaDeviceSynchronize();
    EXPECT_EQ(after.check(other.get()), KVC_OK) << "another context's: " << after.error.message;
    EXPECT_EQ(after.append(other.get(), stream), KVC_OK) << after.error.message;
    const std::string what =
        "kvc_append_slots, row 1: slot_mapping[1] is " + std::to_string(100 + round) + ", not in 0..71";
    expect_report(after.append(cuda.get(), stream), after, "kvc_append_slots", what, 1);
    EXPECT_EQ(after.check(cuda.get()), KVC_OK) << "told twice";
    ASSERT_EQ(two.append(cuda.get(), stream), KVC_OK);
    cudaDeviceSynchronize();
    expect_report(after.check(cuda.get()), after, "kvc_context_check",
                  "kvc_append_slots, row 4: slot_mapping[4] is 200, not in 0..71", 4);
  }
  cuda_emulation::set_order(cuda_emulation::kAtOnce);
  cudaStreamDestroy(stream);
}

TEST_F(Validation, ReplaysReportWhatTheyMeet) {
  const ContextPtr cuda = validating();
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  PagedCall call, appended(true);
  const kvc_flash_attn_args args = call.args();  // the addresses of its tensors stay the same
  const kvc_append_slots_args append = appended.append_args();
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  ASSERT_EQ(kvc_flash_attn_with_kvcache(cuda.get(), &args, stream, &call.error), KVC_OK) << call.error.message;
  ASSERT_EQ(kvc_append_slots(cuda.get(), &append, stream, &call.error), KVC_OK) << call.error.message;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  for (int round = 0; round < 3; round++) {
    call.table.values[0] = 1, appended.slots.values[0] = 5;
    cudaGraphLaunch(graph, stream);
    EXPECT_EQ(call.check(cuda.get()), KVC_OK) << call.error.message;
    call.table.values[0] = 300 + round;
    cudaGraphLaunch(graph, stream);
    cudaGraphLaunch(graph, stream);  // once for both
    expect_report(
        call.check(cuda.get()), call, "kvc_context_check",
        "kvc_flash_attn_with_kvcache, row 1: block_table[0, 0] is " + std::to_string(300 + round) + ", not in 0..17",
        1);
    EXPECT_EQ(call.check(cuda.get()), KVC_OK) << call.error.message;
    call.table.values[0] = 1, appended.slots.values[0] = 72;
    cudaGraphLaunch(graph, stream);
    expect_report(call.check(cuda.get()), call, "kvc_context_check",
                  "kvc_append_slots, row 0: slot_mapping[0] is 72, not in 0..71", 0);
  }
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(Validation, OffItCostsAndSaysNothing) {
  const ContextPtr off = make_context_on(kDLCUDA), on = validating();
  kvc_plan_config config = plan_config(KVC_PLAN_DECODE, 4);
  config.flags = KVC_PLAN_GRAPH, config.max_rows = 2, config.max_pages_per_row = 3, config.num_pool_pages = 9;
  int64_t launches[2] = {};
  for (kvc_context *context : {off.get(), on.get()}) {
    const PlanPtr plan = make_plan(context, config);
    Ints lens({9, 2}), table({0, 2, 9, 3, -1, -1}, false, 3);
    lens.tensor.device = table.tensor.device = {kDLCUDA, 0};
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &lens.tensor, args.block_table = &table.tensor;
    const int64_t before = cuda_emulation::counts().launches;
    PagedCall call(true);
    call.slots.values[0] = 1000;
    ASSERT_EQ(call.append(context), KVC_OK) << call.error.message;
    ASSERT_EQ(call.check(context), context == on.get() ? KVC_ERROR_EARLIER_CALL : KVC_OK) << call.error.message;
    ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, nullptr), KVC_OK);
    launches[context == on.get()] = cuda_emulation::counts().launches - before;
    kvc_tables tables;
    kvc_tables_init(&tables);
    if (context == off.get()) {
      EXPECT_EQ(kvc_plan_tables(plan.get(), 0, &tables, nullptr), KVC_OK);
      EXPECT_EQ(*static_cast<int64_t *>(tables.generation_word.data), 1);
      continue;
    }
    call.error = KVC_ERROR_INIT;
    expect_report(kvc_plan_tables(plan.get(), 0, &tables, &call.error), call, "kvc_plan_tables",
                  "kvc_plan_build, row 0: block_table[0, 2] is 9, not in 0..8", 0);
    EXPECT_EQ(kvc_plan_tables(plan.get(), 0, &tables, nullptr), KVC_OK);
    EXPECT_EQ(*static_cast<int64_t *>(tables.generation_word.data), 0);
  }
  EXPECT_EQ(launches[1], launches[0] + 1);  // the plan's ids
}

// The build of a plan of two rows, the value that is made wrong, and the report.
struct BuildCase {
  const char *message;
  int32_t mode;
  int64_t row;
  std::function<void(BuildCase *)> spoil;
  std::vector<int64_t> lens = {9, 2}, appends = {1, 2}, rows = {1, 0}, encoders = {0, 0}, parents = {-1, 0, -1, -1};
  std::vector<int64_t> table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31};
  bool with_encoders = false, with_parents = false, pages = false;
  int32_t max_pages = 3;
};

TEST_F(Validation, EveryKindOfFaultOfABuild) {
  const ContextPtr cuda = validating();
  const BuildCase cases[] = {
      {"row 1: seq_lens[1] is -1, not in 0..1073741824", KVC_PLAN_DECODE, 1, [](BuildCase *c) { c->lens[1] = -1; }},
      {"row 0: seq_lens[0] is 1073741824, not in 0..1073741823", KVC_PLAN_DECODE, 0,
       [](BuildCase *c) { c->lens[0] = 1 << 30; }},
      {"row 1: append_lengths[1] is -1, not in 0..1073741824", KVC_PLAN_EXTEND, 1,
       [](BuildCase *c) { c->appends[1] = -1; }},
      {"append_lengths of all rows make 9, and there is room for 8", KVC_PLAN_EXTEND, -1,
       [](BuildCase *c) { c->appends[1] = 8; }},
      {"row 0: rows[0] is 2, not in -1..1", KVC_PLAN_DECODE, 0, [](BuildCase *c) { c->rows[0] = 2; }},
      {"row 1: encoder_lens[1] is -4, not in 0..1073741824", KVC_PLAN_DECODE, 1,
       [](BuildCase *c) { c->encoders[1] = -4, c->with_encoders = true; }},
      {"row 1: tree_parents[3] is 1, not in -1..0", KVC_PLAN_VERIFY, 1,
       [](BuildCase *c) { c->parents[3] = 1, c->with_parents = true; }},
      {"row 0: req_to_token[1, 4] is 36, not in 0..35", KVC_PLAN_DECODE, 0, [](BuildCase *c) { c->table[16] = 36; }},
      {"row 0: req_to_token[1, 8] is 29: a page of 4 tokens does not begin there", KVC_PLAN_DECODE, 0,
       [](BuildCase *c) { c->table[20] = 29; }},
      {"row 0: req_to_token[1, 9] is -1, not in 0..35", KVC_PLAN_DECODE, 0, [](BuildCase *c) { c->table[21] = -1; }},
      {"row 0: block_table[1, 2] is 9, not in 0..8", KVC_PLAN_DECODE, 0,
       [](BuildCase *c) { c->pages = true, c->table = {0, 1, 2, 3, 4, 9}; }},
      {"row 0: 4 columns of block_table are needed, which has 3", KVC_PLAN_DECODE, 0,
       [](BuildCase *c) { c->pages = true, c->table = {0, 1, 2, 3, 4, 5}, c->lens[0] = 12, c->max_pages = 8; }},
      {"row 0: 3 pages of req_to_token exceed the plan's 2", KVC_PLAN_DECODE, 0,
       [](BuildCase *c) { c->max_pages = 2; }},
  };
  for (BuildCase c : cases) {
    SCOPED_TRACE(c.message);
    kvc_plan_config config = plan_config(c.mode, 4);
    config.flags = KVC_PLAN_GRAPH, config.max_rows = 2, config.num_pool_pages = 9;
    if (c.mode == KVC_PLAN_EXTEND) config.max_tokens = 8;
    if (c.mode == KVC_PLAN_VERIFY) config.num_draft_tokens = 2;
    for (const bool bad : {false, true}) {
      if (bad) c.spoil(&c);
      config.max_pages_per_row = c.max_pages;
      const PlanPtr plan = make_plan(cuda.get(), config);
      Ints lens(c.lens), appends(c.appends), rows(c.rows), encoders(c.encoders), parents(c.parents);
      Ints table(c.table, false, static_cast<int64_t>(c.table.size()) / 2);
      for (Ints *ints : {&lens, &appends, &rows, &encoders, &parents, &table}) ints->tensor.device = {kDLCUDA, 0};
      kvc_plan_args args;
      kvc_plan_args_init(&args);
      args.seq_lens = &lens.tensor, args.rows = &rows.tensor;
      (c.pages ? args.block_table : args.req_to_token) = &table.tensor;
      if (c.mode == KVC_PLAN_EXTEND) args.append_lengths = &appends.tensor;
      if (c.with_encoders) args.encoder_lens = &encoders.tensor;
      if (c.with_parents) args.tree_parents = &parents.tensor;
      PagedCall call;
      ASSERT_EQ(kvc_plan_build(plan.get(), &args, nullptr, nullptr, &call.error), KVC_OK) << call.error.message;
      if (bad) {
        const std::string row = c.row < 0 ? ": " : ", ";
        expect_report(call.check(cuda.get()), call, "kvc_context_check", "kvc_plan_build" + row + c.message, c.row);
      } else {
        EXPECT_EQ(call.check(cuda.get()), KVC_OK) << call.error.message;
      }
    }
  }
}

TEST_F(Validation, FlagsAndFailures) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = nullptr;
  config.flags = 2;
  EXPECT_EQ(kvc_context_create(&config, &context, &error), KVC_ERROR_UNSUPPORTED);
  config.flags = 0, config.reserved = 1;
  EXPECT_EQ(kvc_context_create(&config, &context, &error), KVC_ERROR_UNSUPPORTED);
  config.flags = KVC_CONTEXT_VALIDATE, config.reserved = 0, config.device_type = kDLCUDA;
  int failed = 0, without_warpgroups = 0;
  for (int64_t n = 1; n < 300; n++) {
    cuda_emulation::fail_call(n, cudaErrorMemoryAllocation);
    const kvc_status status = kvc_context_create(&config, &context, &error);
    const bool reached = cuda_emulation::calls() >= n;
    cuda_emulation::fail_call(0, cudaSuccess);
    if (status == KVC_OK) {
      kvc_context_destroy(context);
      if (!reached) break;
      without_warpgroups++;  // this one call may fail: then the device counts as one without them
      continue;
    }
    const bool counts_devices = n == 1;  // then the machine has no usable device
    EXPECT_EQ(status, counts_devices ? KVC_ERROR_DEVICE_UNAVAILABLE : KVC_ERROR_OUT_OF_MEMORY) << error.message;
    failed++;
  }
  EXPECT_GE(failed, 12);
  EXPECT_EQ(without_warpgroups, 1);
}

}  // namespace
}  // namespace kvt
