// kvc_flash_attn_with_kvcache with lengths, offsets and page ids on the device, so that the host has only shapes. The
// backend makes rows and work items on the stream (kvc_backend_flash_plan), in place of FlashAttnRows and WorkPlan.
// Sizes are those of the capacity. Nothing is read back or sent, so a recorded call uses the values of its tensors at
// each replay.
#pragma once

#include "plan/work_plan.h"
#include "stateless/flash_attn_call.h"
#include "stateless/scratch.h"

namespace kvc {

// The properties of a call that decide how its work is cut (flash_attn.cc).
WorkShape shape_of(const Context& context, const FlashAttnCall& call);

// `call` was checked, and its index tensors are on the device.
Status flash_attn_on_device(const std::shared_ptr<Context>& context, StatelessScratch& scratch, FlashAttnCall* call,
                            void* stream);

}  // namespace kvc
