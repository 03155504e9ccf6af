// rope: cos and sin of a step's positions. Angles are double (a float angle of position 100,000 is off by 0.004 rad),
// the results are rounded once. SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {

kvc_status rope(kvc_backend_device* device, const kvc_backend_rope* args, void*, kvc_error*) {
  const DefaultFloatEnvironment environment;
  const int32_t half = args->rope_dim / 2;
  double frequencies[kMaxHeadDim / 2];
  for (int32_t i = 0; i < half; ++i) frequencies[i] = pow(args->theta, -2.0 * i / args->rope_dim);
  // A sine and cosine of doubles takes about the time of moving 128 bytes.
  parallel_chunks(device, args->num_tokens, half * int64_t{128}, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const double position = args->positions[t];
      float* cos_out = args->cos_sin + t * args->rope_dim;
      for (int32_t i = 0; i < half; ++i) {
        const double angle = position * frequencies[i];
        cos_out[i] = static_cast<float>(cos(angle));
        cos_out[half + i] = static_cast<float>(sin(angle));
      }
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels
