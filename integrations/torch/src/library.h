// The library and its contexts. A context is made when a device is first used, and lives as long as the process.
//
// Thread safety: any.
#pragma once

#include <kvcache.h>

#include "tensor.h"

namespace kvc_torch {

// Throws if the loaded libkvcache has another ABI than the header that these operators were compiled with.
const kvc_api& library();

// Where a call computes.
struct Place {
  kvc_context* context;
  void* stream;  // PyTorch's current stream of the device; NULL on the CPU
};

// On the CPU a context computes on PyTorch's intra-op threads, so torch.set_num_threads applies, and no second pool
// competes with them.
Place place_of(const Tensor& tensor);

// Throws the library's message, which begins with the operator's name in place of the function's.
void check(kvc_status status, const kvc_error& error);

}  // namespace kvc_torch
