#include "system/random.h"

#include <windows.h>
// After windows.h:
#include <bcrypt.h>

#include <cerrno>

namespace kvc {

bool fill_random(void* data, size_t bytes) noexcept {
  const NTSTATUS status =
      BCryptGenRandom(nullptr, static_cast<PUCHAR>(data), static_cast<ULONG>(bytes), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
  if (status < 0) errno = EIO;
  return status >= 0;
}

}  // namespace kvc
