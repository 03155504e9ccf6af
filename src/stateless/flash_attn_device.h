// kvc_flash_attn_with_kvcache where lengths, offsets and page ids are on the device: the host has shapes alone. What
// FlashAttnRows and WorkPlan make of values, the backend makes on the stream (kvc_backend_flash_plan); sizes are those
// of the capacity, nothing is read back, and nothing goes up, so that a recorded call does what its tensors say then.
#pragma once

#include "plan/work_plan.h"
#include "stateless/flash_attn_call.h"
#include "stateless/scratch.h"

namespace kvc {

// What of a call decides how its work is cut (flash_attn.cc).
WorkShape shape_of(const Context& context, const FlashAttnCall& call);

// `call` was read, and its index tensors are on the device.
Status flash_attn_on_device(const std::shared_ptr<Context>& context, StatelessScratch& scratch, FlashAttnCall* call,
                            void* stream);

}  // namespace kvc
