// AttentionContext: the libkvcache context of a session. Attention runs on the session's intra-op threads, so no second
// pool competes with them.
//
// Thread safety: any; concurrent runs of a session may call it at once.
#pragma once

#include <kvcache.h>

#include <functional>

#include "ort_api.h"

namespace kvc_ort {

class AttentionContext {
 public:
  explicit AttentionContext(int32_t num_threads);  // 0: the CPUs of the process
  ~AttentionContext();
  AttentionContext(const AttentionContext&) = delete;
  AttentionContext& operator=(const AttentionContext&) = delete;

  // The most parts of a call that run at once.
  int64_t num_threads() const { return num_threads_; }

  // Throws what the call refused. `node` is the name in the message.
  void attend(const OrtKernelContext* run, const kvc_flash_attn_args& args, const std::string& node) const;

 private:
  int64_t num_threads_;
  kvc_context* context_ = nullptr;
};

// Runs item(0) to item(n - 1) on the session's threads.
void parallel_for(const OrtKernelContext* run, int64_t n, const std::function<void(int64_t)>& item);

}  // namespace kvc_ort
