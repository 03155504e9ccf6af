#include "system/futex.h"

#include <windows.h>

#include <climits>

namespace kvc {
namespace {

// The functions have parameters without const, and change nothing.
void* address_of(const std::atomic<uint32_t>& word) noexcept { return const_cast<std::atomic<uint32_t>*>(&word); }

}  // namespace

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t most_ns) noexcept {
  const DWORD most_ms = most_ns > 0 ? static_cast<DWORD>((most_ns + 999'999) / 1'000'000) : INFINITE;
  WaitOnAddress(address_of(word), &expected, sizeof expected, most_ms);
}

void futex_wake(const std::atomic<uint32_t>& word, int count) noexcept {
  if (count == INT_MAX) return WakeByAddressAll(address_of(word));
  for (; count > 0; --count) WakeByAddressSingle(address_of(word));
}

}  // namespace kvc
