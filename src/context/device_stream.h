// DeviceStream: a stream that a cache creates for its own work, such as copies for tiers. When the host waits for a
// download on this stream, it need not wait for work in the caller's streams.
//
// Thread safety: work may be enqueued by one thread at a time. A device that is not asynchronous has no streams. Then
// get() is null, and a call to such a device must be given null as its stream.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "context/context.h"

namespace kvc {

class DeviceStream {
 public:
  DeviceStream() = default;
  ~DeviceStream() {
    if (stream_ != nullptr) context_->backend().stream_destroy(context_->device(), stream_);
  }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // Call it once.
  Status open(std::shared_ptr<Context> context) {
    context_ = std::move(context);
    const kvc_backend& backend = context_->backend();
    if (backend.stream_create == nullptr) return Status();
    kvc_error error = KVC_ERROR_INIT;
    return Status::from(backend.stream_create(context_->device(), &stream_, &error), error);
  }
  void* get() const noexcept { return stream_; }

 private:
  std::shared_ptr<Context> context_;
  void* stream_ = nullptr;
};

}  // namespace kvc
