// Node: what a model says of one of its nodes, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "ort_api.h"

namespace kvc_ort {

class Node {
 public:
  explicit Node(const OrtNode* node);

  std::string op_type() const;
  std::string domain() const;
  std::string name() const;
  bool has_input(size_t index) const { return index < inputs_.size() && inputs_[index] != nullptr; }
  bool has_output(size_t index) const { return index < outputs_.size() && outputs_[index] != nullptr; }
  ONNXTensorElementDataType input_type(size_t index) const;  // UNDEFINED: no such input
  size_t input_rank(size_t index) const;                     // 0: no such input, or of unknown rank
  int64_t int_attribute(const char* name, int64_t otherwise) const;
  float float_attribute(const char* name, float otherwise) const;
  std::string string_attribute(const char* name) const;  // empty: absent

 private:
  const OrtOpAttr* attribute(const char* name) const;               // NULL: absent
  const OrtTensorTypeAndShapeInfo* input_info(size_t index) const;  // NULL: no such tensor

  const OrtNode* node_;
  std::vector<const OrtValueInfo*> inputs_, outputs_;  // NULL: an optional one that the node leaves out
};

// Why this provider leaves the node to ONNX Runtime. Empty: it computes the node, if the types fit a registered kernel.
std::string why_not(const Node& node);

}  // namespace kvc_ort
