// Kernels on fibers.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulation {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr int kWarpSize = 32;

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "CUDA emulation: %s\n", what);
  abort();
}

enum class State { kRuns, kAtBarrier, kAtWarp, kDone };

struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  std::unique_ptr<char[]> stack;
  State state;
  bool started;
  unsigned thread;               // its index
  uint64_t value;                // brought to an exchange
  const Fiber* warp;             // its warp's first fiber
  uint64_t received[kWarpSize];  // in the warp's first fiber: what the lanes brought to the last exchange
};

struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  ucontext_t scheduler_context;
  Fiber* current = nullptr;
  unsigned char* shared = nullptr;
  const std::function<void()>* thread = nullptr;
};
thread_local Block block;

void enter() {
  (*block.thread)();
  block.current->state = State::kDone;
  _longjmp(block.scheduler, 1);
}

// Runs a fiber until it waits or ends.
void resume(Fiber& fiber) {
  block.current = &fiber;
  threadIdx.x = fiber.thread;
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.jump, 1);
  fiber.started = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter, 0);
  setcontext(&fiber.context);
}

void wait(State state) {
  Fiber& fiber = *block.current;
  fiber.state = state;
  if (_setjmp(fiber.jump) == 0) _longjmp(block.scheduler, 1);
}

// Lets those go on whose barrier or warp is complete; whether there are any.
bool release(int threads) {
  bool any = false;
  const auto begin = block.fibers.begin(), end = begin + threads;
  if (std::all_of(begin, end, [](const Fiber& f) { return f.state == State::kAtBarrier; })) {
    std::for_each(begin, end, [](Fiber& f) { f.state = State::kRuns; });
    return true;
  }
  for (int first = 0; first < threads; first += kWarpSize) {
    const auto warp = begin + first, warp_end = warp + std::min(kWarpSize, threads - first);
    if (!std::all_of(warp, warp_end, [](const Fiber& f) { return f.state == State::kAtWarp; })) continue;
    for (auto f = warp; f != warp_end; ++f) {
      warp->received[f - warp] = f->value;
      f->state = State::kRuns;
    }
    any = true;
  }
  return any;
}

void run_block(dim3 grid, dim3 size, dim3 index, unsigned char* shared, bool backwards) {
  const int threads = static_cast<int>(size.x);
  block.shared = shared;
  threadIdx = {0, 0, 0};
  blockIdx = index;
  blockDim = size;
  gridDim = grid;
  while (static_cast<int>(block.fibers.size()) < threads) {
    block.fibers.emplace_back();
    block.fibers.back().stack.reset(new char[kStackBytes]);
  }
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.state = State::kRuns;
    fiber.started = false;
    fiber.thread = static_cast<unsigned>(i);
    fiber.warp = &block.fibers[i / kWarpSize * kWarpSize];
  }
  for (;;) {
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = block.fibers[backwards ? threads - 1 - i : i];
      if (fiber.state == State::kRuns) resume(fiber);
    }
    const auto begin = block.fibers.begin();
    if (std::all_of(begin, begin + threads, [](const Fiber& f) { return f.state == State::kDone; })) return;
    if (!release(threads)) die("threads wait at unlike barriers, or for threads that are done");
  }
}

}  // namespace

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()>& thread) {
  static std::atomic<unsigned> launches{0};
  const bool backwards = launches++ % 2 == 1;
  if (size.y != 1 || size.z != 1) die("blocks have one dimension here");
  if (shared_bytes > 48 * 1024) die("a block has 48 KiB of shared memory where no attribute asks for more");
  const std::unique_ptr<unsigned char[]> shared(new unsigned char[shared_bytes]);
  block.thread = &thread;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t b = backwards ? blocks - 1 - i : i;
    memset(shared.get(), 0xff, shared_bytes);
    run_block(grid, size,
              {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
               static_cast<unsigned>(b / grid.x / grid.y)},
              shared.get(), backwards);
  }
}

unsigned char* shared_memory() { return block.shared; }
int lane() { return static_cast<int>(block.current->thread) % kWarpSize; }
void barrier() { wait(State::kAtBarrier); }

uint64_t exchange(unsigned mask, uint64_t value, int source) {
  if (mask != 0xffffffffu) die("a shuffle without all lanes");
  Fiber* fiber = block.current;
  fiber->value = value;
  wait(State::kAtWarp);
  return block.current->warp->received[source];
}

unsigned ballot(unsigned mask, bool predicate) {
  exchange(mask, predicate ? 1 : 0, 0);
  unsigned bits = 0;
  const unsigned threads = blockDim.x, first = block.current->thread / kWarpSize * kWarpSize;
  for (unsigned i = 0; i < kWarpSize && first + i < threads; ++i) {
    bits |= static_cast<unsigned>(block.current->warp->received[i]) << i;
  }
  return bits;
}

}  // namespace cuda_emulation
