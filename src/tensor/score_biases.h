// Biases and the mask that a caller gives with an attend (kvc_attend_args): shapes, and values that the host can read.
//
// Pure functions; any thread.
#pragma once

#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/tensor_check.h"

namespace kvc {

// What the call attends: its rows, and the heads of its layer. tokens: rows of the call's tensors.
struct BiasedCall {
  const kvc_backend_rows& rows;
  int64_t tokens;
  int64_t q_heads, kv_heads;
  DLDevice device;
};

// The tensors of a call, without data where it has none.
struct BiasViews {
  TensorView rel_bias, key_bias, mask;
};

// UNSUPPORTED, if the call has a bias or a mask and the backend takes none.
Status check_takes_biases(const kvc_backend& backend, const kvc_attend_args& args);

// Reads the three tensors. A NaN or +infinity is refused where the host can read it.
Status read_biases(const kvc_attend_args& args, const BiasedCall& call, BiasViews* views, kvc_backend_bias* out);

}  // namespace kvc
