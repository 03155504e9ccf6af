// PrefixListener: receives a call for each whole page, and each state after a whole page, that the prefix index adds or
// removes. If the index removes all pages at once, the listener gets one call for all of them. Only an index with a
// fingerprint has keys and calls listeners.
#pragma once

#include <cstdint>

#include "keys/page_key.h"
#include "prefix/prefix_context.h"

namespace kvc {

// A page of a whole block in one group, or a state after a whole block.
struct NamedPage {
  const PageKey* key;
  const PageKey* parent;  // key of the page before this page; null if this is the first page of a sequence
  int32_t group;
  int32_t page;                  // page id in the group
  int32_t block;                 // id of the block, for PrefixIndex::read_block
  int64_t index;                 // number of the page in its sequence
  uint64_t session;              // the only session that published the page; 0 = no session, or several sessions
  bool salted;                   // whether its salt is not 0
  const PrefixContext* context;  // its adapter and media; borrowed, may be null
};

// The index calls these methods in the middle of a change, while its owner's lock is held. So a method must only copy
// what it needs, and must not call the index, except for read_block. Pointers are valid during the call.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  virtual void stored(const NamedPage& page) noexcept = 0;
  // For a state, only key, group, page and block are set.
  virtual void removed(const NamedPage& page) noexcept = 0;
  // The index has removed all pages.
  virtual void cleared() noexcept = 0;
  // Whether a call that removes all pages must call `removed` for each of them instead of `cleared`.
  virtual bool needs_each() const noexcept { return false; }
};

}  // namespace kvc
