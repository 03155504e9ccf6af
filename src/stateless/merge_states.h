// Implements kvc_merge_states, which merges results of attention over disjoint keys. Any thread may call it.
#pragma once

#include "base/status.h"
#include "context/context.h"

namespace kvc {

// May throw std::bad_alloc if there are more than a few parts.
Status merge_states(Context& context, const kvc_merge_args& args, void* stream);

}  // namespace kvc
