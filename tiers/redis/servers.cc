#include "servers.h"

#include <algorithm>
#include <array>

namespace kvc::redis {
namespace {

constexpr int64_t kFirstWaitNs = 100'000'000, kLongestWaitNs = 5'000'000'000, kRefreshNs = 1'000'000'000;
constexpr std::array<uint16_t, 256> crc_table() {
  std::array<uint16_t, 256> table = {};
  for (size_t byte = 0; byte < table.size(); ++byte) {
    auto crc = static_cast<uint16_t>(byte << 8);
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<uint16_t>((crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint16_t, 256> kCrc = crc_table();  // CRC16-XMODEM
constexpr size_t kMaxAddresses = 4096;                   // clusters have at most about 1000 nodes

}  // namespace

int slot_of(const std::string& key) noexcept {
  uint16_t crc = 0;
  for (const char c : key) crc = static_cast<uint16_t>(crc << 8 ^ kCrc[crc >> 8 ^ static_cast<uint8_t>(c)]);
  return crc % kSlots;
}

Address Servers::of_slot(int slot, int64_t now_ns) {
  MutexLock lock(mutex_);
  if (!slots_.empty() && slots_[static_cast<size_t>(slot)] >= 0) {
    return addresses_[static_cast<size_t>(slots_[static_cast<size_t>(slot)])];
  }
  for (const Address& address : addresses_) {
    const auto failure = failures_.find(address.text());
    if (failure == failures_.end() || failure->second.again_ns <= now_ns) return address;
  }
  return addresses_.front();
}

std::vector<Address> Servers::all() {
  MutexLock lock(mutex_);
  return addresses_;
}

bool Servers::is_cluster() {
  MutexLock lock(mutex_);
  return !slots_.empty();
}

int Servers::may_use(const Address& server, int64_t now_ns, int64_t try_ns) {
  MutexLock lock(mutex_);
  const auto found = failures_.find(server.text());
  if (found == failures_.end()) return 0;
  Failure& failure = found->second;
  if (now_ns < failure.again_ns) return failure.error;
  failure.again_ns = now_ns + try_ns;
  return 0;
}

void Servers::worked(const Address& server) {
  MutexLock lock(mutex_);
  failures_.erase(server.text());
}

void Servers::failed(const Address& server, int error, int64_t now_ns) {
  MutexLock lock(mutex_);
  Failure& failure = failures_[server.text()];
  failure.error = error;
  failure.wait_ns = std::clamp(2 * failure.wait_ns, kFirstWaitNs, kLongestWaitNs);
  failure.again_ns = now_ns + failure.wait_ns;
}

int Servers::index_of(const Address& server) {
  const auto found = std::find(addresses_.begin(), addresses_.end(), server);
  if (found == addresses_.end() && addresses_.size() == kMaxAddresses) return -1;
  const auto index = found - addresses_.begin();
  if (found == addresses_.end()) addresses_.push_back(server);
  return static_cast<int>(index);
}

void Servers::set_slots(const std::vector<SlotRange>& ranges) {
  MutexLock lock(mutex_);
  slots_.assign(kSlots, -1);
  for (const SlotRange& range : ranges) {
    const int index = index_of(range.server);
    for (int slot = std::max(range.first, 0); slot <= std::min(range.last, kSlots - 1); ++slot) {
      slots_[static_cast<size_t>(slot)] = index;
    }
  }
}

void Servers::set_slot(int slot, const Address& server) {
  MutexLock lock(mutex_);
  if (slots_.empty()) slots_.assign(kSlots, -1);
  slots_[static_cast<size_t>(slot)] = index_of(server);
}

bool Servers::should_refresh(int64_t now_ns) {
  MutexLock lock(mutex_);
  if (now_ns < refresh_ns_) return false;
  refresh_ns_ = now_ns + kRefreshNs;
  return true;
}

}  // namespace kvc::redis
