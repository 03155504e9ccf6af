#include "prefix/prefix_context.h"

#include <algorithm>

namespace kvc {

void PrefixContext::destroy(const PrefixContext* context) noexcept { delete context; }

std::span<const MediaSpan> PrefixContext::media_in(const PrefixContext* context, int64_t begin, int64_t end) noexcept {
  const std::span<const MediaSpan> media = media_of(context);
  const auto first = std::partition_point(media.begin(), media.end(),
                                          [&](const MediaSpan& span) { return span.begin + span.tokens <= begin; });
  const auto last = std::partition_point(first, media.end(), [&](const MediaSpan& span) { return span.begin < end; });
  return {first, last};
}

std::strong_ordering compare_other_adapters(const PrefixContext* a, const PrefixContext* b) noexcept {
  const std::span<const uint8_t> left = PrefixContext::adapter_of(a), right = PrefixContext::adapter_of(b);
  return std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
}

int64_t same_media_end_of_others(const PrefixContext* a, const PrefixContext* b, int64_t begin, int64_t end) noexcept {
  const std::span<const MediaSpan> left = PrefixContext::media_in(a, begin, end);
  const std::span<const MediaSpan> right = PrefixContext::media_in(b, begin, end);
  const auto [of_a, of_b] = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
  int64_t first = end;  // the first token of the first spans that differ
  if (of_a != left.end()) first = std::min(first, of_a->begin);
  if (of_b != right.end()) first = std::min(first, of_b->begin);
  return std::max(first, begin);
}

std::strong_ordering compare_media(const PrefixContext* a, const PrefixContext* b, int64_t position) noexcept {
  const std::span<const MediaSpan> left = PrefixContext::media_in(a, position, position + 1);
  const std::span<const MediaSpan> right = PrefixContext::media_in(b, position, position + 1);
  return std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
}

}  // namespace kvc
