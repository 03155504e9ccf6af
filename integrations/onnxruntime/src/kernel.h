// Kernel: one node of a model that this provider computes. ONNX Runtime creates and releases it through the functions
// that it registers. Its subclasses read the node's attributes once, and compute with the tensors of a run.
#pragma once

#include <optional>
#include <string>

#include "attention_context.h"
#include "ort_api.h"
#include "tensor.h"

namespace kvc_ort {

class Kernel : public OrtKernelImpl {
 public:
  explicit Kernel(const OrtKernelInfo* info);
  virtual ~Kernel() = default;

  // Computes the node. Threads: any, as runs of a session may be concurrent.
  virtual void compute(OrtKernelContext* run, const AttentionContext& attention) const = 0;

  const std::string& name() const { return name_; }
  void set_context(const AttentionContext* context) { context_ = context; }

 private:
  static OrtStatus* on_compute(OrtKernelImpl* self, OrtKernelContext* run) noexcept;
  static void on_release(OrtKernelImpl* self) noexcept { delete static_cast<Kernel*>(self); }

  std::string name_;
  const AttentionContext* context_ = nullptr;  // of the provider, which outlives the kernels of its session
};

// The attributes that the three operators share.
struct HeadAttributes {
  explicit HeadAttributes(const OrtKernelInfo* info);

  int64_t q_heads;
  int64_t kv_heads;  // q_heads where the operator has no kv_num_heads
  double scale;      // 0: from the head's size
  double softcap;    // 0: none
  int64_t window;    // keys that a query sees, its own included; -1: all before it
  bool rotary;
  bool rotary_interleaved;
};

int64_t int_attribute(const OrtKernelInfo* info, const char* name, int64_t otherwise);

// What does not differ between the operators: heads, scale, soft cap, window. Causal.
void set_heads(const HeadAttributes& heads, kvc_flash_attn_args* args);

// The rotary tables of a call: cos_cache and sin_cache are [positions, rotated dims / 2]. `args` borrows them.
class RotaryTable {
 public:
  RotaryTable(const HeadAttributes& heads, const Operand& cos, const Operand& sin, kvc_flash_attn_args* args);

 private:
  std::optional<View> cos_, sin_;
};

}  // namespace kvc_ort
