// How an attend of an MLA layer with up-projections is computed: absorbed or decompressed, and over how many heads at a
// time. Pure functions of numbers.
//
// Multiply-adds of a row with n new tokens and p earlier ones, for each head (D: dims of the stored row, L: of its
// latent part, R = D - L, N: of q without its rotary part, V: of the output):
//   absorbed      q W_UK and o W_UV: n (N + V) L; attention: pairs * (D + L)
//   decompressed  K and V of the new tokens: n (N + V) L; attention among them: n (n + 1) / 2 * (N + R + V)
// The earlier tokens are always attended in absorbed form: they are many, and their decompressed K and V are not kept.
#pragma once

#include <cstdint>

namespace kvc {

struct LatentShape {
  int64_t row_dims = 0;     // D
  int64_t latent_dims = 0;  // L
  int64_t nope_dims = 0;    // N
  int64_t v_dims = 0;       // V
  int64_t rotary_dims() const noexcept { return row_dims - latent_dims; }
};

// Whether the new tokens of a row attend to each other decompressed.
bool decompresses(const LatentShape& shape, int64_t new_tokens, int64_t past_tokens) noexcept;

// Bytes of scratch that a head takes for so many tokens: q and the latent output in absorbed form, K and V
// decompressed, two float32 results that are merged. element_bytes: of q, and of what is decompressed.
int64_t latent_head_bytes(const LatentShape& shape, int64_t tokens, int64_t element_bytes) noexcept;

// The largest dims of a caller's projections.
constexpr int64_t kMaxProjectedDims = 1024;

// Scratch is taken in up to nine aligned pieces.
constexpr int64_t kLatentAlignment = 64;
constexpr int64_t kLatentPadding = 9 * kLatentAlignment;

// Scratch in which any batch of up to `tokens` tokens can be computed, if need be one head at a time.
int64_t latent_scratch_bytes(int64_t row_dims, int64_t latent_dims, int64_t tokens) noexcept;

// An upper bound of the work items of decompressed attention, for any row and as many heads at once as `scratch_bytes`
// allows.
int64_t max_decompressed_items(int64_t row_dims, int64_t latent_dims, int64_t tokens, int32_t heads,
                               int64_t scratch_bytes) noexcept;

// The number of heads at a time: `heads`, halved and rounded up until it fits in the scratch.
int32_t latent_heads_at_once(int32_t heads, int64_t head_bytes, int64_t scratch_bytes) noexcept;

}  // namespace kvc
