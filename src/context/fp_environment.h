// FpEnvironment: default floating-point control (round to nearest, subnormals kept) for the life of the object.
// Items run on the host's threads too, and a host that flushes subnormals to zero must neither change our bits nor find
// its own setting changed.
// Thread safety: acts on the calling thread only; construct and destroy on one thread.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kvc {

class FpEnvironment {
 public:
  FpEnvironment() noexcept : saved_(read()) {
    if (saved_ != kDefault) write(kDefault);
  }
  // Exception flags that the items raised are dropped with the restore: results are what counts.
  ~FpEnvironment() {
    if (read() != saved_) write(saved_);
  }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kDefault = 0x1f80;  // MXCSR: every exception masked, no FTZ, no DAZ, nearest
  static uint64_t read() noexcept { return _mm_getcsr(); }
  static void write(uint64_t value) noexcept { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;  // FPCR: no FZ, no FZ16, no default NaN, nearest
  static uint64_t read() noexcept {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(uint64_t value) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#else
#error "kvcache: floating-point control is known for x86-64 and aarch64 only"
#endif

  const uint64_t saved_;
};

}  // namespace kvc
