// ALiBi subtracts slope * distance from a score. The CUDA kernels use the function of this file for that distance. The
// CPU kernels (kernels/cpu/attend/score.h) and the reference have their own code for the same distance.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// Returns the distance that ALiBi multiplies by the slope. flags: KVC_ATTEND_* bits. distance: the position of the
// query minus the position of the key.
KVC_HOST_DEVICE float alibi_distance(uint32_t flags, float distance) {
  return (flags & KVC_ATTEND_ALIBI_SIGNED) != 0 || distance > 0.0f ? distance : -distance;
}

}  // namespace kvc::kernels
