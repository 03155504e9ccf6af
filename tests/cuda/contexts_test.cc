// The CUDA contexts that the backend creates, and which one is current when its calls return.
#include <gtest/gtest.h>

#include "cuda.h"
#include "cuda_runtime.h"
#include "kernels/cuda/backend.h"

namespace kvc::kernels::cuda {
namespace {

// Of several devices, only the requested one gets a context. When a call returns, the calling thread has what it had
// before: no context, a device, or a context of the driver.
TEST(Contexts, OfTheCallerComeBack) {
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  const auto use = [&] {
    CUcontext before = nullptr, after = nullptr;
    cuCtxGetCurrent(&before);
    kvc_backend_open_args args = {};
    args.device_id = 1;
    kvc_backend_device* device = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(table->open(&args, &device, &error), KVC_OK) << error.message;
    EXPECT_EQ(cuda_emulation::retained(1), 1);
    void* memory = nullptr;
    kvc_backend_event* event = nullptr;
    const int32_t one = 1;
    EXPECT_EQ(table->allocate(device, 64, 64, 0, &memory, &error), KVC_OK);
    EXPECT_EQ(table->upload(device, memory, &one, sizeof one, 0, cudaStreamPerThread, &error), KVC_OK);
    EXPECT_EQ(table->event_create(device, &event, &error), KVC_OK);
    EXPECT_EQ(table->check_stream(device, nullptr, &error), KVC_OK);
    table->event_destroy(device, event);
    table->release(device, memory, 64);
    table->close(device);
    EXPECT_EQ(cuda_emulation::retained(1), 0);
    cuCtxGetCurrent(&after);
    EXPECT_EQ(after, before);
  };
  cuCtxSetCurrent(nullptr);
  cuda_emulation::set_devices(3);
  use();
  EXPECT_TRUE(cuda_emulation::has_context(1));
  EXPECT_FALSE(cuda_emulation::has_context(0));
  cudaSetDevice(2);
  use();
  EXPECT_FALSE(cuda_emulation::has_context(0));
  CUcontext own = nullptr;
  cuCtxCreate(&own, 0, 0);
  use();
  EXPECT_FALSE(cuda_emulation::has_context(0));
  cuCtxDestroy(own);
  cuda_emulation::set_devices(1);
}

}  // namespace
}  // namespace kvc::kernels::cuda
