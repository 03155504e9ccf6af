// Checks the biases and the mask of kvc_forward_attend (kvc_attend_args): their shapes, and their values if the host
// can read them.
//
// The functions are pure, and any thread may call them.
#pragma once

#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/tensor_check.h"

namespace kvc {

// A call of attend. rows: the rows of the batch. tokens: the number of rows of its tensors. q_heads, kv_heads: the
// heads of the layer.
struct BiasedCall {
  const kvc_backend_rows& rows;
  int64_t tokens;
  int64_t q_heads, kv_heads;
  DLDevice device;
};

// The tensors of a call. A tensor that is not given has no data.
struct BiasViews {
  TensorView rel_bias, key_bias, mask;
};

// Fails with UNSUPPORTED if the backend supports no biases and masks. The call must have a bias or a mask.
Status check_takes_biases(const kvc_backend& backend, const kvc_attend_args& args);

// Reads the tensors that are given. On the CPU, refuses a NaN or +infinity in a bias.
Status read_biases(const kvc_attend_args& args, const BiasedCall& call, BiasViews* views, kvc_backend_bias* out);

}  // namespace kvc
