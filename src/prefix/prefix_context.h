// PrefixContext: the adapter and the media of a prefix. K and V depend on them, as they depend on the tokens and the
// salt. The adapter applies to all tokens. Each medium applies to the tokens of its span.
//
// A context is immutable, and counts its owners. Owners are runs and checkpoints of the prefix index, events, and
// queries. Any thread may take and release a reference. No context (a null pointer) means no adapter and no media.
//
// Two prefixes with equal tokens may have different contexts. If the adapters differ, the prefixes do not match at all.
// Otherwise they match up to the first token that belongs to another medium, or to another place of the same medium.
// The functions below compare contexts without hashing them.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "keys/page_key.h"

namespace kvc {

class PrefixContext {
 public:
  // media: ordered by position, without overlap. Positions count from the first token of the sequence.
  PrefixContext(std::vector<uint8_t> adapter, std::vector<MediaSpan> media)
      : adapter_(std::move(adapter)), media_(std::move(media)) {}
  PrefixContext(const PrefixContext&) = delete;
  PrefixContext& operator=(const PrefixContext&) = delete;

  static std::span<const uint8_t> adapter_of(const PrefixContext* context) noexcept {
    return context == nullptr ? std::span<const uint8_t>() : context->adapter_;
  }
  static std::span<const MediaSpan> media_of(const PrefixContext* context) noexcept {
    return context == nullptr ? std::span<const MediaSpan>() : context->media_;
  }
  // The spans that have a token in [begin, end).
  static std::span<const MediaSpan> media_in(const PrefixContext* context, int64_t begin, int64_t end) noexcept;

  // hold counts one owner more, and returns the context. release counts one owner less, and destroys the context after
  // its last owner. The context may be null.
  static const PrefixContext* hold(const PrefixContext* context) noexcept {
    if (context != nullptr) context->owners_.fetch_add(1, std::memory_order_relaxed);
    return context;
  }
  static void release(const PrefixContext* context) noexcept {
    if (context != nullptr && context->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(context);
  }

 private:
  ~PrefixContext() = default;
  static void destroy(const PrefixContext* context) noexcept;

  const std::vector<uint8_t> adapter_;
  const std::vector<MediaSpan> media_;
  mutable std::atomic<int64_t> owners_ = 0;
};

// An owner of a context, or of none.
class ContextRef {
 public:
  ContextRef() = default;
  explicit ContextRef(const PrefixContext* context) noexcept : context_(PrefixContext::hold(context)) {}
  ContextRef(const ContextRef& other) noexcept : ContextRef(other.context_) {}
  ContextRef& operator=(ContextRef other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~ContextRef() { PrefixContext::release(context_); }
  const PrefixContext* get() const noexcept { return context_; }

 private:
  const PrefixContext* context_ = nullptr;
};

std::strong_ordering compare_other_adapters(const PrefixContext* a, const PrefixContext* b) noexcept;
int64_t same_media_end_of_others(const PrefixContext* a, const PrefixContext* b, int64_t begin, int64_t end) noexcept;

inline std::strong_ordering compare_adapters(const PrefixContext* a, const PrefixContext* b) noexcept {
  return a == b ? std::strong_ordering::equal : compare_other_adapters(a, b);
}
// Returns the first position in [begin, end) at which a token belongs to other media in `a` than in `b`; `end` if there
// is none.
inline int64_t same_media_end(const PrefixContext* a, const PrefixContext* b, int64_t begin, int64_t end) noexcept {
  return a == b ? end : same_media_end_of_others(a, b, begin, end);
}
// Orders two contexts by the media span that has the token at `position`. Contexts without a span there are lower. The
// result is `equal` if both contexts have the same span there, or none.
std::strong_ordering compare_media(const PrefixContext* a, const PrefixContext* b, int64_t position) noexcept;

}  // namespace kvc
