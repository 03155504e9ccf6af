// DeviceStream: a stream of the device for work of the cache's own, such as copies for tiers. The host waits on it for
// a download, and no stream of the caller waits with it.
//
// Thread safety: work may be enqueued by one thread at a time. On devices whose calls return with their work done,
// there is no stream, and get() is null, as in every call to them.
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
