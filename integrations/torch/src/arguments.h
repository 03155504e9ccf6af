// Tensors: the tensor arguments of a call, as fields of the library's struct.
#pragma once

#include <kvcache.h>
#include <torch/csrc/stable/library.h>

#include <array>
#include <optional>
#include <utility>

#include "tensor.h"

namespace kvc_torch {

template <class T>
T take(StableIValue value) {
  return torch::stable::detail::to<T>(value);
}

template <class T>
StableIValue give(const T& value) {
  return torch::stable::detail::from(value);
}

// A tensor argument of a schema, with its field.
template <class Args>
struct Field {
  enum Kind { kRequired, kOptional };
  const char* name;
  const DLTensor* Args::* member;
  Kind kind = kOptional;
  bool written = false;
};

template <class Args, size_t kCount>
class Tensors {
 public:
  // Takes the first arguments of the stack, which are `fields`.
  Tensors(const Field<Args> (&fields)[kCount], const StableIValue* stack) : fields_(fields) {
    for (size_t i = 0; i < kCount; i++) {
      if (fields[i].kind == Field<Args>::kRequired) {
        tensors_[i] = take<Tensor>(stack[i]);
      } else {
        tensors_[i] = take<std::optional<Tensor>>(stack[i]);
      }
    }
  }
  // Sets the fields of the tensors that were given. They stay valid as long as this object.
  void borrow(Args* args) {
    for (size_t i = 0; i < kCount; i++) {
      if (!tensors_[i]) continue;
      views_[i] = view(*tensors_[i], fields_[i].name, fields_[i].written);
      args->*fields_[i].member = &views_[i];
    }
  }
  const std::optional<Tensor>& operator[](size_t i) const { return tensors_[i]; }

 private:
  const Field<Args> (&fields_)[kCount];
  std::array<std::optional<Tensor>, kCount> tensors_;
  std::array<DLTensor, kCount> views_;
};

}  // namespace kvc_torch
