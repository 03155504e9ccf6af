// com.microsoft.PagedAttention, for which ONNX Runtime has no kernel on the CPU. Queries are packed without padding.
// The caches are [pages, page_size, heads, dims], and the new tokens are stored in them before anything attends.
#pragma once

#include "kernel.h"

namespace kvc_ort {

class PagedAttention final : public Kernel {
 public:
  explicit PagedAttention(const OrtKernelInfo* info) : Kernel(info), heads_(info) {}
  void compute(OrtKernelContext* run, const AttentionContext& attention) const override;

 private:
  HeadAttributes heads_;
};

}  // namespace kvc_ort
