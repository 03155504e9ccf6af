// Sizes of extensible structs in the release that introduced them: the shortest that a caller may hand over.
#pragma once

#include "kvcache.h"

namespace kvc::api {

// sizeof(T), until fields are appended to a struct that was released. It then gets its first size here:
//   template <> inline constexpr uint32_t kFirstSize<kvc_batch> = 96;  // 0.1
template <class T>
inline constexpr uint32_t kFirstSize = sizeof(T);

}  // namespace kvc::api
