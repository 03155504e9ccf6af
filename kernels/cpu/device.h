// Defines an open CPU device. A device does not change after open, so any thread may use it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/fail.h"
#include "kernels/cpu/implementation.h"

struct kvc_backend_device {
  const kvc_backend_host* host;
  const kvc::kernels::Implementation* implementation;
  kvc::kernels::Scratch* scratch;  // [host->num_workers]
};

namespace kvc::kernels {

// These functions are defined in layer.cc, memory.cc, rope.cc, append.cc, attend.cc, copy.cc, merge.cc, states.cc and
// project.cc.
#include "kernels/common/backend_functions.inl.h"
// select is defined in select.cc.
kvc_status select(kvc_backend_device* device, const kvc_backend_select* args, void* stream, kvc_error* error);

}  // namespace kvc::kernels
