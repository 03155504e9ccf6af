#include "tier/object_index.h"

#include <algorithm>

#include "base/assert.h"

namespace kvc {

const ObjectIndex::Entry* ObjectIndex::find(const kvc_tier_key& key) const noexcept {
  const Folder& folder = folders_[key.bytes[0]];
  const auto at = folder.find(key);
  return at == folder.end() ? nullptr : &at->second;
}

const kvc_tier_key* ObjectIndex::oldest() const noexcept { return order_.empty() ? nullptr : &order_.begin()->key; }

void ObjectIndex::put(const kvc_tier_key& key, int64_t payload_bytes, int64_t stamp_ns) {
  Folder& folder = folders_[key.bytes[0]];
  const auto [at, is_new] = folder.try_emplace(key);
  Entry& entry = at->second;
  if (is_new) {
    try {
      order_.insert({stamp_ns, key});
    } catch (...) {
      folder.erase(at);
      throw;
    }
    entry.stamp_ns = stamp_ns;
    latest_stamp_ns_ = std::max(latest_stamp_ns_, stamp_ns);
  } else {
    stored_bytes_ -= frame_bytes(entry.payload_bytes);
    move_to(key, entry, stamp_ns);
  }
  entry.payload_bytes = payload_bytes;
  entry.file_stamp_ns = stamp_ns;
  entry.listing = listing_;
  stored_bytes_ += frame_bytes(payload_bytes);
}

void ObjectIndex::touch(const kvc_tier_key& key, int64_t stamp_ns, int64_t file_stamp_ns) {
  Folder& folder = folders_[key.bytes[0]];
  const auto at = folder.find(key);
  if (at == folder.end()) return;
  move_to(key, at->second, stamp_ns);
  at->second.file_stamp_ns = file_stamp_ns;
}

// The node of the set is extracted and inserted again, so that no memory is allocated.
void ObjectIndex::move_to(const kvc_tier_key& key, Entry& entry, int64_t stamp_ns) noexcept {
  auto node = order_.extract(Place{entry.stamp_ns, key});
  KVC_ASSERT(!node.empty(), entry.stamp_ns, stamp_ns);
  node.value().stamp_ns = stamp_ns;
  order_.insert(std::move(node));
  entry.stamp_ns = stamp_ns;
  latest_stamp_ns_ = std::max(latest_stamp_ns_, stamp_ns);
}

bool ObjectIndex::erase(const kvc_tier_key& key) noexcept {
  Folder& folder = folders_[key.bytes[0]];
  const auto at = folder.find(key);
  if (at == folder.end()) return false;
  stored_bytes_ -= frame_bytes(at->second.payload_bytes);
  order_.erase(Place{at->second.stamp_ns, at->first});
  removed_.add(at->first);
  folder.erase(at);
  return true;
}

void ObjectIndex::seen(const kvc_tier_key& key) noexcept {
  Folder& folder = folders_[key.bytes[0]];
  const auto at = folder.find(key);
  if (at != folder.end()) at->second.listing = listing_;
}

void ObjectIndex::end_listing(int folder) noexcept {
  Folder& entries = folders_[static_cast<size_t>(folder)];
  for (auto at = entries.begin(); at != entries.end();) {
    if (at->second.listing == listing_) {
      ++at;
      continue;
    }
    stored_bytes_ -= frame_bytes(at->second.payload_bytes);
    order_.erase(Place{at->second.stamp_ns, at->first});
    removed_.add(at->first);
    at = entries.erase(at);
  }
}

}  // namespace kvc
