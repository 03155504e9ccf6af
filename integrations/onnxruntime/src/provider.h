// Provider: the execution provider of one session. It takes the attention nodes that libkvcache computes (node.h), and
// leaves all others to ONNX Runtime.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "attention_context.h"
#include "ort_api.h"

namespace kvc_ort {

inline constexpr char kProviderName[] = "KvcacheExecutionProvider";

class Provider : public OrtEp {
 public:
  Provider(int32_t num_threads, const OrtLogger* logger);
  ~Provider();
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

 private:
  static const char* on_name(const OrtEp*) noexcept { return kProviderName; }
  static OrtStatus* on_capability(OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept;
  static OrtStatus* on_registry(OrtEp* self, const OrtKernelRegistry** registry) noexcept;

  using Types = std::vector<ONNXTensorElementDataType>;

  template <class Operator>
  static OrtStatus* create_kernel(void* provider, const OrtKernelInfo* info, OrtKernelImpl** kernel) noexcept;

  void claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info) const;
  template <class Operator>
  void add_kernels(const char* op_type, std::initializer_list<std::pair<const char*, Types>> constraints);

  AttentionContext attention_;
  const OrtLogger* logger_;
  OrtKernelRegistry* registry_ = nullptr;
};

}  // namespace kvc_ort
