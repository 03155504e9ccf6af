// A StagedCall sends the index arrays and the plan of one call to an asynchronous device in one copy. They stay on the
// device until end(). For other devices nothing is sent, and the backend reads the host's arrays in place.
#pragma once

#include <span>
#include <utility>

#include "context/context.h"

namespace kvc {

template <class T>
kvc_backend_array array_of(const T* data, int64_t count) noexcept {
  return {data, count * static_cast<int64_t>(sizeof(T)), nullptr};
}

// Returns the address that calls of the backend use for an array.
template <class T>
const T* for_backend(const kvc_backend_array& array) noexcept {
  return static_cast<const T*>(array.device != nullptr ? array.device : array.data);
}

class StagedCall {
 public:
  StagedCall(const Context& context, void* stream) noexcept : context_(context), stream_(stream) {}
  ~StagedCall() { (void)end(); }
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // Must be called once. Sets the device addresses of the arrays and of the plan. plan: nullable; all other fields of
  // the plan must be set.
  Status begin(std::span<kvc_backend_array> arrays, kvc_backend_plan* plan) noexcept {
    if (context_.backend().begin_call == nullptr) return Status();
    kvc_error error = KVC_ERROR_INIT;
    return Status::from(
        context_.backend().begin_call(context_.device(), arrays.data(), static_cast<int32_t>(arrays.size()), plan,
                                      stream_, &step_, &error),
        error);
  }
  // Returns the step that calls of the backend must name; null if nothing was sent.
  const kvc_backend_step* step() const noexcept { return step_; }
  // Must be called after the last call of the backend.
  Status end() noexcept {
    if (step_ == nullptr) return Status();
    kvc_error error = KVC_ERROR_INIT;
    const kvc_backend_step* const step = std::exchange(step_, nullptr);
    return Status::from(context_.backend().end_call(context_.device(), step, stream_, &error), error);
  }

 private:
  const Context& context_;
  void* const stream_;
  const kvc_backend_step* step_ = nullptr;
};

}  // namespace kvc
