// Merges the parts of a tile from left to right in float64, and writes the output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/implementation.h"

namespace kvc::kernels {

// Overwrites merged_row and row of the scratch.
void merge_tile(const kvc_backend_attend& args, const kvc_backend_tile& tile, const Implementation& implementation,
                Scratch* scratch);

}  // namespace kvc::kernels
