#include "prefix/block_keys.h"

#include <algorithm>
#include <bit>

namespace kvc {
namespace {

static_assert(std::endian::native == std::endian::little, "salts are hashed as they lie in memory");

std::span<const uint8_t> bytes_of(const uint64_t& salt) {
  return {reinterpret_cast<const uint8_t*>(&salt), salt == 0 ? 0 : sizeof(salt)};
}

}  // namespace

void BlockKeys::start(const TokenRuns::Key& key, int64_t index, int32_t before) noexcept {
  key_ = key;
  index_ = index;
  if (index > 0) parent_ = keys_[before];
  ready_ = ready_end_ = 0;
}

void BlockKeys::compute_next() noexcept {
  const auto whole = static_cast<int64_t>(key_.tokens.size()) / page_size_;
  const int64_t count = std::min(kAhead, whole - index_);
  const KeyedTokens in = {
      .fingerprint = fingerprint_,
      .adapter = PrefixContext::adapter_of(key_.context),
      .salt = bytes_of(key_.salt),
      .salt_begin = key_.salt_begin,
      .parent = index_ > 0 ? parent_.data() : nullptr,
      .begin = index_ * page_size_,
      .page_size = page_size_,
      .tokens = key_.tokens.subspan(static_cast<size_t>(index_ * page_size_), static_cast<size_t>(count * page_size_)),
      .media = PrefixContext::media_in(key_.context, index_ * page_size_, (index_ + count) * page_size_)};
  ready_ = 0;
  ready_end_ = page_keys(in, next_[0].data());
}

void BlockKeys::assign(int32_t block) noexcept {
  if (ready_ == ready_end_) compute_next();
  parent_ = next_[static_cast<size_t>(ready_++)];
  keys_[block] = parent_;
  ++index_;
}

PageKey BlockKeys::compute(const PageKey* parent, int64_t index, std::span<const int32_t> tokens, uint64_t salt,
                           const PrefixContext* context) const noexcept {
  const int64_t begin = index * page_size_;
  const KeyedTokens in = {.fingerprint = fingerprint_,
                          .adapter = PrefixContext::adapter_of(context),
                          .salt = bytes_of(salt),
                          .salt_begin = begin,
                          .parent = parent != nullptr ? parent->data() : nullptr,
                          .begin = begin,
                          .page_size = page_size_,
                          .tokens = tokens,
                          .media = PrefixContext::media_in(context, begin, begin + page_size_)};
  PageKey key;
  page_keys(in, key.data());
  return key;
}

}  // namespace kvc
