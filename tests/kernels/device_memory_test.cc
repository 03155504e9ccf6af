// Tests may only give a device memory that a GPU can reach. A test that gives it other memory ends, also on the
// emulation.
#include <gtest/gtest.h>

#include <vector>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

TEST(DeviceMemoryDeathTest, StacksAndStaticDataAreRefused) {
  static float data[16];
  float local[16] = {};
  std::vector<float> heap(16);
  const auto merge = [&](float* out, float* lse) {
    const kvc_backend_state part = {{heap.data(), 8, 8, dtype_of(Kind::kF32), 0}, heap.data() + 8, 1, 1};
    kvc_backend_merge args = {};
    args.parts = &part;
    args.num_parts = args.num_heads = 1;
    args.num_tokens = 1;
    args.dims = 8;
    args.result = {{out, 8, 8, dtype_of(Kind::kF32), 0}, lse, 1, 1};
    for_each_implementation(1, [&](const std::string&, kvc_backend_device* device) {
      kvc_error error = KVC_ERROR_INIT;
      EXPECT_EQ(test_backend()->merge(device, &args, nullptr, &error), KVC_OK) << error.message;
    });
  };
  EXPECT_EXIT(merge(local, nullptr), testing::ExitedWithCode(1), "out: a GPU cannot reach a thread's stack");
  EXPECT_EXIT(merge(heap.data(), data), testing::ExitedWithCode(1), "lse: a GPU cannot reach a program's static data");
  merge(heap.data(), heap.data() + 8);
}

}  // namespace
}  // namespace kvc::kernels::test
