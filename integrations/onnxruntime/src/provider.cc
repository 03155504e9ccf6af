#include "provider.h"

#include <memory>
#include <vector>

#include "group_query_attention.h"
#include "multi_head_attention.h"
#include "node.h"
#include "paged_attention.h"

namespace kvc_ort {
namespace {

using Builder = std::unique_ptr<OrtKernelDefBuilder, void (*)(OrtKernelDefBuilder*)>;
using Definition = std::unique_ptr<OrtKernelDef, void (*)(OrtKernelDef*)>;

void allow(const Builder& builder, const char* name, const std::vector<ONNXTensorElementDataType>& types) {
  std::vector<const OrtDataType*> all;
  for (const ONNXTensorElementDataType type : types) {
    all.emplace_back();
    check(ort_ep->GetTensorDataType(type, &all.back()));
  }
  check(ort_ep->KernelDefBuilder_AddTypeConstraint(builder.get(), name, all.data(), all.size()));
}

}  // namespace

Provider::Provider(int32_t num_threads, const OrtLogger* logger) : OrtEp{}, attention_(num_threads), logger_(logger) {
  ort_version_supported = ORT_API_VERSION;
  GetName = on_name;
  GetCapability = on_capability;
  GetKernelRegistry = on_registry;
  const Types all = {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
                     ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16};
  const Types indices = {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32};
  check(ort_ep->CreateKernelRegistry(&registry_));
  try {
    add_kernels<GroupQueryAttention>("GroupQueryAttention", {{"T", all}, {"T_CACHE", all}, {"M", indices}});
    add_kernels<PagedAttention>("PagedAttention", {{"T", all}, {"T_CACHE", all}, {"S", indices}});
    add_kernels<MultiHeadAttention>("MultiHeadAttention", {{"T", {all[0], all[1]}}, {"M", indices}});
  } catch (...) {
    ort_ep->ReleaseKernelRegistry(registry_);
    throw;
  }
}

Provider::~Provider() { ort_ep->ReleaseKernelRegistry(registry_); }

template <class Operator>
void Provider::add_kernels(const char* op_type, std::initializer_list<std::pair<const char*, Types>> constraints) {
  OrtKernelDefBuilder* created = nullptr;
  check(ort_ep->CreateKernelDefBuilder(&created));
  const Builder builder(created, ort_ep->ReleaseKernelDefBuilder);
  check(ort_ep->KernelDefBuilder_SetOperatorType(builder.get(), op_type));
  check(ort_ep->KernelDefBuilder_SetDomain(builder.get(), "com.microsoft"));
  check(ort_ep->KernelDefBuilder_SetSinceVersion(builder.get(), 1, 1));
  check(ort_ep->KernelDefBuilder_SetExecutionProvider(builder.get(), kProviderName));
  for (const auto& [name, types] : constraints) allow(builder, name, types);
  OrtKernelDef* built = nullptr;
  check(ort_ep->KernelDefBuilder_Build(builder.get(), &built));
  const Definition definition(built, ort_ep->ReleaseKernelDef);
  check(ort_ep->KernelRegistry_AddKernel(registry_, definition.get(), create_kernel<Operator>, this));
}

template <class Operator>
OrtStatus* Provider::create_kernel(void* provider, const OrtKernelInfo* info, OrtKernelImpl** kernel) noexcept {
  return guarded([&] {
    auto created = std::make_unique<Operator>(info);
    created->set_context(&static_cast<Provider*>(provider)->attention_);
    *kernel = created.release();
  });
}

OrtStatus* Provider::on_registry(OrtEp* self, const OrtKernelRegistry** registry) noexcept {
  *registry = static_cast<Provider*>(self)->registry_;
  return nullptr;
}

OrtStatus* Provider::on_capability(OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
  return guarded([&] { static_cast<Provider*>(self)->claim(graph, info); });
}

void Provider::claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info) const {
  size_t count = 0;
  check(ort->Graph_GetNumNodes(graph, &count));
  std::vector<const OrtNode*> nodes(count);
  check(ort->Graph_GetNodes(graph, nodes.data(), count));
  for (const OrtNode* candidate : nodes) {
    const OrtKernelDef* kernel = nullptr;
    check(ort_ep->EpGraphSupportInfo_LookUpKernel(info, candidate, &kernel));
    if (kernel == nullptr) continue;
    const Node node(candidate);
    const std::string reason = why_not(node);
    if (reason.empty()) {
      check(ort_ep->EpGraphSupportInfo_AddSingleNode(info, candidate));
      continue;
    }
    const std::string text =
        "kvcache leaves node '" + node.name() + "' (" + node.op_type() + ") to ONNX Runtime: " + reason;
    check(ort->Logger_LogMessage(logger_, ORT_LOGGING_LEVEL_INFO, text.c_str(), __FILE__, __LINE__, __func__));
  }
}

}  // namespace kvc_ort
