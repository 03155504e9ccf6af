// The tokens, the salt and the context that name a prefix.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "keys/page_key.h"
#include "prefix/token_runs.h"
#include "tier/tier_worker.h"

namespace kvc {

// A kvc_prefix_query whose arrays were copied.
struct PrefixQuery {
  TokenRuns::Key key;
  bool allow_all = false;  // KVC_PREFIX_ALLOW_ALL
};

// A query, with the page keys of its whole pages.
struct KeyedQuery {
  std::shared_ptr<const std::vector<int32_t>> tokens;
  uint64_t salt = 0;
  int64_t salt_begin = 0;
  ContextRef context;
  std::shared_ptr<const PageTerms> terms;  // null if events do not tell of tiers
  std::vector<PageKey> keys;               // [whole pages]

  // Returns the first `count` tokens with the salt and the context, as a key of the prefix index.
  TokenRuns::Key key(int64_t count) const noexcept {
    return {std::span(*tokens).first(static_cast<size_t>(count)), salt, salt_begin, context.get()};
  }
  // The same for all tokens.
  TokenRuns::Key key() const noexcept { return {*tokens, salt, salt_begin, context.get()}; }
  int64_t num_blocks() const noexcept { return static_cast<int64_t>(keys.size()); }
};

}  // namespace kvc
