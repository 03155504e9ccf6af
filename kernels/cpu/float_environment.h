// While an object of this class exists, its thread rounds to nearest, does not flush subnormals to zero, and traps no
// exception. The destructor restores the thread's settings. So results do not depend on the settings of the host. On
// machines other than x86-64 and AArch64, the class does nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvc::kernels {

class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatEnvironment() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  DefaultFloatEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~DefaultFloatEnvironment() { asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }
#else
  DefaultFloatEnvironment() : saved_(0) {}
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  unsigned saved_;
#else
  [[maybe_unused]] uint64_t saved_;
#endif
};

}  // namespace kvc::kernels
