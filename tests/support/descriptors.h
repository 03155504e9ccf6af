// Descriptors of the system, as a program uses them.
#pragma once

#include <cstdint>

namespace kvt {

// Returns whether a descriptor of the library (kvc_cache_job_descriptor, kvc_tier.descriptor) is readable within
// most_ms milliseconds. On Windows, whether its event is signalled.
bool wait_descriptor(int32_t descriptor, int most_ms);

// How many descriptors this process has open. On Windows, how many handles.
int64_t open_descriptors();

}  // namespace kvt
