// KVC_ASSERT: invariants of the library's own state, checked in debug, sanitizer and fuzz builds.
//
//   KVC_ASSERT(page >= 0 && page < size(), page, size());
//
// If the condition is false, the macro prints the expression, the file, the line and the two values, and aborts the
// process. If a caller can make the condition false, do not use this macro: return a Status. A release build evaluates
// neither the condition nor the values.
#pragma once

#if defined(KVCACHE_ASSERTIONS)
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kvc {

[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line, int64_t a,
                                          int64_t b) noexcept {
  std::fprintf(stderr, "%s:%d: KVC_ASSERT(%s) does not hold: %" PRId64 ", %" PRId64 "\n", file, line, expression, a, b);
  std::abort();
}

}  // namespace kvc

#define KVC_ASSERT(condition, a, b) \
  ((condition)                      \
       ? static_cast<void>(0)       \
       : ::kvc::assertion_failed(#condition, __FILE__, __LINE__, static_cast<int64_t>(a), static_cast<int64_t>(b)))
#else
#define KVC_ASSERT(condition, a, b) \
  do {                              \
    if (false) {                    \
      static_cast<void>(condition); \
      static_cast<void>(a);         \
      static_cast<void>(b);         \
    }                               \
  } while (false)
#endif
