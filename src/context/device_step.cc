#include "context/device_step.h"

namespace kvc {

Status NodeMirror::create(std::shared_ptr<Context> context, const int32_t* nodes, int64_t num_nodes, NodeMirror* out) {
  const kvc_backend& backend = context->backend();
  if (backend.mirror_create == nullptr || num_nodes == 0) return Status();
  out->context_ = std::move(context);
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(
      backend.mirror_create(out->context_->device(), nodes, num_nodes, &out->mirror_, &out->nodes_, &error), error);
}

NodeMirror::NodeMirror(NodeMirror&& other) noexcept
    : context_(std::move(other.context_)),
      mirror_(std::exchange(other.mirror_, nullptr)),
      nodes_(std::exchange(other.nodes_, nullptr)) {}

NodeMirror::~NodeMirror() {
  if (mirror_ != nullptr) context_->backend().mirror_destroy(context_->device(), mirror_);
}

Status DeviceStep::create(std::shared_ptr<Context> context, const kvc_backend_step_limits& limits, DeviceStep* out) {
  const kvc_backend& backend = context->backend();
  if (backend.step_create == nullptr) return Status();
  out->context_ = std::move(context);
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend.step_create(out->context_->device(), &limits, &out->step_, &out->arrays_, &error), error);
}

DeviceStep::~DeviceStep() {
  if (step_ != nullptr) context_->backend().step_destroy(context_->device(), step_);
}

Status DeviceStep::stage(const kvc_backend_stage& args, void* stream) {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().stage(context_->device(), step_, &args, stream, &error), error);
}

Status DeviceStep::stage_plan(kvc_backend_plan* plan, void* stream) {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().stage_plan(context_->device(), step_, plan, stream, &error), error);
}

Status DeviceStep::unstage(void* stream) {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().unstage(context_->device(), step_, stream, &error), error);
}

}  // namespace kvc
