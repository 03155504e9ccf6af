// StepArray: an index array of a step on the host, with the address of its copy on an asynchronous device.
#pragma once

#include "base/lazy_array.h"

namespace kvc {

template <class T>
class StepArray : public LazyArray<T> {
 public:
  using LazyArray<T>::LazyArray;

  // Address of the copy in the step's memory on the device. Null if the device reads the host's array, or if the step
  // does not use the array.
  const T* device = nullptr;

  // The address that calls of the backend use.
  const T* for_backend() const noexcept { return device != nullptr ? device : this->data(); }
};

}  // namespace kvc
