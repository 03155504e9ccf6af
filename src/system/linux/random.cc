#include "system/random.h"

#include <unistd.h>

namespace kvc {

bool fill_random(void* data, size_t bytes) noexcept { return getentropy(data, bytes) == 0; }

}  // namespace kvc
