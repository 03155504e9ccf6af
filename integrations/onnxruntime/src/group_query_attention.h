// com.microsoft.GroupQueryAttention. Past and present are [B, heads, tokens, dims]. If they are one buffer, the new
// tokens are appended where they are. Else the past is copied into the present first.
#pragma once

#include <vector>

#include "kernel.h"
#include "tensor.h"

namespace kvc_ort {

class GroupQueryAttention final : public Kernel {
 public:
  explicit GroupQueryAttention(const OrtKernelInfo* info);
  void compute(OrtKernelContext* run, const AttentionContext& attention) const override;

 private:
  struct Call;
  void read(const OrtKernelContext* run, Call* call) const;
  void copy_past(const OrtKernelContext* run, const Call& call) const;

  HeadAttributes heads_;
  bool smooth_;                    // a logit of 0 joins each softmax
  std::vector<float> zero_sinks_;  // [q_heads], for smooth_
};

}  // namespace kvc_ort
