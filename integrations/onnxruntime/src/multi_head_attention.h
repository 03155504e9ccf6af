// com.microsoft.MultiHeadAttention: as many KV heads as query heads, self or cross attention. Keys are attended where
// they are, unless a bias is added to them or the node has a present. Then they are copied first.
#pragma once

#include <vector>

#include "kernel.h"
#include "tensor.h"

namespace kvc_ort {

class MultiHeadAttention final : public Kernel {
 public:
  explicit MultiHeadAttention(const OrtKernelInfo* info);
  void compute(OrtKernelContext* run, const AttentionContext& attention) const override;

 private:
  struct Call;
  void read(const OrtKernelContext* run, Call* call) const;
  void read_past(const OrtKernelContext* run, Call* call) const;
  void add_bias(const OrtKernelContext* run, Call* call) const;
  void write_present(OrtKernelContext* run, Call* call) const;

  HeadAttributes heads_;
  bool causal_;
};

}  // namespace kvc_ort
