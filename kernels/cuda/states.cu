// states: rows of a batch to the states in pages, and back.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/words.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWordsOfThread = 4;

// A block's share of one state, in words that everything is a multiple of. pages are on the device.
template <class Word>
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ kvc_backend_states args) {
  const int32_t page = args.pages[blockIdx.y];
  if (page == KVC_BACKEND_STATE_SKIP) return;
  Word* row = reinterpret_cast<Word*>(static_cast<char*>(args.rows) + blockIdx.y * args.row_stride_bytes);
  Word* state = reinterpret_cast<Word*>(static_cast<char*>(args.pool) + page * args.page_stride_bytes);
  const int64_t words = args.state_bytes / static_cast<int64_t>(sizeof(Word));
  int64_t word = static_cast<int64_t>(blockIdx.x) * kThreads * kWordsOfThread + threadIdx.x;
  for (int i = 0; i < kWordsOfThread && word < words; ++i, word += kThreads) {
    if (page == KVC_BACKEND_STATE_ZERO) {
      row[word] = Word{};
    } else if (args.store != 0) {
      state[word] = row[word];
    } else {
      row[word] = state[word];
    }
  }
}

}  // namespace

kvc_status states(kvc_backend_device* opened, const kvc_backend_states* args, void* stream, kvc_error* error) {
  constexpr int32_t kMaxRows = 65535;  // of a grid's second dimension
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const kvc_status outside = check_not_captured(stream, "states are copied", error);  // of as many rows as now
  if (outside != KVC_OK) return outside;
  for (int32_t begin = 0; begin < args->num_rows; begin += kMaxRows) {
    const int32_t rows = args->num_rows - begin < kMaxRows ? args->num_rows - begin : kMaxRows;
    Piece pages = piece_of(args->step, args->pages + begin, rows);
    const kvc_status status = with_upload(&device.upload, &pages, 1, stream, error, [&] {
      kvc_backend_states on = *args;
      on.rows = static_cast<char*>(args->rows) + begin * args->row_stride_bytes;
      on.pages = on_device<const int32_t>(pages);
      const uint64_t all = reinterpret_cast<uint64_t>(on.rows) | reinterpret_cast<uint64_t>(on.pool) |
                           static_cast<uint64_t>(on.row_stride_bytes | on.page_stride_bytes | on.state_bytes);
      return with_words(all, [&]<class Word>(Word) {
        const int64_t words = on.state_bytes / static_cast<int64_t>(sizeof(Word));
        const dim3 grid = {blocks_for(words, kThreads * kWordsOfThread), static_cast<unsigned>(rows), 1};
        return launch("copies of states", stream, grid, kThreads, 0, error, states_kernel<Word>, on);
      });
    });
    if (status != KVC_OK) return status;
  }
  return KVC_OK;
}

}  // namespace kvc::kernels::cuda
