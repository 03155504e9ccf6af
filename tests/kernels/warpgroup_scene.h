// Scenes that CUDA's warpgroup products compute, and the kernels of tensor cores without warpgroups. They run where a
// device has warpgroup products: on the emulation (KVC_KERNEL_BACKEND=cuda), or on a GPU.
#pragma once

#include <gtest/gtest.h>

#include "scene.h"
#if defined(KVC_TESTS_CUDA)
#include "cuda_runtime.h"
#endif

namespace kvc::kernels::test {

// The number of warpgroup products so far, if it is counted.
inline int64_t warpgroup_products() {
#if defined(KVC_TESTS_CUDA)
  return cuda_emulation::counts().warpgroup_products;
#else
  return 0;
#endif
}
inline bool counts_products() { return tests_cuda() && std::string(std::getenv("KVC_KERNEL_BACKEND")) == "cuda"; }

inline void run_by_warpgroups(SceneConfig config) {
  if (config.seed % 4 == 0) ++config.seed;  // such seeds have pools that tensor cores cannot read
  Scene scene(config);
  for_warpgroups([&](const std::string& name, kvc_backend_device* device) {
    const int64_t before = warpgroup_products();
    scene.attend(test_backend(), device);
    scene.check(name);
    if (counts_products()) {
      EXPECT_GT(warpgroup_products(), before) << config.describe();
    }
  });
}

// The number of products of tensor cores without warpgroups so far, if it is counted.
inline int64_t warp_products() {
#if defined(KVC_TESTS_CUDA)
  return cuda_emulation::counts().products;
#else
  return 0;
#endif
}

// Runs body on both devices.
inline void for_many_rows(const std::function<void(const std::string&, kvc_backend_device*)>& body) {
  for_warpgroups(body);
  for_warps(body);
}

inline void run_by_warps(SceneConfig config) {
  if (config.seed % 4 == 0) ++config.seed;  // such seeds have pools that tensor cores cannot read
  Scene scene(config);
  for_warps([&](const std::string& name, kvc_backend_device* device) {
    const int64_t before = warp_products();
    scene.attend(test_backend(), device);
    scene.check(name);
    if (counts_products()) {
      EXPECT_GT(warp_products(), before) << config.describe();
    }
  });
}
inline void run_many_rows(const SceneConfig& config) {
  run_by_warpgroups(config);
  run_by_warps(config);
}

}  // namespace kvc::kernels::test
