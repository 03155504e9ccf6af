// The thread blocks of a graph's steps. Those that an earlier step sent are not sent again, and after each stage the
// device has the blocks of the step.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"
#include "opened.h"

namespace kvc::kernels::cuda {
namespace {

class StepBlocks : public testing::Test {
 protected:
  static constexpr int32_t kMaxItems = 24, kMaxTokens = 200, kManyArrays = 60;
  static constexpr int32_t kArrayBytes = KVC_BACKEND_ARRAY_ALIGNMENT;

  void SetUp() override {
    ASSERT_EQ(opened_.status, KVC_OK) << opened_.error.message;
    many_ = device_of(opened_.device)->many;
    layer_.num_q_heads = 6, layer_.num_kv_heads = 3;
    for (kvc_backend_plan* plan : {&plan_, &other_plan_}) {
      plan->layer = &layer_;
      plan->max_items = kMaxItems;
      plan->max_spans = 4;
    }
    other_plan_.slot = 1;
    const kvc_backend_plan* plans[] = {&plan_, &other_plan_};
    kvc_backend_step_limits limits = {};
    limits.array_bytes = kManyArrays * kArrayBytes, limits.max_tokens = kMaxTokens;
    limits.plans = plans, limits.num_plans = limits.num_stage_plans = 2;
    ASSERT_EQ(table_->step_create(opened_.device, &limits, &step_, &arrays_, &error_), KVC_OK) << error_.message;
  }
  ~StepBlocks() override {
    cuda_emulation::fail_call(0, 0);
    if (step_ != nullptr) table_->step_destroy(opened_.device, step_);
    if (opened_.device != nullptr) table_->close(opened_.device);
  }

  kvc_status stage(const std::vector<kvc_backend_item>& next, int32_t num_arrays = 1) {
    items_ = next;
    plan_.arrays.items = items_.data();
    plan_.num_items = static_cast<int64_t>(items_.size());
    // The blocks of the other plan change in every stage. They lie after those of the first plan.
    other_items_ = items(5, other_items_.empty() ? 1 : other_items_[0].q_end % 2 + 1);
    other_plan_.arrays.items = other_items_.data();
    other_plan_.num_items = static_cast<int64_t>(other_items_.size());
    std::vector<kvc_backend_array> arrays;
    for (int32_t i = 0; i < num_arrays; ++i) {
      arrays.push_back({&value_, sizeof value_, static_cast<unsigned char*>(arrays_) + i * kArrayBytes});
    }
    kvc_backend_plan* const plans[] = {&plan_, &other_plan_};
    kvc_backend_stage args = {};
    args.arrays = arrays.data(), args.num_arrays = num_arrays;
    args.plans = plans, args.num_plans = 2;
    args.num_tokens = args.num_rows = 1;
    args.max_tokens = args.max_rows = kMaxTokens;
    return table_->stage(opened_.device, step_, &args, nullptr, &error_);
  }
  // The memory of the emulated device is the host's.
  void expect_blocks() {
    expect_blocks_of(plan_);
    expect_blocks_of(other_plan_);
  }
  void expect_blocks_of(const kvc_backend_plan& plan) {
    const BlockCounts count = count_all_blocks(plan, many_);
    const BlockCounts& staged = plan.staged->count;
    ASSERT_EQ(staged.few, count.few);
    ASSERT_EQ(staged.many, count.many);
    std::vector<AttendBlock> blocks(static_cast<size_t>(count.both()));
    list_all_blocks(plan, many_, blocks.data());
    const auto bytes = [](int64_t n) { return static_cast<size_t>(n) * sizeof(AttendBlock); };
    EXPECT_EQ(std::memcmp(plan.staged->blocks, blocks.data(), bytes(count.few)), 0);
    const AttendBlock* const many = plan.staged->blocks + plan.staged->most.few;
    EXPECT_EQ(std::memcmp(many, blocks.data() + count.few, bytes(count.many)), 0);
  }
  static std::vector<kvc_backend_item> items(int32_t count, int32_t queries, int32_t head_begin = 0,
                                             int32_t head_end = 3) {
    kvc_backend_item item = {};
    item.q_end = queries, item.head_begin = head_begin, item.head_end = head_end;
    return std::vector<kvc_backend_item>(static_cast<size_t>(count), item);
  }

  const kvc_backend* const table_ = backend_of(KVC_BACKEND_VERSION);
  const Opened opened_ = open_device();
  kvc_error error_ = KVC_ERROR_INIT;
  BlockCut many_ = {};  // how the device cuts items of many rows
  kvc_backend_layer layer_ = {};
  kvc_backend_plan plan_ = {}, other_plan_ = {};
  std::vector<kvc_backend_item> items_, other_items_;
  kvc_backend_step* step_ = nullptr;
  void* arrays_ = nullptr;
  const int64_t value_ = 7;
};

TEST_F(StepBlocks, FollowTheItems) {
  std::vector<kvc_backend_item> mixed = items(3, 1);
  mixed[1].q_end = 20;
  for (const auto& next :
       {items(8, 1), items(8, 1), items(5, 1), items(8, 1), items(9, 1), items(9, 2), items(9, 1), items(4, 40),
        items(3, 40), items(9, 1), items(9, 1, 0, 2), items(9, 1, 1, 2), items(9, 1, 1, 3), mixed, mixed, items(3, 1),
        items(0, 1), items(3, 1), items(kMaxItems, 1)}) {
    ASSERT_EQ(stage(next), KVC_OK) << error_.message;
    expect_blocks();
  }
}

// With more arrays than there are parts in a transfer, the last part includes places that the stage did not write.
TEST_F(StepBlocks, AreSentAgainWithManyArrays) {
  for (const int32_t arrays : {1, 1, kManyArrays, kManyArrays, 1, 1}) {
    ASSERT_EQ(stage(items(8, 1), arrays), KVC_OK) << error_.message;
    expect_blocks();
  }
}

// A stage that fails may have sent nothing.
TEST_F(StepBlocks, AreSentAgainAfterAFailure) {
  ASSERT_EQ(stage(items(8, 1)), KVC_OK) << error_.message;
  int failures = 0;
  for (int64_t call = 1;; ++call) {
    const std::vector<kvc_backend_item> next = items(8, 1 + static_cast<int32_t>(call % 2));
    cuda_emulation::fail_call(call, cudaErrorMemoryAllocation);
    const kvc_status status = stage(next);
    cuda_emulation::fail_call(0, 0);
    failures += status == KVC_OK ? 0 : 1;
    ASSERT_EQ(stage(next), KVC_OK) << error_.message;
    expect_blocks();
    if (status == KVC_OK && call > 8) break;
  }
  EXPECT_GE(failures, 2);
}

}  // namespace
}  // namespace kvc::kernels::cuda
