// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/nibbles.h"

#include <cstring>

#include "kernels/common/hadamard.h"
#include "kernels/common/scales.h"

namespace kvc::kernels {
namespace {

// Vectors of 4 elements, which every CPU has. Each element goes through the same operations as in the scalar functions
// of hadamard.h and convert.h, so the stored bits are the same.
using Floats = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
static_assert(kRotatedMultiple % 4 == 0);

Floats load(const float* p) {
  Floats v;
  memcpy(&v, p, sizeof v);
  return v;
}
void store(float* p, Floats v) { memcpy(p, &v, sizeof v); }
Floats all(float x) { return Floats{x, x, x, x}; }
Floats negate(Floats v, Words signs) { return reinterpret_cast<Floats>(reinterpret_cast<Words>(v) ^ signs); }

// Magnitudes as float32 bits, which are largest for an infinity or a NaN.
Ints magnitude_of(Floats v) { return reinterpret_cast<Ints>(v) & 0x7fffffff; }
Ints larger(Ints a, Ints b) { return a > b ? a : b; }
int32_t largest_of(Ints v) {
  const int32_t a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}

// Stores 4 elements in two bytes.
void store_pairs(Ints elements, unsigned char* target) {
  target[0] = static_cast<unsigned char>(elements[0] | elements[1] << 4);
  target[1] = static_cast<unsigned char>(elements[2] | elements[3] << 4);
}

// Rounds to the nearest float4, as `narrow` of an E2m1. Each comparison that holds adds -1. Ties go to the even
// element: up at 0.75, 1.75 and 3.5, and down at the other ones.
Ints float4_of(Floats v) {
  const Floats x = reinterpret_cast<Floats>(magnitude_of(v));
  const Ints below = (x > all(0.25f)) + (x >= all(0.75f)) + (x > all(1.25f)) + (x >= all(1.75f)) + (x > all(2.5f)) +
                     (x >= all(3.5f)) + (x > all(5.0f));
  const Words sign = reinterpret_cast<Words>(v) >> 28 & 8u;
  return -below | reinterpret_cast<Ints>(sign);
}

// Which of 4 elements are negated, by their 4 bits.
struct SignMasks {
  alignas(16) uint32_t of[16][4];
};
constexpr SignMasks sign_masks() {
  SignMasks masks = {};
  for (uint32_t bits = 0; bits < 16; ++bits) {
    for (uint32_t i = 0; i < 4; ++i) masks.of[bits][i] = (bits >> i & 1u) << 31;
  }
  return masks;
}
constexpr SignMasks kSignMasks = sign_masks();
constexpr RotationSigns kRotationSigns = make_rotation_signs();

Words signs_of(int32_t dim) {
  Words signs;
  memcpy(&signs, kSignMasks.of[kRotationSigns.words[dim / 32] >> (dim % 32) & 15u], sizeof signs);
  return signs;
}

// Applies `hadamard` to rows whose blocks have at least 4 elements.
void vector_hadamard(float* row, int32_t n, int32_t block) {
  const Words odd = {0, 0x80000000u, 0, 0x80000000u}, upper = {0, 0, 0x80000000u, 0x80000000u};
  for (int32_t d = 0; d < n; d += 4) {
    Floats v = load(row + d);
    v = Floats{v[0], v[0], v[2], v[2]} + negate(Floats{v[1], v[1], v[3], v[3]}, odd);
    v = Floats{v[0], v[1], v[0], v[1]} + negate(Floats{v[2], v[3], v[2], v[3]}, upper);
    store(row + d, v);
  }
  for (int32_t apart = 4; apart < block; apart *= 2) {
    for (int32_t begin = 0; begin < n; begin += 2 * apart) {
      for (int32_t d = begin; d < begin + apart; d += 4) {
        const Floats a = load(row + d), b = load(row + d + apart);
        store(row + d, a + b);
        store(row + d + apart, a - b);
      }
    }
  }
}

// The two elements that each byte of float4 holds.
struct ElementPairs {
  float of[256][2];
};
constexpr ElementPairs element_pairs() {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  ElementPairs pairs = {};
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int element = i >> 4 * j & 15;
      pairs.of[i][j] = element < 8 ? kMagnitudes[element] : -kMagnitudes[element - 8];
    }
  }
  return pairs;
}
constexpr ElementPairs kElementPairs = element_pairs();

}  // namespace

void spread_row(float* row, int32_t n, int32_t block) {
  for (int32_t d = 0; d < n; d += 4) store(row + d, negate(load(row + d), signs_of(d)));
  vector_hadamard(row, n, block);
}

void gather_row(float* row, int32_t n, int32_t block) {
  vector_hadamard(row, n, block);
  const Floats factor = all(1.0f / static_cast<float>(block));  // exact, because block is a power of two
  for (int32_t d = 0; d < n; d += 4) store(row + d, negate(load(row + d), signs_of(d)) * factor);
}

float quantise_nibbles(const float* row, int32_t n, unsigned char* target) {
  Floats least = load(row), largest = least;
  Ints magnitude = {};
  for (int32_t d = 0; d < n; d += 4) {
    const Floats v = load(row + d);
    magnitude = larger(magnitude, magnitude_of(v));
    least = v < least ? v : least;
    largest = v > largest ? v : largest;
  }
  for (int32_t i = 1; i < 4; ++i) {
    least[0] = least[i] < least[0] ? least[i] : least[0];
    largest[0] = largest[i] > largest[0] ? largest[i] : largest[0];
  }
  const bool finite = largest_of(magnitude) < 0x7f800000;
  const NibbleScale scale = nibble_scale(least[0], finite ? largest[0] : __builtin_nanf(""));
  if (scale.stored != scale.stored) {
    memset(target, 0, static_cast<size_t>(n / 2));
    return scale.stored;
  }
  for (int32_t d = 0; d < n; d += 4) {
    Floats level = load(row + d) * all(scale.inverse) + all(scale.zero) + all(0.5f);
    level = level < all(0.0f) ? all(0.0f) : level > all(15.0f) ? all(15.0f) : level;
    store_pairs(__builtin_convertvector(level, Ints), target + d / 2);
  }
  return scale.stored;
}

void quantise_float4(const float* row, int32_t n, float scale, unsigned char* target) {
  for (int32_t d = 0; d < n; d += 4) store_pairs(float4_of(load(row + d) / all(scale)), target + d / 2);
}

void quantise_blocks(const float* row, int32_t n, float head_scale, unsigned char* target) {
  for (int32_t begin = 0; begin < n; begin += kBlockDims) {
    Floats quotients[kBlockDims / 4];
    Ints magnitude = {};
    for (int32_t i = 0; i < kBlockDims / 4; ++i) {
      quotients[i] = load(row + begin + 4 * i) / all(head_scale);
      magnitude = larger(magnitude, magnitude_of(quotients[i]));
    }
    const E4m3 scale = scale_of_block(static_cast<uint32_t>(largest_of(magnitude)));
    target[n / 2 + begin / kBlockDims] = scale.bits;
    unsigned char* const elements = target + begin / 2;
    if (scale.bits == kNanScale) {
      memset(elements, 0, kBlockDims / 2);
      continue;
    }
    const Floats divisor = all(to_float(scale));
    for (int32_t i = 0; i < kBlockDims / 4; ++i) store_pairs(float4_of(quotients[i] / divisor), elements + 2 * i);
  }
}

void dequantise_blocks(const unsigned char* elements, const unsigned char* scales, int32_t n, float* row) {
  for (int32_t begin = 0; begin < n; begin += kBlockDims) {
    const float scale = block_scale(scales[begin / kBlockDims]);
    for (int32_t i = begin; i < begin + kBlockDims; i += 2) {
      row[i] = kElementPairs.of[elements[i / 2]][0] * scale;
      row[i + 1] = kElementPairs.of[elements[i / 2]][1] * scale;
    }
  }
}

}  // namespace kvc::kernels
