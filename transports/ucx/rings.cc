// SPDX-License-Identifier: Apache-2.0
#include "rings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "common/process.h"

namespace kvc {
namespace {

constexpr char kName[] = "libkvcache-rings";
constexpr std::string_view kPrefix = "/memfd:";  // of the link in /proc to such a file
constexpr uint64_t kMemoryBytes = RingLayout::kFrontBytes + RingLayout::kRings * RingLayout::kBytes;
constexpr uint64_t kKeptRings = 4;  // rings whose memory stays when they are free

std::atomic_ref<uint64_t> word(uint64_t& value) { return std::atomic_ref<uint64_t>(value); }
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

uint64_t load(uint64_t& value) { return word(value).load(std::memory_order_acquire); }
void store(uint64_t& value, uint64_t to) { word(value).store(to, std::memory_order_release); }

void* map(int file, uint64_t offset, uint64_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : mapped;
}

// Returns a new file in memory whose size cannot change; -1: the system refuses.
int make_file() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < kMemoryBytes) return -1;  // else a signal would come
#ifdef MFD_NOEXEC_SEAL
  int file = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (file < 0) file = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);  // an older system
#else
  const int file = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
#endif
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(kMemoryBytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return file;
  }
  close(file);
  return -1;
}

// Opens the file of another process; -1: it is not such a file, or this process may not open it.
int open_file(const RingAddress& address) {
  char path[64], target[64];
  std::snprintf(path, sizeof path, "/proc/%" PRIu64 "/fd/%" PRId64, address.endpoint >> 32, address.file);
  const ssize_t count = readlink(path, target, sizeof target);
  const std::string_view name(target, count < 0 ? 0 : static_cast<size_t>(count));
  if (!name.starts_with(kPrefix) || !name.substr(kPrefix.size()).starts_with(kName)) return -1;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat is;
  if (file < 0 || (fstat(file, &is) == 0 && is.st_size == static_cast<off_t>(kMemoryBytes))) return file;
  close(file);
  return -1;
}

}  // namespace

std::unique_ptr<ReceiveRings> ReceiveRings::create() {
  static std::atomic<uint64_t> last_endpoint{0};
  std::unique_ptr<ReceiveRings> own(new ReceiveRings());
  RingAddress& address = own->address_;
  address.endpoint = static_cast<uint64_t>(getpid()) << 32 | (++last_endpoint & 0xffffffffu);
  address.file = make_file();
  if (address.file < 0 || getrandom(&address.check, sizeof address.check, 0) != sizeof address.check) return nullptr;
  own->front_ = static_cast<RingLayout::Front*>(map(static_cast<int>(address.file), 0, kMemoryBytes));
  if (own->front_ == nullptr) return nullptr;
  store(own->front_->check, address.check);
  own->used_.reserve(RingLayout::kRings);
  return own;
}

ReceiveRings::~ReceiveRings() {
  if (front_ != nullptr) munmap(front_, kMemoryBytes);
  if (address_.file >= 0) ::close(static_cast<int>(address_.file));
}

void ReceiveRings::close() noexcept { store(front_->is_closed, 1); }

uint8_t* ReceiveRings::bytes_of(uint64_t ring) const noexcept {
  return reinterpret_cast<uint8_t*>(front_) + RingLayout::kFrontBytes + ring * RingLayout::kBytes;
}

void ReceiveRings::find_senders() noexcept {
  for (uint64_t i = 0; i < RingLayout::kRings; i++) {
    if (is_used_[i] || word(front_->owners[i]).load(std::memory_order_relaxed) == 0) continue;
    is_used_[i] = true;
    used_.push_back({i});
  }
}

bool ReceiveRings::read(Ring* ring, Record* out) noexcept {
  constexpr uint64_t kBytes = RingLayout::kBytes;
  const uint64_t end = load(front_->states[ring->number].end);
  if (ring->taken == end || ring->is_wrong) return false;
  ring->is_wrong = true;  // until a record was checked
  if (end - ring->told > kBytes || end - ring->taken > kBytes || end % RingLayout::kAlign != 0) return false;
  uint8_t* const bytes = bytes_of(ring->number);
  uint64_t begin = ring->taken;
  uint64_t lengths = load(*reinterpret_cast<uint64_t*>(bytes + begin % kBytes));
  if (lengths == RingLayout::kSkip) {
    begin += kBytes - begin % kBytes;
    if (begin - ring->taken >= end - ring->taken) return false;
    lengths = load(*reinterpret_cast<uint64_t*>(bytes));
  }
  out->header_bytes = lengths & 0xffffffffu;
  out->data_bytes = lengths >> 32;
  if (out->header_bytes > sizeof out->header || out->data_bytes > RingLayout::kMaxData) return false;
  const uint64_t offset = RingLayout::data_offset(out->header_bytes);
  const uint64_t size = RingLayout::rounded(offset + out->data_bytes);
  if (size > end - begin || begin % kBytes + size > kBytes) return false;
  const uint8_t* const record = bytes + begin % kBytes;
  std::memcpy(out->header, record + sizeof lengths, out->header_bytes);
  out->data = record + offset;
  ring->taken = begin + size;
  ring->is_wrong = false;
  return true;
}

bool ReceiveRings::take(Record* out) noexcept {
  for (size_t tries = used_.size(); tries > 0; tries--) {
    if (next_ >= used_.size()) next_ = 0;
    if (read(&used_[next_++], out)) return true;
  }
  return false;
}

// Frees a ring after its last record. Returns false if there may be more.
bool ReceiveRings::end_ring(const Ring& ring) noexcept {
  RingLayout::State& state = front_->states[ring.number];
  // `end` is read after the ring is known to get no more records.
  if (!ring.has_ended && load(state.is_done) == 0) return false;
  if (load(state.end) != ring.taken && !ring.is_wrong) return false;
  store(state.end, 0);
  store(state.begin, 0);
  store(state.is_done, 0);
  if (ring.number >= kKeptRings) madvise(bytes_of(ring.number), RingLayout::kBytes, MADV_REMOVE);
  is_used_[ring.number] = false;
  store(front_->owners[ring.number], 0);
  return true;
}

void ReceiveRings::release() noexcept {
  for (Ring& ring : used_) {
    if (ring.taken == ring.told) continue;
    ring.told = ring.taken;
    store(front_->states[ring.number].begin, ring.taken);
  }
  std::erase_if(used_, [this](const Ring& ring) { return end_ring(ring); });
  find_senders();
}

void ReceiveRings::look_at_processes() noexcept {
  for (Ring& ring : used_) {
    const Process process = {0, static_cast<int64_t>(load(front_->owners[ring.number]) >> 32)};
    ring.has_ended = ring.has_ended || process.has_ended();
  }
}

bool ReceiveRings::has_records_of(uint64_t endpoint) noexcept {
  find_senders();
  return std::any_of(used_.begin(), used_.end(), [&](const Ring& ring) {
    return load(front_->owners[ring.number]) == endpoint && !ring.is_wrong &&
           load(front_->states[ring.number].end) != ring.taken;
  });
}

std::unique_ptr<SendRing> SendRing::open(const RingAddress& address, uint64_t self) {
  std::unique_ptr<SendRing> own(new SendRing());
  own->address_ = address;
  own->self_ = self;
  own->file_ = open_file(address);
  if (own->file_ < 0) return nullptr;
  own->front_ = static_cast<RingLayout::Front*>(map(own->file_, 0, RingLayout::kFrontBytes));
  if (own->front_ == nullptr || load(own->front_->check) != address.check) return nullptr;
  return own;
}

SendRing::~SendRing() {
  if (bytes_ != nullptr) munmap(bytes_, RingLayout::kBytes);
  if (front_ != nullptr) munmap(front_, RingLayout::kFrontBytes);
  if (file_ >= 0) close(file_);
}

bool SendRing::take_ring() noexcept {
  for (ring_ = 0; ring_ < RingLayout::kRings; ring_++) {
    uint64_t free = 0;
    if (word(front_->owners[ring_]).compare_exchange_strong(free, self_, std::memory_order_acq_rel)) break;
  }
  if (ring_ == RingLayout::kRings) return false;
  const uint64_t offset = RingLayout::kFrontBytes + ring_ * RingLayout::kBytes;
  bytes_ = static_cast<uint8_t*>(map(file_, offset, RingLayout::kBytes));
  if (bytes_ == nullptr) {
    store(front_->states[ring_].is_done, 1);
    return false;
  }
  close(file_);
  file_ = -1;
  return true;
}

uint64_t SendRing::room() const noexcept {
  const uint64_t used = end_ - load(front_->states[ring_].begin);
  return used > RingLayout::kBytes ? 0 : RingLayout::kBytes - used;
}

bool SendRing::put(const void* header, uint64_t header_bytes, const void* data, uint64_t data_bytes) noexcept {
  constexpr uint64_t kBytes = RingLayout::kBytes;
  if (bytes_ == nullptr && !take_ring()) return false;
  const uint64_t offset = RingLayout::data_offset(header_bytes);
  const uint64_t size = RingLayout::rounded(offset + data_bytes);
  const uint64_t rest = kBytes - end_ % kBytes;
  const uint64_t skipped = rest < size ? rest : 0;
  if (skipped + size > room()) return false;
  if (skipped > 0) store(*reinterpret_cast<uint64_t*>(bytes_ + end_ % kBytes), RingLayout::kSkip);
  uint8_t* const record = bytes_ + (end_ + skipped) % kBytes;
  store(*reinterpret_cast<uint64_t*>(record), data_bytes << 32 | header_bytes);
  std::memcpy(record + sizeof(uint64_t), header, header_bytes);
  if (data_bytes > 0) std::memcpy(record + offset, data, data_bytes);
  end_ += skipped + size;
  store(front_->states[ring_].end, end_);  // the message is complete only now
  return true;
}

bool SendRing::is_empty() const noexcept { return bytes_ == nullptr || room() == RingLayout::kBytes; }

bool SendRing::is_closed() const noexcept { return load(front_->is_closed) != 0; }

void SendRing::end() noexcept {
  if (bytes_ != nullptr) store(front_->states[ring_].is_done, 1);
}

}  // namespace kvc
