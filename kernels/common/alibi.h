// ALiBi: the distance of a query and a key by which a slope lowers their score. The only place where its sign is
// decided.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// flags: KVC_ATTEND_*. distance: p_q - p_k.
KVC_HOST_DEVICE float alibi_distance(uint32_t flags, float distance) {
  return (flags & KVC_ATTEND_ALIBI_SIGNED) != 0 || distance > 0.0f ? distance : -distance;
}

}  // namespace kvc::kernels
