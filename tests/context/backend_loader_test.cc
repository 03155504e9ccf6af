#include "context/backend_loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "context/fake_backend.h"

namespace {
bool runs_with_more_rights = false;
}
// The loader calls this definition and not that of the C library. It behaves as in a set-uid process, or not.
char* secure_getenv(const char* name) noexcept { return runs_with_more_rights ? nullptr : getenv(name); }

namespace kvc {
namespace {

using testing::FakeBackend;

class BackendLoader : public ::testing::Test {
 protected:
  void SetUp() override { FakeBackend::reset(); }
  const kvc_backend* backend_ = nullptr;
};

TEST_F(BackendLoader, FindsTheCpu) {
  ASSERT_TRUE(load_backend(kDLCPU, nullptr, &backend_).ok());
  ASSERT_NE(backend_, nullptr);
  EXPECT_STREQ(backend_->name, "cpu");
}

TEST_F(BackendLoader, OtherDevicesAreUnavailableByName) {
  const Status status = load_backend(kDLMetal, nullptr, &backend_);
  EXPECT_EQ(status.code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_NE(std::string(status.message()).find("8 (Metal)"), std::string::npos) << status.message();
  EXPECT_EQ(load_backend(-7, nullptr, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(backend_, nullptr);
}

TEST_F(BackendLoader, RefusesAnotherVersionOfTheTable) {
  FakeBackend::get().version = KVC_BACKEND_VERSION + 1;
  EXPECT_EQ(load_backend(kDLCPU, nullptr, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  FakeBackend::get().served = false;
  EXPECT_EQ(load_backend(kDLCPU, nullptr, &backend_).code(), KVC_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(backend_, nullptr);
}

class Plugins : public BackendLoader {
 protected:
  void SetUp() override {
    BackendLoader::SetUp();
    unsetenv("KVCACHE_CUDA_BACKEND");
  }
  void TearDown() override {
    unsetenv("KVCACHE_CUDA_BACKEND");
    runs_with_more_rights = false;
  }
  // Whether the file is refused, with these words in the message.
  void expect_refused(const char* path, const char* words) {
    const Status status = load_backend(kDLCUDA, path, &backend_);
    EXPECT_EQ(status.code(), KVC_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status.message();
    EXPECT_EQ(backend_, nullptr);
  }
};

TEST_F(Plugins, ByPath) {
  ASSERT_TRUE(load_backend(kDLCUDA, PLUGIN_FOLDER "plugin_good.so", &backend_).ok());
  EXPECT_STREQ(backend_->name, "plugin");
}

TEST_F(Plugins, ByEnvironmentAndThePathGoesFirst) {
  setenv("KVCACHE_CUDA_BACKEND", PLUGIN_FOLDER "plugin_good.so", 1);
  expect_refused(PLUGIN_FOLDER "plugin_other_version.so", "plugin_other_version.so");
  ASSERT_TRUE(load_backend(kDLCUDA, nullptr, &backend_).ok());
  EXPECT_STREQ(backend_->name, "plugin");
}

TEST_F(Plugins, NotByTheEnvironmentOfASetUidProcess) {
  setenv("KVCACHE_CUDA_BACKEND", PLUGIN_FOLDER "plugin_good.so", 1);
  runs_with_more_rights = true;
  expect_refused(nullptr, "/libkvcache_cuda.so");
}

TEST_F(Plugins, ElseItIsLookedForBesideTheLibrary) {
  expect_refused(nullptr, "/libkvcache_cuda.so");
  setenv("KVCACHE_CUDA_BACKEND", "", 1);  // empty counts as not set
  expect_refused(nullptr, "/libkvcache_cuda.so");
}

TEST_F(Plugins, ThatCannotServeAreRefusedByName) {
  expect_refused(PLUGIN_FOLDER "absent.so", "absent.so");
  expect_refused(PLUGIN_FOLDER "plugin_without_symbol.so", "no symbol kvc_backend_get");
  const std::string version = "does not serve version " + std::to_string(KVC_BACKEND_VERSION);
  expect_refused(PLUGIN_FOLDER "plugin_other_version.so", version.c_str());
  expect_refused(PLUGIN_FOLDER "plugin_other_device.so", "serves device type 8 (Metal), not 2 (CUDA)");
  setenv("KVCACHE_CUDA_BACKEND", PLUGIN_FOLDER "gone.so", 1);
  expect_refused(nullptr, "gone.so");
}

TEST_F(Plugins, OfTheCpuByPath) {
  const Status status = load_backend(kDLCPU, PLUGIN_FOLDER "plugin_good.so", &backend_);
  EXPECT_NE(std::string(status.message()).find("serves device type 2 (CUDA), not 1 (CPU)"), std::string::npos);
}

}  // namespace
}  // namespace kvc
