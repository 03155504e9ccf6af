#include "node.h"

namespace kvc_ort {
namespace {

// The default of MultiHeadAttention's mask_filter_value. It hides a key completely. A larger number may not.
constexpr float kMaskFilterValue = -10000.0f;

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
  std::vector<Index> inputs;            // those that must be absent
  std::vector<Index> outputs;           // likewise
  std::vector<Index> needed;            // outputs that must be there
  std::string (*why_not)(const Node&);  // the rest; empty: nothing
};

// With caches at the inputs `first` and `first + 1`.
std::string why_not_caches(const Node& node, size_t first) {
  for (const size_t cache : {first, first + 1}) {
    if (node.has_input(cache) && node.input_type(cache) != node.input_type(0))
      return "a cache of another type than query";
  }
  if (node.has_input(first) != node.has_input(first + 1)) return "only one of the caches of keys and values";
  return {};
}

std::string why_not_grouped(const Node& node) { return why_not_caches(node, 3); }

std::string why_not_multi_head(const Node& node) {
  if (node.has_output(1) != node.has_output(2)) return "only one of present_key and present_value";
  if (node.has_input(6) && !node.has_output(1)) return "past_key without present_key";
  if (node.has_input(4)) {
    const size_t rank = node.input_rank(4);
    if (rank != 1 && rank != 2) return "key_padding_mask has " + std::to_string(rank) + " dimensions";
    if (node.int_attribute("unidirectional", 0) == 1) return "key_padding_mask of a unidirectional node";
    if (const float value = node.float_attribute("mask_filter_value", kMaskFilterValue); value > kMaskFilterValue)
      return "attribute mask_filter_value is " + std::to_string(value);
  }
  return why_not_caches(node, 6);
}

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
     {{1, "present_key"}, {2, "present_value"}},
     why_not_grouped},
    {"PagedAttention",
     {{"is_causal", 1}, {"rotary_offset", 0}, {"v_head_size", 0}},
     {"kv_cache_layout", "k_cache_dtype", "v_cache_dtype", "k_quant_type", "v_quant_type"},
     {{10, "slot_mapping"}, {12, "q_norm_weight"}, {13, "k_norm_weight"}, {14, "k_scale"}, {15, "v_scale"}},
     {},
     {},
     why_not_grouped},
    {"MultiHeadAttention",
     {},
     {},
     {{5, "attention_bias"}, {8, "past_sequence_length"}, {9, "cache_indirection"}},
     {{3, "qk"}},
     {},
     why_not_multi_head},
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

const OrtTensorTypeAndShapeInfo* Node::input_info(size_t index) const {
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  if (!has_input(index)) return tensor;
  const OrtTypeInfo* info = nullptr;
  check(ort->GetValueInfoTypeInfo(inputs_[index], &info));
  check(ort->CastTypeInfoToTensorInfo(info, &tensor));
  return tensor;
}

ONNXTensorElementDataType Node::input_type(size_t index) const {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  const OrtTensorTypeAndShapeInfo* tensor = input_info(index);
  if (tensor != nullptr) check(ort->GetTensorElementType(tensor, &type));
  return type;
}

size_t Node::input_rank(size_t index) const {
  size_t rank = 0;
  const OrtTensorTypeAndShapeInfo* tensor = input_info(index);
  if (tensor != nullptr) check(ort->GetDimensionsCount(tensor, &rank));
  return rank;
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

float Node::float_attribute(const char* name, float otherwise) const {
  const OrtOpAttr* found = attribute(name);
  float value = otherwise;
  size_t used = 0;
  if (found != nullptr) check(ort->ReadOpAttr(found, ORT_OP_ATTR_FLOAT, &value, sizeof(value), &used));
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
  return limit->why_not(node);
}

}  // namespace kvc_ort
