// The kernels of the operators. operators.cc has their schemas.
#pragma once

#include <torch/csrc/stable/library.h>

namespace kvc_torch {

// `stack` has the arguments in the order of the schema, and then the results.
void append_slots(StableIValue* stack, uint64_t num_args, uint64_t num_outputs);
void flash_attn_with_kvcache(StableIValue* stack, uint64_t num_args, uint64_t num_outputs);
void merge_states(StableIValue* stack, uint64_t num_args, uint64_t num_outputs);

}  // namespace kvc_torch
