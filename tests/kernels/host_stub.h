// A kvc_backend_host for tests. It runs items on 1 to n threads. They start in each call, so that sanitizers see every
// dependency.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kvcache_backend.h"

namespace kvc::kernels::test {

class HostStub {
 public:
  explicit HostStub(int threads) : HostStub(threads, threads) {}
  // own_threads: how many of them count as the library's own, as in kvc_backend_host.
  HostStub(int threads, int own_threads) : threads_(threads), host_{this, threads, own_threads, &HostStub::run} {}
  HostStub(const HostStub&) = delete;
  HostStub& operator=(const HostStub&) = delete;

  const kvc_backend_host* host() const { return &host_; }
  int runs() const { return runs_; }

 private:
  static void run(void* self, int64_t n, int32_t effort, void (*item)(void*, int64_t, int32_t), void* arg) {
    ++static_cast<HostStub*>(self)->runs_;
    const int threads = effort == KVC_EFFORT_TINY ? 1 : static_cast<HostStub*>(self)->threads_;
    std::atomic<int64_t> next{0};
    const auto work = [&](int worker) {
      for (int64_t i; (i = next.fetch_add(1)) < n;) item(arg, i, worker);
    };
    std::vector<std::thread> others;
    for (int w = 1; w < threads; ++w) others.emplace_back(work, w);
    work(0);
    for (std::thread& thread : others) thread.join();
  }

  int threads_;
  std::atomic<int> runs_{0};
  kvc_backend_host host_;
};

}  // namespace kvc::kernels::test
