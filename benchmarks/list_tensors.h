// What the benchmarks of lists and of their selection share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kvcache.h"

namespace kvc::benchmark {

inline void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// bfloat16 [rows, heads, dims], or int32.
struct Tensor {
  int64_t shape[3];
  std::vector<char> data;
  DLTensor tensor = {};
  Tensor(int64_t rows, int64_t heads, int64_t dims, DLDataType type) : shape{rows, heads, dims} {
    data.resize(static_cast<size_t>(rows * heads * dims * type.bits / 8));
    tensor.ndim = 3;
    tensor.device = {kDLCPU, 0};
    tensor.dtype = type;
    tensor.shape = shape;
    tensor.data = data.data();
  }
  void fill(std::mt19937* random) {
    auto* elements = reinterpret_cast<uint16_t*>(data.data());
    for (size_t i = 0; i < data.size() / 2; ++i) {
      const auto bits = (*random)();
      elements[i] = static_cast<uint16_t>((bits & 0x80ff) | 0x3f00);  // +-0.5 .. +-2
    }
  }
};

}  // namespace kvc::benchmark
