#include "plan/latent_plan.h"

#include <algorithm>

namespace kvc {
namespace {

constexpr int64_t kUsualBytes = int64_t{64} << 20;
constexpr int64_t kFloatBytes = 4;

}  // namespace

bool decompresses(const LatentShape& shape, int64_t new_tokens, int64_t past_tokens) noexcept {
  const int64_t pairs = new_tokens * (new_tokens + 1) / 2;
  const int64_t saved = shape.row_dims + shape.latent_dims - (shape.nope_dims + shape.rotary_dims() + shape.v_dims);
  // With earlier tokens, the absorbed projections are needed in any case, so projecting K and V is additional work.
  // Without earlier tokens, projecting K and V replaces the absorbed projections, and costs the same.
  const int64_t added = past_tokens == 0 ? 0 : new_tokens * (shape.nope_dims + shape.v_dims) * shape.latent_dims;
  return new_tokens > 1 && pairs * saved > added;
}

int64_t latent_head_bytes(const LatentShape& shape, int64_t tokens, int64_t element_bytes) noexcept {
  const int64_t absorbed = shape.row_dims * element_bytes + shape.latent_dims * kFloatBytes;
  const int64_t decompressed = (shape.nope_dims + shape.rotary_dims() + shape.v_dims) * element_bytes;
  const int64_t merged = 2 * (shape.v_dims + 1) * kFloatBytes;
  return tokens * (absorbed + decompressed + merged);
}

int64_t latent_scratch_bytes(int64_t row_dims, int64_t latent_dims, int64_t tokens) noexcept {
  const LatentShape widest = {row_dims, latent_dims, kMaxProjectedDims, kMaxProjectedDims};
  const int64_t rows = tokens * row_dims * kFloatBytes;  // a contiguous copy of the new rows
  const int64_t least = latent_head_bytes(widest, tokens, kFloatBytes) + rows + kLatentPadding;
  return std::max(least, kUsualBytes);
}

int64_t max_decompressed_items(int64_t row_dims, int64_t latent_dims, int64_t tokens, int32_t heads,
                               int64_t scratch_bytes) noexcept {
  constexpr int64_t kLeastQueryTile = 16, kLeastElementBytes = 2;
  const LatentShape narrowest = {row_dims, latent_dims, 1, 1};
  const int64_t token_heads = std::max(scratch_bytes / latent_head_bytes(narrowest, 1, kLeastElementBytes), tokens);
  return token_heads / kLeastQueryTile + heads;
}

int32_t latent_heads_at_once(int32_t heads, int64_t head_bytes, int64_t scratch_bytes) noexcept {
  while (heads > 1 && heads * head_bytes > scratch_bytes) heads = (heads + 1) / 2;
  return heads;
}

}  // namespace kvc
