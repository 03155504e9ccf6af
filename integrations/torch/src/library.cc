#include "library.h"

#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

namespace kvc_torch {
namespace {

struct Items {
  kvc_parallel_item_fn item;
  void* arg;
};

void run_items(int64_t begin, int64_t end, void* items) {
  const Items* all = static_cast<const Items*>(items);
  for (int64_t i = begin; i < end; i++) all->item(all->arg, i);
}

// PyTorch reports only what items throw, and these throw nothing.
void on_torch_threads(void*, int64_t n, kvc_parallel_item_fn item, void* arg) {
  Items items = {item, arg};
  torch_parallel_for(0, n, 1, run_items, &items);
}

kvc_context* make_context(DLDevice device, uint32_t threads) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.device_type = device.device_type;
  config.device_id = device.device_id;
  if (device.device_type == kDLCPU) {
    config.num_threads = static_cast<int32_t>(threads);
    config.parallel_for = on_torch_threads;
  }
  kvc_context* context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  check(library().context_create(&config, &context, &error), error);
  return context;
}

// A shim that libtorch_cuda.so defines. It is looked up when it is needed, because PyTorch for CPUs lacks that library.
void* current_cuda_stream(int32_t device) {
  using Shim = AOTITorchError (*)(int32_t, void**);
  static const auto shim = [] {
    void* cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return cuda ? reinterpret_cast<Shim>(dlsym(cuda, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  void* stream = nullptr;
  if (!shim || shim(device, &stream) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error("kvcache: PyTorch does not say which CUDA stream is current");
  return stream;
}

}  // namespace

const kvc_api& library() {
  static const kvc_api* const api = kvc_get_api(KVC_ABI_VERSION);
  if (!api) throw std::runtime_error("kvcache: the loaded libkvcache is of another version than these operators");
  return *api;
}

Place place_of(const Tensor& tensor) {
  static std::mutex mutex;
  static std::map<std::tuple<int32_t, int32_t, uint32_t>, kvc_context*> contexts;
  const DLDevice device = device_of(tensor);
  const bool on_host = device.device_type == kDLCPU;
  uint32_t threads = 1;
  if (on_host) TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&threads));
  void* const stream = on_host ? nullptr : current_cuda_stream(device.device_id);

  const std::lock_guard lock(mutex);
  kvc_context*& context = contexts[{device.device_type, device.device_id, threads}];
  if (!context) context = make_context(device, threads);
  return {context, stream};
}

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  const std::string message = error.message;
  throw std::runtime_error(message.starts_with("kvc_") ? "kvcache::" + message.substr(4) : message);
}

}  // namespace kvc_torch
