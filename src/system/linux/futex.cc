#include "system/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace kvc {

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t most_ns) noexcept {
  const timespec most = {most_ns / 1'000'000'000, most_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, most_ns > 0 ? &most : nullptr, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word, int count) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace kvc
