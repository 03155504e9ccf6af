// states() copies recurrent states between the rows of a tensor and the pages of a pool.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {

// Fills a part of a state. The part begins at a multiple of 8 bytes of the state.
static void fill_bytes(char* to, size_t bytes, uint64_t fill) {
  size_t i = 0;
  for (; i + sizeof fill <= bytes; i += sizeof fill) memcpy(to + i, &fill, sizeof fill);
  memcpy(to + i, &fill, bytes - i);
}

kvc_status states(kvc_backend_device* device, const kvc_backend_states* args, void*, kvc_error*) {
  // A state can be larger than all other data of a step. It is cut into pieces, so that several threads can copy one
  // state.
  const int64_t pieces = args->state_bytes > kInlineBytes ? args->state_bytes / kInlineBytes : 1;
  const auto move_piece = [&](int64_t row_index, int64_t piece) {
    const int32_t page = args->pages[row_index];
    if (page == KVC_BACKEND_STATE_SKIP) return;
    const Range part = share_of(args->state_bytes, kLineBytes, piece, pieces);
    const auto bytes = static_cast<size_t>(part.end - part.begin);
    char* row = static_cast<char*>(args->rows) + row_index * args->row_stride_bytes + part.begin;
    if (page == KVC_BACKEND_STATE_FILL) {
      fill_bytes(row, bytes, args->fill);
      return;
    }
    char* state = static_cast<char*>(args->pool) + page * args->page_stride_bytes + part.begin;
    memcpy(args->store != 0 ? state : row, args->store != 0 ? row : state, bytes);
  };
  parallel_chunks(device, args->num_rows * pieces, 2 * args->state_bytes / pieces, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) move_piece(i / pieces, i % pieces);
  });
  return KVC_OK;
}

}  // namespace kvc::kernels
