#include "base/status.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>

namespace kvc {

Status Status::error(kvc_status code, const char* format, ...) noexcept {
  Status status;
  status.code_ = code;
  status.detail_.reset(new (std::nothrow) Detail);
  if (status.detail_) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(status.detail_->message, sizeof status.detail_->message, format, arguments);
    va_end(arguments);
  }
  return status;
}

Status Status::from(kvc_status status, const kvc_error& error) noexcept {
  if (status == KVC_OK) return Status();
  return Status::error(status, "%s", error.message)
      .at(error.index)
      .missing(error.required, error.available)
      .in_group(error.group);
}

const char* Status::message() const noexcept {
  if (ok()) return "";
  return detail_ ? detail_->message : kvc_status_name(code_);
}

Status&& Status::at(int64_t index) && noexcept {
  if (detail_) detail_->index = index;
  return std::move(*this);
}

Status&& Status::missing(int64_t required, int64_t available) && noexcept {
  if (detail_) {
    detail_->required = required;
    detail_->available = available;
  }
  return std::move(*this);
}

Status&& Status::in_group(int64_t group) && noexcept {
  if (detail_) detail_->group = group;
  return std::move(*this);
}

Status&& Status::in_layer(int64_t layer) && noexcept {
  if (!detail_) return std::move(*this);
  if (detail_->index < 0) detail_->index = layer;
  char name[32];
  const int length = std::snprintf(name, sizeof name, "layer %" PRId64, layer);
  const char* const found = std::strstr(detail_->message, name);
  if (found != nullptr && (found[length] < '0' || found[length] > '9')) return std::move(*this);
  char message[sizeof detail_->message];
  std::snprintf(message, sizeof message, "%s: %.*s", name, static_cast<int>(sizeof message) - length - 3,
                detail_->message);
  std::memcpy(detail_->message, message, sizeof message);
  return std::move(*this);
}

void Status::write_to(const char* function, kvc_error* error) const noexcept {
  error->code = code_;
  error->index = detail_ ? detail_->index : -1;
  error->required = detail_ ? detail_->required : 0;
  error->available = detail_ ? detail_->available : 0;
  error->group = detail_ ? detail_->group : -1;
  std::snprintf(error->message, sizeof error->message, "%s: %s", function, message());
  for (char& c : error->message) {  // text from a caller may be invalid UTF-8, or be cut within a character
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
}

}  // namespace kvc
