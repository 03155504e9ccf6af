#include "attention_context.h"

#include <algorithm>
#include <thread>

namespace kvc_ort {
namespace {

// The kernel call that this thread is in. A context serves many calls, but ONNX Runtime's threads belong to one call.
thread_local const OrtKernelContext* current_run = nullptr;

struct Items {
  kvc_parallel_item_fn item;
  void* arg;
};

void run_item(void* items, size_t index) {
  const Items* all = static_cast<const Items*>(items);
  all->item(all->arg, static_cast<int64_t>(index));
}

void on_session_threads(void*, int64_t n, kvc_parallel_item_fn item, void* arg) {
  Items items = {item, arg};
  OrtStatus* status = n > 1 && current_run != nullptr
                          ? ort->KernelContext_ParallelFor(current_run, run_item, static_cast<size_t>(n), 0, &items)
                          : ort->CreateStatus(ORT_FAIL, "no threads");
  if (status == nullptr) return;
  ort->ReleaseStatus(status);
  for (int64_t i = 0; i < n; i++) item(arg, i);
}

void call_function(void* function, int64_t index) {
  (*static_cast<const std::function<void(int64_t)>*>(function))(index);
}

[[noreturn]] void fail(kvc_status status, const std::string& message) {
  throw Failure{status == KVC_ERROR_OUT_OF_MEMORY ? ORT_FAIL : ORT_INVALID_ARGUMENT, message};
}

}  // namespace

AttentionContext::AttentionContext(int32_t num_threads)
    : num_threads_(num_threads > 0 ? num_threads : std::max(std::thread::hardware_concurrency(), 1u)) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = num_threads;
  config.parallel_for = on_session_threads;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_context_create(&config, &context_, &error);
  if (status != KVC_OK) fail(status, std::string("libkvcache: ") + error.message);
}

AttentionContext::~AttentionContext() { kvc_context_destroy(context_); }

void AttentionContext::attend(const OrtKernelContext* run, const kvc_flash_attn_args& args,
                              const std::string& node) const {
  kvc_error error = KVC_ERROR_INIT;
  current_run = run;
  const kvc_status status = kvc_flash_attn_with_kvcache(context_, &args, nullptr, &error);
  current_run = nullptr;
  if (status != KVC_OK) fail(status, "libkvcache, node '" + node + "': " + error.message);
}

void parallel_for(const OrtKernelContext* run, int64_t n, const std::function<void(int64_t)>& item) {
  current_run = run;
  on_session_threads(nullptr, n, call_function, const_cast<void*>(static_cast<const void*>(&item)));
  current_run = nullptr;
}

}  // namespace kvc_ort
