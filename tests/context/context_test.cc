#include "context/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "context/fake_backend.h"
#include "context/process_threads.h"
#include "system/cpu_count.h"

namespace kvc {
namespace {

using testing::FakeBackend;

class ContextTest : public ::testing::Test {
 protected:
  ContextTest() {
    FakeBackend::reset();
    kvc_context_config_init(&config_);
  }
  ~ContextTest() override {
    EXPECT_EQ(FakeBackend::get().devices_open, 0);
    EXPECT_EQ(FakeBackend::get().bytes_held, 0);
  }

  kvc_context_config config_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ContextTest, DefaultsAreTheCpuAndItsThreads) {
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  EXPECT_EQ(context->num_threads(), default_num_threads());
  EXPECT_EQ(context->dl_device().device_type, kDLCPU);
  EXPECT_EQ(context->dl_device().device_id, 0);
  EXPECT_EQ(FakeBackend::get().host.num_workers, context->num_workers());
  EXPECT_EQ(FakeBackend::get().devices_open, 1);
  EXPECT_EQ(testing::count_pool_threads(), 0);
}

TEST_F(ContextTest, RefusesWhatIsOutOfRange) {
  std::shared_ptr<Context> context;
  for (int threads : {-1, 1025}) {
    config_.num_threads = threads;
    const Status status = Context::create(config_, &context);
    EXPECT_EQ(status.code(), KVC_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(contains(status.message(), std::to_string(threads))) << status.message();
  }
  config_.num_threads = 1024;
  EXPECT_TRUE(Context::create(config_, &context).ok());
  context.reset();
  for (int id : {-1, 1}) {
    config_.device_id = id;
    EXPECT_EQ(Context::create(config_, &context).code(), KVC_ERROR_INVALID_ARGUMENT);
  }
  config_.device_id = 0;
  config_.device_type = kDLCUDA;
  EXPECT_EQ(Context::create(config_, &context).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(context, nullptr);
}

TEST_F(ContextTest, UnknownSimdListsWhatThereIs) {
  std::shared_ptr<Context> context;
  config_.simd = "wider";
  const Status status = Context::create(config_, &context);
  EXPECT_EQ(status.code(), KVC_ERROR_UNSUPPORTED);
  EXPECT_TRUE(contains(status.message(), "\"wider\"")) << status.message();
  EXPECT_TRUE(contains(status.message(), "portable, wide")) << status.message();
  EXPECT_EQ(context, nullptr);
}

TEST_F(ContextTest, BackendFailuresComeThrough) {
  std::shared_ptr<Context> context;
  FakeBackend::get().open_status = KVC_ERROR_DEVICE_UNAVAILABLE;
  const Status status = Context::create(config_, &context);
  EXPECT_EQ(status.code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_STREQ(status.message(), "the fake does not open");
}

TEST_F(ContextTest, DescribesItself) {
  std::shared_ptr<Context> context;
  config_.num_threads = 3;
  config_.simd = "portable";
  ASSERT_TRUE(Context::create(config_, &context).ok());
  EXPECT_EQ(context->describe(),
            "{\"device\": \"cpu\", \"device_id\": 0, \"threads\": 3, \"host_parallel_for\": false, "
            "\"simd\": \"portable\", \"simd_available\": [\"portable\", \"wide\"]}");
}

TEST_F(ContextTest, LogsOneLineAtCreate) {
  std::vector<std::pair<int, std::string>> lines;
  config_.log = [](void* user, int32_t level, const char* message) {
    static_cast<decltype(lines)*>(user)->emplace_back(level, message);
  };
  config_.log_user = &lines;
  config_.num_threads = 2;
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].first, KVC_LOG_INFO);
  EXPECT_EQ(lines[0].second, "context: cpu:0, simd wide, 2 threads");
  context->log(KVC_LOG_WARNING, "%s", std::string(5000, 'x').c_str());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].second, std::string(1023, 'x'));
}

TEST_F(ContextTest, BackendRunsItemsThroughTheHostTable) {
  config_.num_threads = 4;
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  const kvc_backend_host& host = FakeBackend::get().host;
  std::atomic<int64_t> sum{0};
  const auto add = [](void* arg, int64_t i, int32_t) { *static_cast<std::atomic<int64_t>*>(arg) += i; };
  host.run(host.self, 100, KVC_EFFORT_LARGE, add, &sum);
  EXPECT_EQ(sum, 4950);
  EXPECT_EQ(host.own_threads, 4);
  EXPECT_TRUE(testing::pool_threads_become(3));
}

TEST_F(ContextTest, HostPoolStartsNoThread) {
  config_.num_threads = 4;
  config_.parallel_for = [](void* user, int64_t n, void (*item)(void*, int64_t), void* arg) {
    ++*static_cast<int*>(user);
    for (int64_t i = 0; i < n; i++) item(arg, i);
  };
  int calls = 0;
  config_.parallel_for_user = &calls;
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  context->pool().run(10, KVC_EFFORT_LARGE, [](void*, int64_t, int32_t) {}, nullptr);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(FakeBackend::get().host.own_threads, 1);
  EXPECT_EQ(testing::count_pool_threads(), 0);
  EXPECT_TRUE(contains(context->describe(), "\"host_parallel_for\": true"));
}

TEST_F(ContextTest, MemoryKeepsItsContext) {
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  std::shared_ptr<DeviceMemory> memory;
  ASSERT_TRUE(DeviceMemory::allocate(context, 1000, 256, false, &memory).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 256, 0u);
  EXPECT_EQ(memory->bytes(), 1000);
  EXPECT_EQ(FakeBackend::get().bytes_held, 1000);
  context.reset();
  EXPECT_EQ(FakeBackend::get().devices_open, 1);
  static_cast<char*>(memory->data())[999] = 1;
  memory.reset();
}

TEST_F(ContextTest, RefusedMemoryHasTheBackendsReason) {
  std::shared_ptr<Context> context;
  ASSERT_TRUE(Context::create(config_, &context).ok());
  FakeBackend::get().allocate_status = KVC_ERROR_OUT_OF_MEMORY;
  std::shared_ptr<DeviceMemory> memory;
  const Status status = DeviceMemory::allocate(context, 1000, 256, true, &memory);
  EXPECT_EQ(status.code(), KVC_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(status.message(), "the fake has no memory");
  EXPECT_EQ(memory, nullptr);
}

TEST_F(ContextTest, AThousandContextsLeaveNoThread) {
  config_.num_threads = 3;
  for (int i = 0; i < 1000; i++) {
    std::shared_ptr<Context> context;
    ASSERT_TRUE(Context::create(config_, &context).ok());
    std::atomic<int> count{0};
    context->pool().run(
        3, KVC_EFFORT_LARGE, [](void* arg, int64_t, int32_t) { ++*static_cast<std::atomic<int>*>(arg); }, &count);
    ASSERT_EQ(count, 3);
  }
  EXPECT_TRUE(testing::pool_threads_become(0));
}

}  // namespace
}  // namespace kvc
