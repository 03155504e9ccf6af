// Sizes of extensible structs in the release that introduced them. A caller may pass no shorter struct.
#pragma once

#include "kvcache.h"

namespace kvc::api {

// The first size is sizeof(T), unless a release has appended fields to T. For such a struct, the first size is added
// here:
//   template <> inline constexpr uint32_t kFirstSize<kvc_batch> = 96;  // 0.1
template <class T>
inline constexpr uint32_t kFirstSize = sizeof(T);

}  // namespace kvc::api
