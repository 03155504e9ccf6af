// Kernels on fibers.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulation {

void die(const char* what) {
  fprintf(stderr, "CUDA emulation: %s\n", what);
  abort();
}

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr int kWarpSize = 32;

enum class State { kRuns, kAtBarrier, kAtWarp, kUntil, kDone };

struct Copy {
  void* target;
  const void* source;  // null: zeros
  size_t bytes;
};

struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  std::unique_ptr<char[]> stack;
  State state;
  bool started;
  unsigned thread;                                  // its index
  unsigned char brought[kMostBrought];              // its value for an exchange
  const Fiber* warp;                                // its warp's first fiber
  unsigned char received[kWarpSize][kMostBrought];  // in the first fiber: the values of all lanes in the last exchange
  std::vector<Copy> copies;                         // asynchronous copies of the open group
  std::deque<std::vector<Copy>> groups;             // closed groups that were not waited for
  const std::function<bool()>* until;               // the condition that it waits for
};

struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  ucontext_t scheduler_context;
  Fiber* current = nullptr;
  unsigned char* shared = nullptr;
  const std::function<void()>* thread = nullptr;
  bool copies_at_once = false;
};
thread_local Block block;

void enter() {
  (*block.thread)();
  Fiber& fiber = *block.current;
  if (!fiber.copies.empty()) die("copies of a group that was never closed");
  for (const std::vector<Copy>& group : fiber.groups) {
    if (!group.empty()) die("copies that no thread waited for");
  }
  fiber.groups.clear();
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

// If all lanes of a warp have arrived, gives them each other's values and lets them continue.
bool release_warp(int first, int threads) {
  const auto warp = block.fibers.begin() + first, end = warp + std::min(kWarpSize, threads - first);
  if (!std::all_of(warp, end, [](const Fiber& f) { return f.state == State::kAtWarp; })) return false;
  for (auto f = warp; f != end; ++f) {
    memcpy(warp->received[f - warp], f->brought, kMostBrought);
    f->state = State::kRuns;
  }
  return true;
}

bool release_barrier(int threads) {
  const auto begin = block.fibers.begin(), end = begin + threads;
  if (!std::all_of(begin, end, [](const Fiber& f) { return f.state == State::kAtBarrier; })) return false;
  std::for_each(begin, end, [](Fiber& f) { f.state = State::kRuns; });
  return true;
}

// Runs a warp until it needs the other warps: up to a barrier of the block, or its end. Returns whether it made
// progress.
bool run_warp(int first, int threads, bool backwards) {
  const int lanes = std::min(kWarpSize, threads - first);
  bool ran = false;
  do {
    for (int i = 0; i < lanes; ++i) {
      Fiber& fiber = block.fibers[first + (backwards ? lanes - 1 - i : i)];
      if (fiber.state == State::kUntil && (*fiber.until)()) fiber.state = State::kRuns;
      if (fiber.state != State::kRuns) continue;
      resume(fiber);
      ran = true;
    }
  } while (release_warp(first, threads));
  return ran;
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
    const int warps = (threads + kWarpSize - 1) / kWarpSize;
    bool ran = false;
    for (int w = 0; w < warps; ++w) ran |= run_warp((backwards ? warps - 1 - w : w) * kWarpSize, threads, backwards);
    const auto begin = block.fibers.begin();
    if (std::all_of(begin, begin + threads, [](const Fiber& f) { return f.state == State::kDone; })) return;
    if (release_barrier(threads)) {
      pass_block_barrier();
    } else if (!ran && !deliver()) {
      die("threads wait at unlike barriers, or for threads that are done");
    }
  }
}

}  // namespace

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()>& thread) {
  static std::atomic<unsigned> launches{0};
  const unsigned launch = launches++;
  const bool backwards = launch % 2 == 1;
  block.copies_at_once = launch % 4 >= 2;
  if (size.y != 1 || size.z != 1) die("blocks have one dimension here");
  const std::unique_ptr<unsigned char, decltype(&free)> shared(
      static_cast<unsigned char*>(aligned_alloc(1024, (shared_bytes + 1024) / 1024 * 1024)), &free);
  block.thread = &thread;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t b = backwards ? blocks - 1 - i : i;
    memset(shared.get(), 0xff, shared_bytes);
    begin_warpgroups(static_cast<int>(size.x), shared.get(), shared_bytes, block.copies_at_once, b % 2 == 1);
    run_block(grid, size,
              {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
               static_cast<unsigned>(b / grid.x / grid.y)},
              shared.get(), backwards);
    end_warpgroups();
  }
}

void wait_until(const std::function<bool()>& condition) {
  while (!condition()) {
    block.current->until = &condition;
    wait(State::kUntil);
  }
}

unsigned char* shared_memory() { return block.shared; }
int lane() { return static_cast<int>(block.current->thread) % kWarpSize; }
void barrier() { wait(State::kAtBarrier); }

uint64_t exchange(unsigned mask, uint64_t value, int source) {
  if (mask != 0xffffffffu) die("a shuffle without all lanes");
  memcpy(&value, gather_warp(&value, sizeof value)[source], sizeof value);
  return value;
}

const unsigned char (*gather_warp(const void* brought, size_t bytes))[kMostBrought] {
  memcpy(block.current->brought, brought, bytes);
  wait(State::kAtWarp);
  return block.current->warp->received;
}

namespace {
void finish(const Copy& copy) {
  if (copy.source == nullptr) {
    memset(copy.target, 0, copy.bytes);
  } else {
    memcpy(copy.target, copy.source, copy.bytes);
  }
}
}  // namespace

namespace {
void begin_copy_of(size_t bytes, void* shared, const void* global, bool there) {
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % bytes != 0) {
    die("an asynchronous copy that is not aligned to its bytes");
  }
  const Copy copy = {shared, there ? global : nullptr, bytes};
  hold_copy(shared);
  if (block.copies_at_once) finish(copy);
  block.current->copies.push_back(copy);
}
}  // namespace

void begin_copy(void* shared, const void* global, bool there) { begin_copy_of(16, shared, global, there); }
void begin_half_copy(void* shared, const void* global, bool there) { begin_copy_of(8, shared, global, there); }
void begin_float_copy(float* shared, const void* global, bool there) { begin_copy_of(4, shared, global, there); }

void close_copies() { block.current->groups.push_back(std::move(block.current->copies)); }

void wait_for_copies(int groups) {
  Fiber& fiber = *block.current;
  while (static_cast<int>(fiber.groups.size()) > groups) {
    for (const Copy& copy : fiber.groups.front()) {
      if (!block.copies_at_once) finish(copy);
      arrive_copy(copy.target);
    }
    fiber.groups.pop_front();
  }
}

unsigned ballot(unsigned mask, bool predicate) {
  exchange(mask, predicate ? 1 : 0, 0);
  unsigned bits = 0;
  const unsigned threads = blockDim.x, first = block.current->thread / kWarpSize * kWarpSize;
  for (unsigned i = 0; i < kWarpSize && first + i < threads; ++i) {
    bits |= static_cast<unsigned>(block.current->warp->received[i][0]) << i;
  }
  return bits;
}

}  // namespace cuda_emulation
