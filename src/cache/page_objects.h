// PageObjects: the objects that tiers store for the pages of a cache. It names them, makes them, and checks and unpacks
// them.
//
// An object is that of docs/reference/format.md, kind 1; of a suspended sequence, kind 3. Its key in tiers is
// SHA-256(digest of the group's layout, page key): so an engine with another layout finds nothing, and each group has
// objects of its own.
//
// Thread safety: key_of is for any thread; the others are for one thread at a time. Ownership: borrows the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layer/layers.h"
#include "layer/row_copy.h"
#include "object/object_header.h"
#include "tier/tier_worker.h"

namespace kvc {

class PageObjects {
 public:
  // Throws std::bad_alloc.
  static Status create(const Layers& layers, const PageKey& fingerprint, std::unique_ptr<PageObjects>* out);

  kvc_tier_key key_of(int32_t group, const PageKey& page_key) const noexcept;
  // Copies the contents of a page; nothing may write the page meanwhile. Throws std::bad_alloc.
  Status read(const TierPage& page);
  // Makes the object of the page that was read last. Throws std::bad_alloc.
  void encode(const TierPage& page, std::vector<uint8_t>* object) const;
  // Checks every byte of an object, and writes the page. CORRUPT or LAYOUT if it is not the page's. Throws
  // std::bad_alloc.
  Status write(const TierPage& page, std::span<const uint8_t> object);

 private:
  struct Group {
    std::string manifest;
    ObjectKey digest = {};
    int64_t payload_bytes = 0;
    bool states = false;
  };

  explicit PageObjects(const Layers& layers) : layers_(layers) {}
  ObjectHeader header_of(const TierPage& page) const;
  std::span<const int64_t> slots_of(const TierPage& page);

  const Layers& layers_;
  std::unique_ptr<RowCopy> rows_;
  PageKey fingerprint_ = {};
  std::vector<Group> groups_;
  std::vector<int64_t> slots_;     // [page_size]: scratch
  std::vector<uint8_t> contents_;  // of one page: scratch
};

}  // namespace kvc
