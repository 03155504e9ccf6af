// Implements kvc_append_slots, which stores rows of K and V in slots of the caller's own cache.
#pragma once

#include "stateless/scratch.h"

namespace kvc {

// Any thread may call this function, each with its own scratch. May throw std::bad_alloc.
Status append_slots(const std::shared_ptr<Context>& context, StatelessScratch& scratch,
                    const kvc_append_slots_args& args, void* stream);

}  // namespace kvc
