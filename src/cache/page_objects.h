// PageObjects: the objects that tiers store for the pages of a cache. It computes their keys, makes objects from pages,
// and checks and unpacks objects.
//
// docs/reference/format.md defines the objects: kind 1 for published pages, and kind 3 for pages of a suspended
// sequence. The key of an object is SHA-256(digest of the group's layout, page key). So an engine with another layout
// finds no objects of this layout, and each group has its own objects.
//
// Thread safety: any thread may call key_of. Only one thread at a time may call the other methods. Ownership: borrows
// the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layer/layers.h"
#include "layer/page_copy.h"
#include "object/object_header.h"
#include "tier/tier_worker.h"

namespace kvc {

class PageObjects {
 public:
  // Throws std::bad_alloc.
  static Status create(const Layers& layers, const PageKey& fingerprint, std::unique_ptr<PageObjects>* out);

  kvc_tier_key key_of(int32_t group, const PageKey& page_key) const noexcept;
  // The size of the object of a suspended page.
  int64_t suspended_bytes(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].suspended_bytes; }
  // Enqueues a read of the page's contents (PageCopy). Throws std::bad_alloc.
  Status begin_read(const TierPage& page, void* stream);
  // Waits for the read that begin_read enqueued, and makes the page's object. Throws std::bad_alloc.
  Status end_read(const TierPage& page, void* stream, std::vector<uint8_t>* object);
  // Checks every byte of an object, and keeps the contents of the page for `write`. Returns CORRUPT or LAYOUT if the
  // object is not that of this page. Throws std::bad_alloc.
  Status check(const TierPage& page, std::span<const uint8_t> object);
  // Enqueues a write to the page. The contents are those that the last `check` kept.
  Status write(const TierPage& page, void* stream);

 private:
  struct Group {
    std::string manifest;
    ObjectKey digest = {};
    int64_t suspended_bytes = 0;
  };

  explicit PageObjects(const Layers& layers) : layers_(layers) {}
  ObjectHeader header_of(const TierPage& page) const;
  static ObjectSizes sizes_of(const ObjectHeader& header, size_t head_bytes) noexcept;

  const Layers& layers_;
  std::unique_ptr<PageCopy> copy_;
  PageKey fingerprint_ = {};
  std::vector<Group> groups_;
  std::vector<uint8_t> contents_;  // scratch: the contents of one page
};

}  // namespace kvc
