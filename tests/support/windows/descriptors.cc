#include "../descriptors.h"

#include <windows.h>

namespace kvt {

bool wait_descriptor(int32_t descriptor, int most_ms) {
  const auto event = reinterpret_cast<HANDLE>(static_cast<intptr_t>(descriptor));
  return WaitForSingleObject(event, static_cast<DWORD>(most_ms)) == WAIT_OBJECT_0;
}

int64_t open_descriptors() {
  DWORD count = 0;
  return GetProcessHandleCount(GetCurrentProcess(), &count) ? count : -1;
}

}  // namespace kvt
