// The transport between caches of one process. A message is copied once, into the queue of its receiver.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "kvcache_transport.h"

namespace kvc {

// Throws std::bad_alloc.
void open_memory_transport(kvc_transport* out);

}  // namespace kvc
