// Makes an operator new of the calling thread fail.
#pragma once

#include <cstdint>

namespace kvt {

// The n-th operator new of this thread from now on fails once (1 = the next one); 0 = none. Returns whether the last
// requested failure has happened.
bool fail_allocation(int64_t n);

}  // namespace kvt
