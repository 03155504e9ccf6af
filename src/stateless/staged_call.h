// StagedCall: the index arrays of one call, where a device whose work comes later than the call has them: sent in one
// copy, and there until the call's end. On other devices there is none, and the host's arrays are read where they are.
#pragma once

#include <span>
#include <utility>

#include "context/context.h"

namespace kvc {

template <class T>
kvc_backend_array array_of(const T* data, int64_t count) noexcept {
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  return {data, bytes, bytes};
}

class StagedCall {
 public:
  StagedCall(const Context& context, void* stream) noexcept : context_(context), stream_(stream) {}
  ~StagedCall() { (void)end(); }
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // Once. attend: nullable; complete but for its step, which it gets.
  Status begin(std::span<const kvc_backend_array> arrays, kvc_backend_attend* attend) noexcept {
    if (context_.backend().begin_call == nullptr) return Status();
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(
        context_.backend().begin_call(context_.device(), arrays.data(), static_cast<int32_t>(arrays.size()), attend,
                                      stream_, &step_, &error),
        error));
    if (attend == nullptr || step_ == nullptr) return Status();
    attend->step = step_;
    attend->planned = 1;
    return Status();
  }
  // What the call's functions of the backend name.
  const kvc_backend_step* step() const noexcept { return step_; }
  // After the last of them.
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
