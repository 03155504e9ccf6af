// PrefixListener: learns which whole pages the prefix index can find, page by page, as that changes. Only an index that
// has a fingerprint has keys, and calls listeners.
#pragma once

#include <cstdint>

#include "keys/page_key.h"

namespace kvc {

// A page of a whole block in one group, or a state after a whole block.
struct NamedPage {
  const PageKey* key;
  const PageKey* parent;  // of the page before it; null = it is the first one of its sequence
  int32_t group;
  int32_t page;      // id in the group
  int32_t block;     // PrefixIndex::read_block gives its tokens
  int64_t index;     // in its sequence, in pages
  uint64_t session;  // that alone published it; 0 = none, or several
  bool salted;       // its salt is not 0
};

// Calls come under the lock of the index's owner, while the index changes: they only take notes. What pointers point to
// stays valid during the call.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  virtual void stored(const NamedPage& page) noexcept = 0;
  // Of a state: only key, group, page and block.
  virtual void removed(const NamedPage& page) noexcept = 0;
  // All pages were removed at once.
  virtual void cleared() noexcept = 0;
};

}  // namespace kvc
