#include "base/assert.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace kvc {

void assertion_failed(const char* expression, const char* file, int line, int64_t a, int64_t b) noexcept {
  std::fprintf(stderr, "%s:%d: KVC_ASSERT(%s) does not hold: %" PRId64 ", %" PRId64 "\n", file, line, expression, a, b);
  std::abort();
}

}  // namespace kvc
