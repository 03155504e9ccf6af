// states: rows of a batch to the states in pages, and back.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {

kvc_status states(kvc_backend_device* device, const kvc_backend_states* args, void*, kvc_error*) {
  const auto bytes = static_cast<size_t>(args->state_bytes);
  parallel_chunks(device, args->num_rows, 2 * args->state_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t page = args->pages[i];
      char* row = static_cast<char*>(args->rows) + i * args->row_stride_bytes;
      if (page == KVC_BACKEND_STATE_SKIP) continue;
      if (page == KVC_BACKEND_STATE_ZERO) {
        memset(row, 0, bytes);
        continue;
      }
      char* state = static_cast<char*>(args->pool) + page * args->page_stride_bytes;
      memcpy(args->store != 0 ? state : row, args->store != 0 ? row : state, bytes);
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels
