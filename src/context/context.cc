#include "context/context.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <new>
#include <utility>

#include "context/backend_loader.h"
#include "context/fault_text.h"
#include "system/cpu_count.h"

namespace kvc {
namespace {

constexpr int kMaxThreads = 1024;

void run_on_pool(void* self, int64_t n, int32_t effort, void (*item)(void* arg, int64_t index, int32_t worker),
                 void* arg) {
  static_cast<ThreadPool*>(self)->run(n, effort, item, arg);
}

Status out_of_memory() { return Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for the context"); }

}  // namespace

Context::Context(const kvc_context_config& config, const kvc_backend& backend, int num_threads)
    : backend_(&backend),
      dl_device_{static_cast<DLDeviceType>(backend.device_type), config.device_id},
      host_parallel_for_(config.parallel_for != nullptr),
      validates_((config.flags & KVC_CONTEXT_VALIDATE) != 0),
      log_(config.log),
      log_user_(config.log_user),
      pool_(num_threads, config.parallel_for, config.parallel_for_user),
      host_{&pool_, pool_.num_workers(), config.parallel_for ? 1 : num_threads, run_on_pool} {}

Context::~Context() {
  if (device_) backend_->close(device_);
}

Status Context::create(const kvc_context_config& config, std::shared_ptr<Context>* out) noexcept try {
  const int32_t device_type = config.device_type == 0 ? kDLCPU : config.device_type;
  if (config.num_threads < 0 || config.num_threads > kMaxThreads) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_threads is %d, not 0..%d", config.num_threads, kMaxThreads);
  }
  if ((config.flags & ~uint32_t{KVC_CONTEXT_VALIDATE}) != 0 || config.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x and reserved %u have unknown bits", config.flags,
                         config.reserved);
  }
  if (config.device_id < 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "device_id is %d", config.device_id);
  if (device_type == kDLCPU && config.device_id != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "device_id is %d; the CPU is device 0", config.device_id);
  }
  const kvc_backend* backend = nullptr;
  KVC_TRY(load_backend(device_type, config.backend, &backend));
  const int num_threads = config.num_threads ? config.num_threads : std::min(default_num_threads(), kMaxThreads);

  const std::shared_ptr<Context> context(new Context(config, *backend, num_threads));
  KVC_TRY(context->open(config.simd));
  context->log(KVC_LOG_INFO, "context: %s:%d, simd %s, %d threads%s", backend->name, config.device_id,
               backend->implementation(context->device_), num_threads, config.parallel_for ? " of the host" : "");
  *out = context;
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Context::open(const char* simd) {
  kvc_backend_open_args args{&host_, dl_device_.device_id, validates_ ? 1u : 0u, simd};
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = backend_->open(&args, &device_, &error);
  if (status == KVC_OK) return Status();
  device_ = nullptr;
  if (status != KVC_ERROR_UNSUPPORTED || !simd) return Status::from(status, error);

  // The name is unknown, or its target cannot run here. The device is opened again without a name, so that the message
  // can list the valid names.
  args.simd = nullptr;
  kvc_error second_error = KVC_ERROR_INIT;
  if (backend_->open(&args, &device_, &second_error) != KVC_OK) {
    device_ = nullptr;
    return Status::from(status, error);
  }
  std::string names;
  for (const char* name : implementations()) names.append(names.empty() ? "" : ", ").append(name);
  return Status::error(KVC_ERROR_UNSUPPORTED, "simd \"%.64s\" is unknown or cannot run on this machine; it can run: %s",
                       simd, names.c_str());
}

std::vector<const char*> Context::implementations() const {
  std::vector<const char*> names(64);
  const int32_t count = backend_->implementations(device_, names.data(), static_cast<int32_t>(names.size()));
  names.resize(std::clamp<std::size_t>(count, 0, names.size()));
  return names;
}

Status Context::check_stream(void* stream) const {
  if (stream == nullptr || dl_device_.device_type != kDLCPU) return Status();
  return Status::error(KVC_ERROR_DEVICE, "stream %p is not NULL, and the CPU has no streams", stream);
}

Status Context::upload(void* target, const void* source, int64_t bytes, void* stream) const noexcept {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend_->upload(device_, target, source, bytes, 0, stream, &error), error);
}

Status Context::upload_now(void* target, const void* source, int64_t bytes) const noexcept {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend_->upload(device_, target, source, bytes, 1, nullptr, &error), error);
}

Status Context::download(void* target, const void* source, int64_t bytes, void* stream) const noexcept {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend_->download(device_, target, source, bytes, stream, &error), error);
}

Status Context::copy_pinned(void* target, const void* source, int64_t bytes, bool wait, void* stream) const noexcept {
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(backend_->copy_pinned(device_, target, source, bytes, wait ? 1 : 0, stream, &error), error);
}

Status Context::check_earlier() const noexcept {
  if (!validates_ || backend_->take_fault == nullptr) return Status();
  kvc_backend_fault fault = {};
  return backend_->take_fault(device_, &fault) != 0 ? status_of_fault(fault) : Status();
}

std::string Context::describe() const {
  std::string available;
  for (const char* name : implementations()) available.append(available.empty() ? "\"" : ", \"").append(name) += '"';
  std::string text = "{\"device\": \"";
  text.append(backend_->name).append("\", \"device_id\": ").append(std::to_string(dl_device_.device_id));
  text.append(", \"threads\": ").append(std::to_string(num_threads()));
  text.append(", \"host_parallel_for\": ").append(host_parallel_for_ ? "true" : "false");
  text.append(", \"simd\": \"").append(backend_->implementation(device_));
  return text.append("\", \"simd_available\": [").append(available).append("]}");
}

void Context::log(int level, const char* format, ...) const noexcept {
  if (!log_) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  log_(log_user_, level, message);
}

DeviceMemory::DeviceMemory(std::shared_ptr<Context> context, int64_t bytes) noexcept
    : context_(std::move(context)), bytes_(bytes) {}

DeviceMemory::~DeviceMemory() {
  if (data_) context_->backend().release(context_->device(), data_, bytes_);
}

Status DeviceMemory::allocate(std::shared_ptr<Context> context, int64_t bytes, int64_t alignment, bool huge,
                              std::shared_ptr<DeviceMemory>* out) noexcept try {
  const std::shared_ptr<DeviceMemory> memory(new DeviceMemory(std::move(context), bytes));
  const Context& owner = *memory->context_;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = owner.backend().allocate(owner.device(), bytes, alignment, huge, &memory->data_, &error);
  if (status != KVC_OK) {
    memory->data_ = nullptr;
    return Status::from(status, error);
  }
  *out = memory;
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) context_->backend().unpin(context_->device(), data_);
}

Status PinnedMemory::allocate(std::shared_ptr<Context> context, int64_t bytes,
                              std::unique_ptr<PinnedMemory>* out) noexcept try {
  if (context->backend().pin == nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the device \"%s\" has no pinned memory", context->backend().name);
  }
  std::unique_ptr<PinnedMemory> memory(new PinnedMemory(std::move(context)));
  const Context& owner = *memory->context_;
  kvc_error error = KVC_ERROR_INIT;
  void* data = nullptr;
  KVC_TRY(Status::from(owner.backend().pin(owner.device(), bytes, &data, &error), error));
  memory->data_ = data;
  *out = std::move(memory);
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace kvc
