// Context: one device of one backend, its threads and the host's log callback.
// DeviceMemory: a block of the device's memory.
// PinnedMemory: a block of host memory that an asynchronous device copies while the host runs on.
//
// Thread safety: several threads may use a Context, a DeviceMemory or a PinnedMemory at the same time. A Context does
// not change after create, except for its pool, which is thread-safe. Ownership: a Context has many owners: handles,
// caches, and objects that use the device, such as a DeviceMemory. The thread that releases the last of them closes the
// device, and joins the threads of the pool. Invariants
//   1. device() is open from create to the destructor, and is closed before the pool is destroyed.
//   2. A DeviceMemory or PinnedMemory keeps its Context, so memory is released to an open device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "context/thread_pool.h"
#include "kvcache.h"
#include "kvcache_backend.h"

namespace kvc {

class Context {
 public:
  // Opens the device. `config` is borrowed, and has every field of this library's version. Errors: INVALID_ARGUMENT
  // (num_threads or device_id), UNSUPPORTED (unknown flags, reserved is not 0, or simd; for simd, the message lists the
  // targets), DEVICE_UNAVAILABLE, OUT_OF_MEMORY, or a backend error.
  static Status create(const kvc_context_config& config, std::shared_ptr<Context>* out) noexcept;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const kvc_backend& backend() const noexcept { return *backend_; }
  kvc_backend_device* device() const noexcept { return device_; }
  DLDevice dl_device() const noexcept { return dl_device_; }
  int num_threads() const noexcept { return pool_.num_threads(); }  // largest number of threads that run one job
  // The number of work items that run at the same time: the number that the backend gives, or else one for each thread.
  int parallel_items(const kvc_backend_tiling& tiling) const noexcept {
    return tiling.parallel_items > 0 ? tiling.parallel_items : num_threads();
  }
  int num_workers() const noexcept { return pool_.num_workers(); }  // worker indices, each with a scratch
  ThreadPool& pool() noexcept { return pool_; }
  Status check_stream(void* stream) const;  // fails with DEVICE if the device is the CPU and `stream` is not null
  // Whether the host and the device read and write the same memory.
  bool is_host() const noexcept { return dl_device_.device_type == kDLCPU; }
  // Copy host memory to device memory. The caller may change the source as soon as the call returns. upload copies in
  // the order of the stream. upload_now has finished the copy when it returns.
  Status upload(void* target, const void* source, int64_t bytes, void* stream) const noexcept;
  Status upload_now(void* target, const void* source, int64_t bytes) const noexcept;
  // Copies device memory to host memory, after the work that was enqueued in the stream before. The copy is finished
  // when the call returns.
  Status download(void* target, const void* source, int64_t bytes, void* stream) const noexcept;

  // Copies between device memory and a PinnedMemory, in the order of the stream. The host must not change or free the
  // PinnedMemory before the copy is done. wait: waits for all work of the stream; then bytes may be 0. The device must
  // be asynchronous.
  Status copy_pinned(void* target, const void* source, int64_t bytes, bool wait, void* stream) const noexcept;

  // Returns one JSON object: device, device_id, threads, host_parallel_for, simd, simd_available. May throw
  // std::bad_alloc.
  std::string describe() const;

  // Returns EARLIER_CALL if the device has found a bad value in an array of an earlier call, since the last report. In
  // a context with KVC_CONTEXT_VALIDATE, a check reads a few words of host memory. In other contexts, it does nothing.
  Status check_earlier() const noexcept;

  // Sends a KVC_LOG_* line to the host, on the calling thread. The caller must hold no lock. Lines are cut at 1023
  // bytes.
  [[gnu::format(printf, 3, 4)]] void log(int level, const char* format, ...) const noexcept;

 private:
  Context(const kvc_context_config& config, const kvc_backend& backend, int num_threads);
  Status open(const char* simd);
  std::vector<const char*> implementations() const;

  const kvc_backend* const backend_;
  kvc_backend_device* device_ = nullptr;
  const DLDevice dl_device_;
  const bool host_parallel_for_;
  const bool validates_;
  const kvc_log_fn log_;
  void* const log_user_;
  ThreadPool pool_;
  const kvc_backend_host host_;  // how the backend calls pool_
};

class DeviceMemory {
 public:
  static constexpr int64_t kPageAlignment = 4096;  // for buffers that need no other alignment

  // Allocates zeroed memory of `bytes` >= 1. alignment: a power of two. huge: try to use huge pages. Errors:
  // OUT_OF_MEMORY, or a backend error.
  static Status allocate(std::shared_ptr<Context> context, int64_t bytes, int64_t alignment, bool huge,
                         std::shared_ptr<DeviceMemory>* out) noexcept;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const noexcept { return data_; }  // [bytes], memory of the context's device
  int64_t bytes() const noexcept { return bytes_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }

 private:
  DeviceMemory(std::shared_ptr<Context> context, int64_t bytes) noexcept;

  const std::shared_ptr<Context> context_;
  void* data_ = nullptr;
  const int64_t bytes_;
};

class PinnedMemory {
 public:
  // Allocates memory of `bytes` >= 1, whose contents may be anything. Errors: UNSUPPORTED (the device is not
  // asynchronous), OUT_OF_MEMORY, or a backend error.
  static Status allocate(std::shared_ptr<Context> context, int64_t bytes, std::unique_ptr<PinnedMemory>* out) noexcept;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void* data() const noexcept { return data_; }

 private:
  explicit PinnedMemory(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}

  const std::shared_ptr<Context> context_;
  void* data_ = nullptr;
};

}  // namespace kvc
