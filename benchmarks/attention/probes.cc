// SPDX-License-Identifier: Apache-2.0
#include "attention/probes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace kvc::benchmark {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

// Stores to it keep the compiler from removing the sum.
std::atomic<uint64_t> sink;

using Block = uint64_t __attribute__((vector_size(64)));

// Plain loads in the widest vectors of the machine, added to eight sums.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
sum_of(const char* data, size_t bytes) {
  Block sums[8] = {};
  const Block* blocks = reinterpret_cast<const Block*>(data);
  const size_t count = bytes / sizeof(Block) / 8 * 8;
  for (size_t i = 0; i < count; i += 8) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) sums[j] += blocks[i + j];
  }
  for (size_t j = 1; j < 8; ++j) sums[0] += sums[j];
  uint64_t sum = 0;
  for (size_t lane = 0; lane < 8; ++lane) sum += sums[0][lane];
  return sum;
}

// The range of n things that thread `thread` works on.
struct Share {
  size_t begin, end;
};
Share share_of(size_t n, int threads, int thread) {
  const auto t = static_cast<size_t>(thread), all = static_cast<size_t>(threads);
  return {n * t / all, n * (t + 1) / all};
}

}  // namespace

Arena::Arena(size_t bytes) : mapped_(bytes + kHuge), bytes_(bytes) {
  memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  const uintptr_t address = (reinterpret_cast<uintptr_t>(memory_) + kHuge - 1) / kHuge * kHuge;
  data_ = reinterpret_cast<char*>(address);
  madvise(data_, bytes_, MADV_HUGEPAGE);
  std::memset(data_, 1, bytes_);
}

Arena::~Arena() { munmap(memory_, mapped_); }

char* Arena::next(size_t bytes) {
  if (position_ + bytes > bytes_) position_ = 0;
  char* begin = data_ + position_;
  position_ += (bytes + 63) / 64 * 64;
  return begin;
}

double read_stream(Team& team, const char* data, size_t bytes) {
  return team.run([&](int thread) {
    const Share lines = share_of(bytes / 512, team.threads(), thread);
    sink = sum_of(data + lines.begin * 512, (lines.end - lines.begin) * 512);
  });
}

double read_pages(Team& team, const char* pool, size_t page_bytes, const std::vector<int32_t>& pages) {
  return team.run([&](int thread) {
    const Share mine = share_of(pages.size(), team.threads(), thread);
    uint64_t sum = 0;
    for (size_t i = mine.begin; i < mine.end; ++i) {
      sum += sum_of(pool + static_cast<size_t>(pages[i]) * page_bytes, page_bytes);
    }
    sink = sum;
  });
}

double copy(Team& team, char* target, const char* source, size_t bytes) {
  return team.run([&](int thread) {
    const Share mine = share_of(bytes, team.threads(), thread);
    std::memcpy(target + mine.begin, source + mine.begin, mine.end - mine.begin);
  });
}

double rate(Team& team, const Instruction& instruction, double seconds) {
  int64_t rounds = 2000;
  for (;;) {
    const double took = team.run([&](int) { instruction.run(rounds); });
    const double all = instruction.operations * static_cast<double>(rounds) * team.threads();
    if (took >= 0.5 * seconds) return all / took;
    rounds = static_cast<int64_t>(static_cast<double>(rounds) * std::min(10.0, seconds / std::max(took, 1e-6)) + 1);
  }
}

const Instruction& best_instruction(Team& team, Type type) {
  const Instruction* best = nullptr;
  double best_rate = 0;
  for (const Instruction& instruction : instructions()) {
    if (!instruction.available() || (instruction.bf16 && (type == Type::kF32 || type == Type::kF16))) continue;
    const double here = rate(team, instruction, 0.01);
    if (best == nullptr || here > best_rate) {
      best = &instruction;
      best_rate = here;
    }
  }
  return *best;
}

}  // namespace kvc::benchmark
