// Implements kvc_flash_attn_with_kvcache: attention over the caller's own K and V, with the plans and the kernels of a
// forward. If the index tensors are on the host, three classes convert the arguments:
//
//   FlashAttnCall   shapes, dtypes, options       -> layer and tensors
//   FlashAttnRows   values of the index tensors   -> rows, page lists, slots
//   WorkPlan        as in a forward               -> work items
//
// All checks and allocations are made before the first byte of a caller's tensor is written.
#pragma once

#include "stateless/scratch.h"

namespace kvc {

// Any thread may call this function, each with its own scratch. May throw std::bad_alloc.
Status flash_attn_with_kvcache(const std::shared_ptr<Context>& context, StatelessScratch& scratch,
                               const kvc_flash_attn_args& args, void* stream);

}  // namespace kvc
