// Merges the partial states of a tile's items from left to right in float64, and writes the output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/implementation.h"

namespace kvc::kernels {

// Uses merged_row and row of the scratch.
void merge_tile(const kvc_backend_attend& args, const kvc_backend_tile& tile, const Implementation& implementation,
                Scratch* scratch);

}  // namespace kvc::kernels
