// Scenes that CUDA's warpgroup products compute, where a device has them: emulated (KVC_KERNEL_BACKEND=cuda), or a
// card.
#pragma once

#include <gtest/gtest.h>

#include "scene.h"
#if defined(KVC_TESTS_CUDA)
#include "cuda_runtime.h"
#endif

namespace kvc::kernels::test {

// Products of warpgroups so far, where they are counted.
inline int64_t warpgroup_products() {
#if defined(KVC_TESTS_CUDA)
  return cuda_emulation::counts().warpgroup_products;
#else
  return 0;
#endif
}
inline bool counts_products() { return tests_cuda() && std::string(std::getenv("KVC_KERNEL_BACKEND")) == "cuda"; }

inline void run_by_warpgroups(SceneConfig config) {
  if (config.seed % 4 == 0) ++config.seed;  // those have pools that warpgroups do not read
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

}  // namespace kvc::kernels::test
