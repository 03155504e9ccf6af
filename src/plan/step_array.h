// StepArray: an index array of a step on the host, and where an asynchronous device has its copy.
#pragma once

#include "base/lazy_array.h"

namespace kvc {

template <class T>
class StepArray : public LazyArray<T> {
 public:
  using LazyArray<T>::LazyArray;

  // The copy in the memory of the step; null: the device reads the host's array, or the step does not use it.
  const T* device = nullptr;

  // Where calls of the backend read it.
  const T* for_backend() const noexcept { return device != nullptr ? device : this->data(); }
};

}  // namespace kvc
