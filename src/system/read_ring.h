// ReadRing: reads several files at once from one thread, by io_uring. The reads are in flight together, and the calling
// thread waits for all of them. docs/internals/mechanisms.md has what this gains.
//
// The kernel may forbid io_uring (containers often do), and other systems do not have it. Then open fails.
//
// Thread safety: any thread may open a ring. Then one thread calls start, and only this thread may read. Ownership:
// owns a descriptor and two mapped areas.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kvc {

// A read of the first bytes of a file.
struct FileRead {
  int fd = -1;
  void* data = nullptr;
  int64_t bytes = 0;
  int64_t result = 0;  // out: the number of bytes that were read, 0 at the end of the file, or a negative errno
};

class ReadRing {
 public:
  static constexpr int kMostReads = 32;

  // Returns 0 or a negative errno. Throws std::bad_alloc.
  static int open(std::unique_ptr<ReadRing>* out);
  // Returns 0 or a negative errno.
  int start() noexcept;
  ~ReadRing();
  ReadRing(const ReadRing&) = delete;
  ReadRing& operator=(const ReadRing&) = delete;

  // Makes n <= kMostReads reads. Calls done(i) when reads[i].result is set. `done` must not throw. A read that the
  // kernel did not start has the result -EAGAIN. When the call returns, no read is in flight.
  void read(FileRead* reads, int n, const std::function<void(int)>& done);

  void forget_descriptor() noexcept;  // closes it; for a child of fork()

 private:
  ReadRing() = default;
  int map() noexcept;
  int take_results(FileRead* reads, const std::function<void(int)>& done);

  struct Areas;  // the submission queue and the completion queue, in memory that is shared with the kernel
  std::unique_ptr<Areas> areas_;
  int fd_ = -1;
};

}  // namespace kvc
