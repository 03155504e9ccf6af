// PageUsers says which sequences use a page. A sequence is given by its index in the array of SequenceStore::describe.
#pragma once

#include <cstdint>

#include "base/json_text.h"

namespace kvc {

struct PageUsers {
  int32_t count = 0;              // number of sequences
  int32_t first = -1, last = -1;  // the lowest and the highest index; -1 = none
};

}  // namespace kvc
