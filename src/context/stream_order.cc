#include "context/stream_order.h"

namespace kvc {

Status StreamOrder::create(std::shared_ptr<Context> context, StreamOrder* out) {
  out->context_ = std::move(context);
  const kvc_backend& backend = out->context_->backend();
  if (backend.event_create == nullptr) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend.event_create(out->context_->device(), &out->event_, &error), error);
}

StreamOrder::~StreamOrder() {
  if (event_ != nullptr) context_->backend().event_destroy(context_->device(), event_);
}

Status StreamOrder::check_stream(void* stream) const {
  if (event_ == nullptr) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().check_stream(context_->device(), stream, &error), error);
}

Status StreamOrder::enter(void* stream) {
  if (event_ == nullptr || !recorded_) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().event_wait(context_->device(), event_, stream, &error), error);
}

Status StreamOrder::leave(void* stream) {
  if (event_ == nullptr) return Status();
  // Since this call has called enter, calls on other streams may have called leave. The event must follow their work
  // too, so the stream waits again.
  Status status = enter(stream);
  if (status.ok()) {
    kvc_error error = KVC_ERROR_INIT;
    status = Status::from(context_->backend().event_record(context_->device(), event_, stream, &error), error);
  }
  if (!status.ok()) {
    lose();
    return status;
  }
  recorded_ = true;
  return status;
}

Status StreamOrder::check() const {
  if (!lost_.load(std::memory_order_relaxed)) return Status();
  return Status::error(
      KVC_ERROR_DEVICE_FAILED,
      "the device failed in an earlier call, so the contents of the cache are not known any more: destroy the cache");
}

}  // namespace kvc
