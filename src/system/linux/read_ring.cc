#include "system/read_ring.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#if defined(__has_include) && defined(__NR_io_uring_setup) && defined(__NR_io_uring_enter)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#define KVC_HAS_IO_URING 1
#endif
#endif

namespace kvc {

#ifdef KVC_HAS_IO_URING
namespace {

// These values are part of the kernel's ABI. An older header may lack their names.
constexpr uint8_t kReadOperation = 22;                          // IORING_OP_READ
constexpr uint32_t kSingleMap = 1u << 0, kOfLinux56 = 1u << 3;  // IORING_FEAT_SINGLE_MMAP, RW_CUR_POS
constexpr uint32_t kDisabled = 1u << 6, kSingleIssuer = 1u << 12, kDeferTaskRun = 1u << 13;  // IORING_SETUP_*
constexpr unsigned kEnable = 12;  // IORING_REGISTER_ENABLE_RINGS

int set_up(io_uring_params* params) {
  const long result = ::syscall(__NR_io_uring_setup, ReadRing::kMostReads, params);
  return result >= 0 ? static_cast<int>(result) : -errno;
}

void* map_area(int fd, size_t bytes, off_t offset) {
  void* const area = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
  if (area == MAP_FAILED) return nullptr;
  ::madvise(area, bytes, MADV_DONTFORK);
  return area;
}

}  // namespace

struct ReadRing::Areas {
  io_uring_params params = {};
  void* queues = nullptr;
  void* entries = nullptr;
  size_t queue_bytes = 0, entry_bytes = 0;

  ~Areas() {
    if (queues != nullptr) ::munmap(queues, queue_bytes);
    if (entries != nullptr) ::munmap(entries, entry_bytes);
  }
  uint32_t* word(uint32_t offset) const noexcept {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(queues) + offset);
  }
  io_uring_sqe* submissions() const noexcept { return static_cast<io_uring_sqe*>(entries); }
  io_uring_cqe* completions() const noexcept {
    return reinterpret_cast<io_uring_cqe*>(static_cast<char*>(queues) + params.cq_off.cqes);
  }
};

int ReadRing::open(std::unique_ptr<ReadRing>* out) {
  std::unique_ptr<ReadRing> ring(new ReadRing);
  ring->areas_ = std::make_unique<Areas>();
  io_uring_params& params = ring->areas_->params;
  params.flags = kDisabled | kSingleIssuer | kDeferTaskRun;  // since Linux 6.1
  ring->fd_ = set_up(&params);
  if (ring->fd_ == -EINVAL) {
    params = {};
    ring->fd_ = set_up(&params);
  }
  if (ring->fd_ < 0) return ring->fd_;
  if ((params.features & kSingleMap) == 0 || (params.features & kOfLinux56) == 0) return -ENOSYS;
  if (const int error = ring->map(); error != 0) return error;
  *out = std::move(ring);
  return 0;
}

// The thread that enables the ring is the one that may use it.
int ReadRing::start() noexcept {
  if ((areas_->params.flags & kDisabled) == 0) return 0;
  return ::syscall(__NR_io_uring_register, fd_, kEnable, nullptr, 0) == 0 ? 0 : -errno;
}

int ReadRing::map() noexcept {
  Areas& areas = *areas_;
  const io_uring_params& params = areas.params;
  areas.queue_bytes = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                                       params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
  areas.entry_bytes = params.sq_entries * sizeof(io_uring_sqe);
  areas.queues = map_area(fd_, areas.queue_bytes, IORING_OFF_SQ_RING);
  if (areas.queues == nullptr) return -errno;
  areas.entries = map_area(fd_, areas.entry_bytes, IORING_OFF_SQES);
  return areas.entries == nullptr ? -errno : 0;
}

// Returns the number of reads that have ended since the last call.
int ReadRing::take_results(FileRead* reads, const std::function<void(int)>& done) {
  const Areas& areas = *areas_;
  uint32_t* const head = areas.word(areas.params.cq_off.head);
  const uint32_t mask = *areas.word(areas.params.cq_off.ring_mask);
  int count = 0;
  // Another result may arrive while `done` works.
  while (*head != __atomic_load_n(areas.word(areas.params.cq_off.tail), __ATOMIC_ACQUIRE)) {
    const io_uring_cqe& completion = areas.completions()[*head & mask];
    const auto index = static_cast<int>(completion.user_data);
    reads[index].result = completion.res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    ++count;
    done(index);
  }
  return count;
}

void ReadRing::read(FileRead* reads, int n, const std::function<void(int)>& done) {
  const Areas& areas = *areas_;
  uint32_t* const tail = areas.word(areas.params.sq_off.tail);
  const uint32_t mask = *areas.word(areas.params.sq_off.ring_mask), begin = *tail;
  for (int i = 0; i < n; ++i) {
    const uint32_t slot = (begin + static_cast<uint32_t>(i)) & mask;
    io_uring_sqe& entry = areas.submissions()[slot];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = kReadOperation;
    entry.fd = reads[i].fd;
    entry.addr = reinterpret_cast<uintptr_t>(reads[i].data);
    entry.len = static_cast<uint32_t>(reads[i].bytes);
    entry.user_data = static_cast<uint64_t>(i);
    areas.word(areas.params.sq_off.array)[slot] = slot;
  }
  __atomic_store_n(tail, begin + static_cast<uint32_t>(n), __ATOMIC_RELEASE);
  int submitted = 0, ended = 0;
  bool refused = false;  // the kernel takes no more reads now
  while (ended < submitted || (submitted < n && !refused)) {
    const int wanted = refused ? 0 : n - submitted;
    const long result = ::syscall(__NR_io_uring_enter, fd_, wanted, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (result >= 0) {
      submitted += static_cast<int>(result);
    } else if (errno != EINTR) {
      if (refused) ::sched_yield();
      refused = true;
    }
    ended += take_results(reads, done);
  }
  if (submitted == n) return;
  // Takes back the entries that the kernel has not taken.
  __atomic_store_n(tail, begin + static_cast<uint32_t>(submitted), __ATOMIC_RELEASE);
  for (int i = submitted; i < n; ++i) {
    reads[i].result = -EAGAIN;
    done(i);
  }
}

#else

struct ReadRing::Areas {};

int ReadRing::open(std::unique_ptr<ReadRing>*) { return -ENOSYS; }
int ReadRing::start() noexcept { return -ENOSYS; }
void ReadRing::read(FileRead*, int, const std::function<void(int)>&) {}

#endif

ReadRing::~ReadRing() { forget_descriptor(); }

void ReadRing::forget_descriptor() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace kvc
