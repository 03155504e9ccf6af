#include "node.h"

namespace kvc_ort {
namespace {

// What a node may not have, so that this provider computes it.
struct Limit {
  const char* op_type;
  struct Int {
    const char* name;
    int64_t only;  // the attribute's default, and the only value that is computed
  };
  std::vector<Int> ints;
  std::vector<const char*> strings;  // attributes that must be absent, "" or `otherwise`
  struct Index {
    size_t index;
    const char* name;
  };
  std::vector<Index> inputs;   // those that must be absent
  std::vector<Index> outputs;  // likewise
  std::vector<Index> needed;   // outputs that must be there
};

const Limit kLimits[] = {
    {"GroupQueryAttention",
     {{"causal", 1}, {"qk_output", 0}, {"sliding_window_cache", 0}, {"kv_cache_bit_width", 0}},
     {"k_quant_type", "v_quant_type"},
     {{9, "position_ids"},
      {10, "attention_bias"},
      {12, "k_scale"},
      {13, "v_scale"},
      {14, "q_norm_weight"},
      {15, "k_norm_weight"},
      {16, "query_seqlens"}},
     {{3, "output_qk"}},
     {{1, "present_key"}, {2, "present_value"}}},
    {"PagedAttention",
     {{"is_causal", 1}, {"rotary_offset", 0}, {"v_head_size", 0}},
     {"kv_cache_layout", "k_cache_dtype", "v_cache_dtype", "k_quant_type", "v_quant_type"},
     {{10, "slot_mapping"}, {12, "q_norm_weight"}, {13, "k_norm_weight"}, {14, "k_scale"}, {15, "v_scale"}},
     {},
     {}},
};

}  // namespace

Node::Node(const OrtNode* node) : node_(node) {
  size_t inputs = 0, outputs = 0;
  check(ort->Node_GetNumInputs(node, &inputs));
  check(ort->Node_GetNumOutputs(node, &outputs));
  inputs_.resize(inputs);
  outputs_.resize(outputs);
  check(ort->Node_GetInputs(node, inputs_.data(), inputs));
  check(ort->Node_GetOutputs(node, outputs_.data(), outputs));
}

std::string Node::op_type() const {
  const char* text = nullptr;
  check(ort->Node_GetOperatorType(node_, &text));
  return text;
}

std::string Node::domain() const {
  const char* text = nullptr;
  check(ort->Node_GetDomain(node_, &text));
  return text;
}

std::string Node::name() const {
  const char* text = nullptr;
  check(ort->Node_GetName(node_, &text));
  return text;
}

ONNXTensorElementDataType Node::input_type(size_t index) const {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  if (!has_input(index)) return type;
  const OrtTypeInfo* info = nullptr;
  check(ort->GetValueInfoTypeInfo(inputs_[index], &info));
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  check(ort->CastTypeInfoToTensorInfo(info, &tensor));
  if (tensor != nullptr) check(ort->GetTensorElementType(tensor, &type));
  return type;
}

const OrtOpAttr* Node::attribute(const char* name) const {
  const OrtOpAttr* attribute = nullptr;
  OrtStatus* status = ort->Node_GetAttributeByName(node_, name, &attribute);
  if (status == nullptr) return attribute;
  ort->ReleaseStatus(status);
  return nullptr;
}

int64_t Node::int_attribute(const char* name, int64_t otherwise) const {
  const OrtOpAttr* found = attribute(name);
  int64_t value = otherwise;
  size_t used = 0;
  if (found != nullptr) check(ort->ReadOpAttr(found, ORT_OP_ATTR_INT, &value, sizeof(value), &used));
  return value;
}

std::string Node::string_attribute(const char* name) const {
  const OrtOpAttr* found = attribute(name);
  if (found == nullptr) return {};
  char text[64] = {};
  size_t used = 0;
  check(ort->ReadOpAttr(found, ORT_OP_ATTR_STRING, text, sizeof(text) - 1, &used));
  return text;
}

std::string why_not(const Node& node) {
  const Limit* limit = nullptr;
  if (node.domain() == "com.microsoft") {
    for (const Limit& of_op : kLimits) {
      if (node.op_type() == of_op.op_type) limit = &of_op;
    }
  }
  if (limit == nullptr) return "another operator";
  for (const auto& [name, only] : limit->ints) {
    const int64_t value = node.int_attribute(name, only);
    if (value != only) return std::string("attribute ") + name + " is " + std::to_string(value);
  }
  for (const char* name : limit->strings) {
    const std::string value = node.string_attribute(name);
    if (!value.empty() && value != "NONE" && value != "SEPARATE")
      return std::string("attribute ") + name + " is " + value;
  }
  for (const auto& [index, name] : limit->inputs) {
    if (node.has_input(index)) return std::string("input ") + name;
  }
  for (const auto& [index, name] : limit->outputs) {
    if (node.has_output(index)) return std::string("output ") + name;
  }
  for (const auto& [index, name] : limit->needed) {
    if (!node.has_output(index)) return std::string("no output ") + name;
  }
  for (const size_t cache : {3, 4}) {
    if (node.has_input(cache) && node.input_type(cache) != node.input_type(0))
      return "a cache of another type than query";
  }
  if (node.has_input(3) != node.has_input(4)) return "only one of the caches of keys and values";
  return {};
}

}  // namespace kvc_ort
