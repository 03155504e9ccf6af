// PageUsers: which sequences use a page, by their numbers in a description (SequenceStore::describe).
#pragma once

#include <cstdint>

#include "base/json_text.h"

namespace kvc {

struct PageUsers {
  int32_t count = 0;
  int32_t first = -1, last = -1;
};

}  // namespace kvc
