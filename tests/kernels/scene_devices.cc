// The devices of scenes: the CPU's targets, or CUDA's kernels by name, emulated or on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "host_stub.h"
#include "kernels/cpu/backend.h"
#include "scene.h"
#if defined(KVC_TESTS_CUDA)
#include "kernels/cuda/backend.h"
#include "real_device.h"
#endif

namespace kvc::kernels::test {
namespace {
const kvc_backend* backend_of_body = nullptr;  // while a body runs
}

bool tests_cuda() {
  const char* name = std::getenv("KVC_KERNEL_BACKEND");
  return name != nullptr && *name != '\0';
}

const kvc_backend* test_backend() {
  if (backend_of_body != nullptr) return backend_of_body;
#if defined(KVC_TESTS_CUDA)
  if (tests_cuda()) {
    const char* const name = std::getenv("KVC_KERNEL_BACKEND");
    return std::strcmp(name, "cuda") == 0 ? checked_backend(cuda::backend_of(KVC_BACKEND_VERSION)) : real_backend(name);
  }
#endif
  return kvc_cpu_backend_get(KVC_BACKEND_VERSION);
}

namespace {
using Body = std::function<void(const std::string&, kvc_backend_device*)>;

void run_by(const kvc_backend* backend, const char* name, int threads, const Body& body) {
  const HostStub host(threads);
  SCOPED_TRACE(name);
  kvc_error error = KVC_ERROR_INIT;
  kvc_backend_open_args args = {};
  args.host = host.host();
  args.simd = name;
  kvc_backend_device* device = nullptr;
  ASSERT_EQ(backend->open(&args, &device, &error), KVC_OK) << error.message;
  ASSERT_STREQ(backend->implementation(device), name);
  backend_of_body = backend;
  body(backend->implementation(device), device);
  backend_of_body = nullptr;
  backend->close(device);
}

std::vector<std::string> names_of_device(const kvc_backend* cuda) {
  const HostStub host(1);
  kvc_error error = KVC_ERROR_INIT;
  kvc_backend_open_args args = {};
  args.host = host.host();
  kvc_backend_device* device = nullptr;
  EXPECT_EQ(cuda->open(&args, &device, &error), KVC_OK) << error.message;
  if (device == nullptr) return {};
  const char* found[3];
  const int count = cuda->implementations(device, found, 3);
  std::vector<std::string> names(found, found + count);  // the names belong to the device
  cuda->close(device);
  if (const char* only = std::getenv("KVC_KERNEL_SIMD"); only != nullptr) names = {only};
  return names;
}

// A device that attends by warpgroups has a second name for attention without them.
bool is_by_warpgroups(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name + "_mma") != names.end();
}
bool is_without_warpgroups(const std::string& name) {
  return name.size() > 4 && name.compare(name.size() - 4, 4, "_mma") == 0;
}
// On the emulation, warpgroup_test.cc runs it. Most scenes of other tests use other kernels under this name too.
bool runs_everywhere(const std::string& name, const std::vector<std::string>& names) {
  return !is_by_warpgroups(name, names) || std::strcmp(std::getenv("KVC_KERNEL_BACKEND"), "cuda") != 0;
}
}  // namespace

void for_each_implementation(int threads, const std::function<void(const std::string&, kvc_backend_device*)>& body,
                             bool with_reference) {
  if (tests_cuda()) {
    const kvc_backend* const cuda = test_backend();
    if (with_reference) run_by(kvc_cpu_backend_get(KVC_BACKEND_VERSION), "reference", threads, body);
    const std::vector<std::string> names = names_of_device(cuda);
    for (const std::string& name : names) {
      if (runs_everywhere(name, names)) run_by(cuda, name.c_str(), threads, body);
    }
    return;
  }
  const char* names[16];
  const int count = test_backend()->implementations(nullptr, names, 16);
  for (int i = with_reference ? 0 : 1; i < count; ++i) run_by(test_backend(), names[i], threads, body);
}

void for_warpgroups(const std::function<void(const std::string&, kvc_backend_device*)>& body) {
  if (!tests_cuda()) return;
  const kvc_backend* const cuda = test_backend();
  const std::vector<std::string> names = names_of_device(cuda);
  for (const std::string& name : names) {
    if (is_by_warpgroups(name, names)) run_by(cuda, name.c_str(), 1, body);
  }
}

void for_warps(const std::function<void(const std::string&, kvc_backend_device*)>& body) {
  if (!tests_cuda()) return;
  const kvc_backend* const cuda = test_backend();
  for (const std::string& name : names_of_device(cuda)) {
    if (is_without_warpgroups(name)) run_by(cuda, name.c_str(), 1, body);
  }
}

}  // namespace kvc::kernels::test
