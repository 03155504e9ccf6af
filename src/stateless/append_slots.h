// kvc_append_slots: rows of K and V to slots of a cache of the caller's own.
#pragma once

#include "stateless/scratch.h"

namespace kvc {

// Any thread, each with a scratch of its own. May throw std::bad_alloc.
Status append_slots(const std::shared_ptr<Context>& context, StatelessScratch& scratch,
                    const kvc_append_slots_args& args, void* stream);

}  // namespace kvc
