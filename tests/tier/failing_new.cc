#include "failing_new.h"

#include <cstdlib>
#include <new>

namespace kvt {
namespace {

thread_local int64_t calls_until_failure = 0;
thread_local bool has_failed = false;

}  // namespace

bool fail_allocation(int64_t n) {
  const bool before = has_failed;
  calls_until_failure = n;
  has_failed = false;
  return before;
}

}  // namespace kvt

void* operator new(size_t bytes) {
  if (kvt::calls_until_failure > 0 && --kvt::calls_until_failure == 0) {
    kvt::has_failed = true;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// libstdc++'s version calls the one above. That of the address sanitizer does not, and its memory may not be freed
// below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
