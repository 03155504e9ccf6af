// Decides how a call of attend for an MLA layer with up-projections is computed: absorbed or decompressed, and with how
// many heads at a time. Pure functions of numbers.
//
// The stored row has D dims: L of the latent part, and R = D - L of the rotary part. q has N dims without its rotary
// part, and the output has V dims. `pairs` is the number of pairs of a query and a key that the query sees. For each
// head, a row with n new tokens needs these multiply-adds:
//   absorbed      q W_UK and o W_UV: n (N + V) L; attention: pairs * (D + L)
//   decompressed  K and V of the new tokens: n (N + V) L; attention among them: n (n + 1) / 2 * (N + R + V)
// Attention to earlier tokens is always computed in absorbed form: the earlier tokens are many, and their decompressed
// K and V are not kept. So a row with earlier tokens needs the absorbed projections in both forms.
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

// Returns whether attention among the new tokens of a row is computed decompressed.
bool decompresses(const LatentShape& shape, int64_t new_tokens, int64_t past_tokens) noexcept;

// Returns the bytes of scratch of one head for `tokens` tokens: q and the latent output in absorbed form, decompressed
// K and V, and two float32 results that are merged. element_bytes: bytes of an element of q and of decompressed K and
// V.
int64_t latent_head_bytes(const LatentShape& shape, int64_t tokens, int64_t element_bytes) noexcept;

// The largest value of N + R, and of V, that the caller's projections may have.
constexpr int64_t kMaxProjectedDims = 1024;

// Scratch is divided into up to nine aligned arrays.
constexpr int64_t kLatentAlignment = 64;
constexpr int64_t kLatentPadding = 9 * kLatentAlignment;

// Returns the bytes of scratch with which any batch of up to `tokens` tokens can be computed, at least one head at a
// time.
int64_t latent_scratch_bytes(int64_t row_dims, int64_t latent_dims, int64_t tokens) noexcept;

// Returns an upper bound of the number of work items of decompressed attention, for any row, with as many heads at once
// as `scratch_bytes` allows.
int64_t max_decompressed_items(int64_t row_dims, int64_t latent_dims, int64_t tokens, int32_t heads,
                               int64_t scratch_bytes) noexcept;

// Returns the number of heads at a time. It starts with `heads`, and is halved and rounded up until the scratch is
// large enough for these heads, or one head remains.
int32_t latent_heads_at_once(int32_t heads, int64_t head_bytes, int64_t scratch_bytes) noexcept;

}  // namespace kvc
