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
#include "layer/load_staging.h"
#include "layer/page_copy.h"
#include "object/checksum.h"
#include "object/object_header.h"
#include "tier/object_memory.h"
#include "tier/tier_worker.h"

namespace kvc {

class PageObjects {
 public:
  // Throws std::bad_alloc.
  static Status create(const Layers& layers, const PageKey& fingerprint, std::unique_ptr<PageObjects>* out);

  kvc_tier_key key_of(int32_t group, const PageKey& page_key) const noexcept;
  // The size of the object of a suspended page.
  int64_t suspended_bytes(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].suspended_bytes; }
  // The size of the object of a page.
  int64_t object_bytes(const TierPage& page) const noexcept {
    const Group& group = groups_[static_cast<size_t>(page.group)];
    return page.tokens == nullptr ? group.suspended_bytes : group.page_bytes;
  }
  // Allocates what `check` needs for objects in pinned memory. Call it before the first of them. Throws std::bad_alloc.
  Status prepare_pinned();
  // Enqueues a read of the page's contents (PageCopy). Throws std::bad_alloc.
  Status begin_read(const TierPage& page, void* stream);
  // Waits for the read that begin_read enqueued, and makes the page's object in memory of object_bytes(page). Throws
  // std::bad_alloc.
  Status end_read(const TierPage& page, void* stream, const ObjectMemory& object);
  // Checks every byte of an object, and takes the contents of the page from it for `write`. The object is not used
  // after the call. Returns CORRUPT, LAYOUT or UNSUPPORTED (another version of the format) if the object is not that of
  // this page, or an error of the device. Throws std::bad_alloc.
  Status check(const TierPage& page, const ObjectMemory& object);
  // Whether `check` says that the object is not that of the page. Otherwise the device has failed.
  static bool is_other(kvc_status code) noexcept {
    return code == KVC_ERROR_CORRUPT || code == KVC_ERROR_LAYOUT || code == KVC_ERROR_UNSUPPORTED;
  }
  // Enqueues a write to the page. The contents are those that the last `check` took. If it fails after a part of the
  // write was enqueued, the contents of the page are not known.
  Status write(const TierPage& page, void* stream);

 private:
  struct Group {
    std::string manifest;
    ObjectKey digest = {};
    int64_t page_bytes = 0, suspended_bytes = 0;  // of objects of published and of suspended pages
  };

  explicit PageObjects(const Layers& layers) : layers_(layers) {}
  ObjectHeader header_of(const TierPage& page) const;
  static ObjectSizes sizes_of(const ObjectHeader& header, size_t head_bytes) noexcept;
  // Adds the bytes of a section to the checksum sum_, and returns its value.
  Checksum sum_section(const ObjectMemory& object, int64_t begin, int64_t bytes, uint64_t seed, int64_t index);

  const Layers& layers_;
  std::unique_ptr<PageCopy> copy_;
  PageKey fingerprint_ = {};
  std::vector<Group> groups_;
  std::vector<uint8_t> contents_;         // scratch: the contents of one page
  RunningChecksum sum_;                   // scratch
  std::unique_ptr<LoadStaging> staging_;  // null before prepare_pinned
  bool staged_ = false;                   // the last `check` put the contents into a buffer of staging_
};

}  // namespace kvc
