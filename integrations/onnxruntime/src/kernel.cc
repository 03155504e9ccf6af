#include "kernel.h"

namespace kvc_ort {
namespace {

// An absent attribute is an error of ONNX Runtime.
bool was_found(OrtStatus* status) {
  if (status == nullptr) return true;
  ort->ReleaseStatus(status);
  return false;
}

float float_attribute(const OrtKernelInfo* info, const char* name) {
  float value = 0;
  return was_found(ort->KernelInfoGetAttribute_float(info, name, &value)) ? value : 0.0f;
}

}  // namespace

int64_t int_attribute(const OrtKernelInfo* info, const char* name, int64_t otherwise) {
  int64_t value = 0;
  return was_found(ort->KernelInfoGetAttribute_int64(info, name, &value)) ? value : otherwise;
}

Kernel::Kernel(const OrtKernelInfo* info) : OrtKernelImpl{} {
  ort_version_supported = ORT_API_VERSION;
  Compute = on_compute;
  Release = on_release;
  size_t size = 0;
  check(ort->KernelInfo_GetNodeName(info, nullptr, &size));
  name_.resize(size);
  check(ort->KernelInfo_GetNodeName(info, name_.data(), &size));
  name_.resize(size > 0 ? size - 1 : 0);  // without the NUL
}

OrtStatus* Kernel::on_compute(OrtKernelImpl* self, OrtKernelContext* run) noexcept {
  return guarded([&] {
    const Kernel* kernel = static_cast<Kernel*>(self);
    kernel->compute(run, *kernel->context_);
  });
}

HeadAttributes::HeadAttributes(const OrtKernelInfo* info)
    : q_heads(int_attribute(info, "num_heads", 0)),
      kv_heads(int_attribute(info, "kv_num_heads", q_heads)),
      scale(float_attribute(info, "scale")),
      softcap(float_attribute(info, "softcap")),
      window(int_attribute(info, "local_window_size", -1)),
      rotary(int_attribute(info, "do_rotary", 0) == 1),
      rotary_interleaved(int_attribute(info, "rotary_interleaved", 0) == 1) {
  if (q_heads > 0 && kv_heads > 0 && q_heads % kv_heads == 0) return;
  refuse("num_heads is " + std::to_string(q_heads) + " and kv_num_heads " + std::to_string(kv_heads) +
         ", but the first must be a multiple of the second, and both positive");
}

void set_heads(const HeadAttributes& heads, kvc_flash_attn_args* args) {
  args->flags = KVC_FLASH_ATTN_CAUSAL;
  if (heads.rotary_interleaved) args->flags |= KVC_FLASH_ATTN_ROTARY_INTERLEAVED;
  if (heads.window > 0) {
    args->flags |= KVC_FLASH_ATTN_WINDOW_LEFT;
    args->window_left = static_cast<int32_t>(heads.window - 1);
  }
  args->softmax_scale = heads.scale;
  args->softcap = heads.softcap;
}

RotaryTable::RotaryTable(const HeadAttributes& heads, const Operand& cos, const Operand& sin,
                         kvc_flash_attn_args* args) {
  if (!heads.rotary) return;
  if (!cos || !sin) refuse("do_rotary is 1, but cos_cache or sin_cache is missing");
  expect_rank(cos, 2, "cos_cache");
  expect_rank(sin, 2, "sin_cache");
  cos_.emplace(cos, std::initializer_list<int64_t>{cos.dim(0), cos.dim(1)},
               std::initializer_list<int64_t>{cos.dim(1), 1});
  sin_.emplace(sin, std::initializer_list<int64_t>{sin.dim(0), sin.dim(1)},
               std::initializer_list<int64_t>{sin.dim(1), 1});
  args->rotary_cos = cos_->get();
  args->rotary_sin = sin_->get();
}

}  // namespace kvc_ort
