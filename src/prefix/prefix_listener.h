// PrefixListener: receives a call for each whole page that the prefix index adds or removes. Only an index with a
// fingerprint has keys and calls listeners.
#pragma once

#include <cstdint>

#include "keys/page_key.h"

namespace kvc {

// A page of a whole block in one group, or a state after a whole block.
struct NamedPage {
  const PageKey* key;
  const PageKey* parent;  // key of the page before it; null = it is the first page of its sequence
  int32_t group;
  int32_t page;      // page id in the group
  int32_t block;     // PrefixIndex::read_block gives its tokens
  int64_t index;     // number of the page in its sequence
  uint64_t session;  // the session that alone published it; 0 = no session, or several sessions
  bool salted;       // whether its salt is not 0
};

// The index calls these methods while it changes and its owner's lock is held. So a method must only copy what it
// needs, and must not call the index, except for read_block. Pointers are valid during the call.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  virtual void stored(const NamedPage& page) noexcept = 0;
  // For a state, only key, group, page and block are set.
  virtual void removed(const NamedPage& page) noexcept = 0;
  // The index has removed all pages.
  virtual void cleared() noexcept = 0;
};

}  // namespace kvc
