// SPDX-License-Identifier: Apache-2.0
#include "receive_ring.h"

#include <atomic>
#include <cstring>

namespace kvc {

std::unique_ptr<ReceiveRing> ReceiveRing::create(ucp_context_h context) {
  std::unique_ptr<ReceiveRing> ring(new ReceiveRing(context));
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = kBytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  if (ucp_mem_map(context, &params, &ring->memory_) != UCS_OK) {
    ring->memory_ = nullptr;
    return nullptr;
  }
  ucp_mem_attr_t memory = {};
  memory.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  void* key = nullptr;
  size_t bytes = 0;
  if (ucp_mem_query(ring->memory_, &memory) != UCS_OK ||
      ucp_rkey_pack(context, ring->memory_, &key, &bytes) != UCS_OK) {
    return nullptr;
  }
  const std::unique_ptr<void, decltype(&ucp_rkey_buffer_release)> owner(key, ucp_rkey_buffer_release);
  ring->base_ = static_cast<uint8_t*>(memory.address);
  ring->key_.assign(static_cast<uint8_t*>(key), static_cast<uint8_t*>(key) + bytes);
  return ring;
}

ReceiveRing::~ReceiveRing() {
  if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
}

void SendRing::unmap() noexcept {
  if (key_ != nullptr) ucp_rkey_destroy(key_);
  key_ = nullptr;
}

bool SendRing::map(ucp_ep_h ep, const void* key, const UcxHead& head) {
  void* base = nullptr;
  if (ucp_ep_rkey_unpack(ep, key, &key_) != UCS_OK) {
    key_ = nullptr;
    return false;
  }
  if (ucp_rkey_ptr(key_, head.begin, &base) != UCS_OK) return false;
  base_ = static_cast<uint8_t*>(base);
  number_ = head.end;
  return true;
}

bool SendRing::put(const void* data, uint64_t bytes, UcxHead* head) noexcept {
  constexpr uint64_t kBytes = ReceiveRing::kBytes;
  const uint64_t at = written_ % kBytes;
  const uint64_t begin = at + bytes > kBytes ? written_ + kBytes - at : written_;
  if (begin + bytes - released_ > kBytes) return false;
  std::memcpy(base_ + begin % kBytes, data, bytes);
  std::atomic_thread_fence(std::memory_order_release);  // before the message that announces the data
  written_ = begin + bytes;
  head->kind = UcxHead::Kind::kInRing;
  head->number = number_;
  head->begin = begin;
  head->end = written_;
  return true;
}

void SendRing::release(uint64_t position) noexcept {
  if (position > released_ && position <= written_) released_ = position;
}

}  // namespace kvc
