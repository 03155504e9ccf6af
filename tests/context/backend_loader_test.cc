#include "context/backend_loader.h"

#include <gtest/gtest.h>

#include <string>

#include "context/fake_backend.h"

namespace kvc {
namespace {

using testing::FakeBackend;

class BackendLoader : public ::testing::Test {
 protected:
  void SetUp() override { FakeBackend::reset(); }
  const kvc_backend* backend_ = nullptr;
};

TEST_F(BackendLoader, FindsTheCpu) {
  ASSERT_TRUE(load_backend(kDLCPU, &backend_).ok());
  ASSERT_NE(backend_, nullptr);
  EXPECT_STREQ(backend_->name, "cpu");
}

TEST_F(BackendLoader, OtherDevicesAreUnavailableByName) {
  const Status status = load_backend(kDLCUDA, &backend_);
  EXPECT_EQ(status.code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_NE(std::string(status.message()).find("2 (CUDA)"), std::string::npos) << status.message();
  EXPECT_EQ(load_backend(-7, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(backend_, nullptr);
}

TEST_F(BackendLoader, RefusesAnotherVersionOfTheTable) {
  FakeBackend::get().version = KVC_BACKEND_VERSION + 1;
  EXPECT_EQ(load_backend(kDLCPU, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  FakeBackend::get().served = false;
  EXPECT_EQ(load_backend(kDLCPU, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(backend_, nullptr);
}

}  // namespace
}  // namespace kvc
