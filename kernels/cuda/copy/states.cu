// states: copies recurrent states between rows of a batch and pages, in either direction.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/copy/words.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWordsOfThread = 4;

// Passed by value. args.pages is in device memory.
struct StatesCall {
  kvc_backend_states args;
  int32_t first_row;                          // the first row of this launch
  const kvc_backend_step::Sizes* live_sizes;  // the sizes of the current step, in device memory; null: all rows exist
};

// Word `index` of a state that is filled with the 8 bytes of `fill`.
__device__ Word16 fresh_word(Word16, uint64_t fill, int64_t) { return {fill, fill}; }
template <class Word>
__device__ Word fresh_word(Word, uint64_t fill, int64_t index) {
  constexpr int64_t kWords = sizeof(fill) / sizeof(Word), kBits = 8 * sizeof(Word);
  return static_cast<Word>(fill >> (index % kWords * kBits));
}

// A thread block copies a part of one state. sizeof(Word) divides all addresses and sizes.
template <class Word>
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ StatesCall call) {
  const kvc_backend_states& args = call.args;
  const int32_t index = call.first_row + static_cast<int32_t>(blockIdx.y);
  if (call.live_sizes != nullptr && index >= call.live_sizes->rows) return;
  const int32_t page = args.pages[index];
  if (page == KVC_BACKEND_STATE_SKIP) return;
  Word* row = reinterpret_cast<Word*>(static_cast<char*>(args.rows) + index * args.row_stride_bytes);
  Word* state = reinterpret_cast<Word*>(static_cast<char*>(args.pool) + page * args.page_stride_bytes);
  const int64_t words = args.state_bytes / static_cast<int64_t>(sizeof(Word));
  int64_t word = static_cast<int64_t>(blockIdx.x) * kThreads * kWordsOfThread + threadIdx.x;
  for (int i = 0; i < kWordsOfThread && word < words; ++i, word += kThreads) {
    if (page == KVC_BACKEND_STATE_FILL) {
      row[word] = fresh_word(Word{}, args.fill, word);
    } else if (args.store != 0) {
      state[word] = row[word];
    } else {
      row[word] = state[word];
    }
  }
}

}  // namespace

kvc_status states(kvc_backend_device* opened, const kvc_backend_states* args, void* stream, kvc_error* error) {
  constexpr int32_t kMaxRows = 65535;  // the limit of a grid's second dimension
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const kvc_status replayable = check_replayable(args->step, stream, error);
  if (replayable != KVC_OK) return replayable;
  StatesCall call = {*args, 0, live_sizes_of(args->step)};
  const int32_t rows = call.live_sizes != nullptr ? args->step->max_rows : args->num_rows;
  const uint64_t places = reinterpret_cast<uint64_t>(args->rows) | reinterpret_cast<uint64_t>(args->pool) |
                          static_cast<uint64_t>(args->row_stride_bytes | args->page_stride_bytes | args->state_bytes);
  const auto run = [&] {
    return with_words(places, [&]<class Word>(Word) {
      const int64_t words = args->state_bytes / static_cast<int64_t>(sizeof(Word));
      kvc_status status = KVC_OK;
      for (call.first_row = 0; call.first_row < rows && status == KVC_OK; call.first_row += kMaxRows) {
        const int32_t left = rows - call.first_row;
        const dim3 grid = {blocks_for(words, kThreads * kWordsOfThread),
                           static_cast<unsigned>(left < kMaxRows ? left : kMaxRows), 1};
        status = launch("copies of states", stream, grid, kThreads, 0, error, states_kernel<Word>, call);
      }
      return status;
    });
  };
  if (args->step != nullptr) return run();
  Piece pages = piece_of(args->pages, args->num_rows);
  return with_upload(&device.upload, &pages, 1, stream, error, [&] {
    call.args.pages = on_device<const int32_t>(pages);
    return run();
  });
}

}  // namespace kvc::kernels::cuda
