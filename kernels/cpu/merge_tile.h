// Merges the partial states of a tile's items, left to right, and writes the output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/implementation.h"

namespace kvc::kernels {

// row: [kMaxHeadDim] scratch.
void merge_tile(const kvc_backend_attend& args, const kvc_backend_tile& tile, const Implementation& implementation,
                float* row);

}  // namespace kvc::kernels
