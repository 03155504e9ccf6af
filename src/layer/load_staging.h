// LoadStaging: buffers on an asynchronous device, for pages that are loaded from pinned memory.
//
//   begin; copy_in of each part; wait; then a kernel that reads data() on another stream; end(that stream)
//
// The copies run on a stream of their own. So they do not wait for the steps that are in flight, although the kernel
// that writes a page waits for them. There are several buffers, because the kernel of an earlier page may still wait.
//
// Thread safety: one call at a time, and no lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "context/device_stream.h"

namespace kvc {

class LoadStaging {
 public:
  // bytes: size of a buffer. Throws std::bad_alloc.
  static Status create(std::shared_ptr<Context> context, int64_t bytes, std::unique_ptr<LoadStaging>* out);
  ~LoadStaging();
  LoadStaging(const LoadStaging&) = delete;
  LoadStaging& operator=(const LoadStaging&) = delete;

  // Takes the next buffer. Copies into it wait, on the device, for the kernel that last read it.
  Status begin() noexcept;
  // Enqueues a copy of pinned memory into the buffer.
  Status copy_in(int64_t offset, const uint8_t* from, int64_t bytes) noexcept;
  // Waits for the copies.
  Status wait() noexcept;
  const uint8_t* data() const noexcept { return static_cast<const uint8_t*>(buffers_[next_].memory->data()); }
  // Call it after the kernel was enqueued on `stream`.
  Status end(void* stream) noexcept;

 private:
  struct Buffer {
    std::shared_ptr<DeviceMemory> memory;
    kvc_backend_event* read = nullptr;  // the end of the kernel that last read the buffer
    bool recorded = false;
  };

  explicit LoadStaging(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  const std::shared_ptr<Context> context_;
  DeviceStream stream_;
  std::vector<Buffer> buffers_;
  size_t next_ = 0;
};

}  // namespace kvc
