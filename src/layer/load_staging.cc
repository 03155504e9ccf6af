#include "layer/load_staging.h"

#include <algorithm>

namespace kvc {

Status LoadStaging::create(std::shared_ptr<Context> context, int64_t bytes, std::unique_ptr<LoadStaging>* out) {
  constexpr int64_t kAllBytes = int64_t{16} << 20;
  std::unique_ptr<LoadStaging> staging(new LoadStaging(std::move(context)));
  bytes = std::max<int64_t>(1, bytes);
  KVC_TRY(staging->stream_.open(staging->context_));
  staging->buffers_.resize(static_cast<size_t>(std::clamp<int64_t>(kAllBytes / bytes, 2, 16)));
  for (Buffer& buffer : staging->buffers_) {
    KVC_TRY(DeviceMemory::allocate(staging->context_, bytes, DeviceMemory::kPageAlignment, false, &buffer.memory));
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(staging->context_->backend().event_create(staging->context_->device(), &buffer.read, &error),
                         error));
  }
  *out = std::move(staging);
  return Status();
}

LoadStaging::~LoadStaging() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.read != nullptr) context_->backend().event_destroy(context_->device(), buffer.read);
  }
}

Status LoadStaging::begin() noexcept {
  next_ = (next_ + 1) % buffers_.size();
  const Buffer& buffer = buffers_[next_];
  if (!buffer.recorded) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().event_wait(context_->device(), buffer.read, stream_.get(), &error), error);
}

Status LoadStaging::copy_in(int64_t offset, const uint8_t* from, int64_t bytes) noexcept {
  auto* const to = static_cast<uint8_t*>(buffers_[next_].memory->data()) + offset;
  return context_->copy_pinned(to, from, bytes, false, stream_.get());
}

Status LoadStaging::wait() noexcept { return context_->copy_pinned(nullptr, nullptr, 0, true, stream_.get()); }

Status LoadStaging::end(void* stream) noexcept {
  Buffer& buffer = buffers_[next_];
  kvc_error error = KVC_ERROR_INIT;
  KVC_TRY(Status::from(context_->backend().event_record(context_->device(), buffer.read, stream, &error), error));
  buffer.recorded = true;
  return Status();
}

}  // namespace kvc
