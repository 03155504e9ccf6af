// Handles of the system as the library's descriptors of 32 bits: the system guarantees that 32 bits are enough for a
// handle.
#pragma once

#include <windows.h>

#include <cstdint>

namespace kvc {

inline HANDLE handle_of(int descriptor) noexcept { return reinterpret_cast<HANDLE>(static_cast<intptr_t>(descriptor)); }

inline int descriptor_of(HANDLE handle) noexcept { return static_cast<int>(reinterpret_cast<intptr_t>(handle)); }

}  // namespace kvc
