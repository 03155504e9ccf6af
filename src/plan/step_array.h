// StepArray: an index array of a step on the host, with the address of its copy on an asynchronous device.
#pragma once

#include "base/lazy_array.h"

namespace kvc {

template <class T>
class StepArray : public LazyArray<T> {
 public:
  using LazyArray<T>::LazyArray;

  // The copy in the step's memory on the device. Null: the device reads the host's array, or the step does not use it.
  const T* device = nullptr;

  // The address that calls of the backend use.
  const T* for_backend() const noexcept { return device != nullptr ? device : this->data(); }
};

}  // namespace kvc
