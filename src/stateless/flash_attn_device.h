// Implements kvc_flash_attn_with_kvcache for lengths, offsets and page ids that are on the device. The host has the
// shapes of these tensors, but not their values. In place of FlashAttnRows and WorkPlan, the backend makes rows and
// work items on the stream (kvc_backend_flash_plan). The sizes of its arrays depend on the capacity only. The host
// reads nothing back and sends nothing. So a recorded call uses the values that its tensors have at each replay.
#pragma once

#include "plan/work_plan.h"
#include "stateless/flash_attn_call.h"
#include "stateless/scratch.h"

namespace kvc {

// Returns the properties of a call that decide how its work is cut into items. Defined in flash_attn.cc.
WorkShape shape_of(const Context& context, const FlashAttnCall& call);

// FlashAttnCall::read must have checked `call`, and its index tensors must be on the device.
Status flash_attn_on_device(const std::shared_ptr<Context>& context, StatelessScratch& scratch, FlashAttnCall* call,
                            void* stream);

}  // namespace kvc
