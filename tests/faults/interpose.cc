#include "interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);
}

namespace {

std::atomic<int64_t> allocations{0}, threads{0}, blocks{0}, mapped{0}, countdown{0};
std::atomic<bool> has_failed{false}, threads_fail{false};

// Whether this allocation must fail.
bool fails() {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (countdown.load(std::memory_order_relaxed) <= 0) return false;
  if (countdown.fetch_sub(1) != 1) return false;
  has_failed = true;
  errno = ENOMEM;
  return true;
}
int64_t whole_pages(size_t bytes) { return static_cast<int64_t>((bytes + 4095) / 4096 * 4096); }
void *counted(void *block) {
  if (block) blocks.fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

namespace kvt {

void count_from_now() {
  allocations = 0;
  threads = 0;
}
Counts counts() { return {allocations.load(), threads.load()}; }
int64_t live_blocks() { return blocks.load(); }
int64_t live_mapped_bytes() { return mapped.load(); }
void fail_allocation(int64_t n) {
  has_failed = false;
  countdown = n;
}
void fail_threads(bool fail) { threads_fail = fail; }
bool failed() { return has_failed; }

}  // namespace kvt

extern "C" {

void *malloc(size_t size) { return fails() ? nullptr : counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return fails() ? nullptr : counted(__libc_calloc(count, size)); }
void *realloc(void *block, size_t size) {
  if (fails()) return nullptr;
  void *result = __libc_realloc(block, size);
  if (!block) counted(result);
  if (block && size == 0) blocks.fetch_sub(1);
  return result;
}
void *memalign(size_t alignment, size_t size) { return fails() ? nullptr : counted(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **result, size_t alignment, size_t size) {
  void *block = memalign(alignment, size);
  if (!block) return ENOMEM;
  *result = block;
  return 0;
}
void *valloc(size_t size) { return memalign(4096, size); }
void free(void *block) {
  if (block) blocks.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(block);
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) noexcept {
  if (fails()) return MAP_FAILED;
  const long result = syscall(SYS_mmap, address, length, protection, flags, file, offset);
  void *mapping = reinterpret_cast<void *>(result);
  if (mapping != MAP_FAILED) mapped += whole_pages(length);
  return mapping;
}
void *mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset) noexcept {
  return mmap(address, length, protection, flags, file, offset);
}
int munmap(void *address, size_t length) noexcept {
  mapped -= whole_pages(length);
  return static_cast<int>(syscall(SYS_munmap, address, length));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  static const Create next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  threads++;
  if (threads_fail) return EAGAIN;
  return next(thread, attributes, start, argument);
}

}  // extern "C"
