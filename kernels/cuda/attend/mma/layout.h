// Which elements of a matrix each lane of a warp holds in the 16-bit products of the tensor cores: D = A B + C, with A
// [16, 16], B [16, 8], C and D [16, 8] (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix"). The kernels and
// the emulation of the instructions in the tests use the functions below. A test compares the emulation with plain
// products.
//
// Let group = lane / 4 and pair = lane % 4 * 2. A register holds two 16-bit elements, the first in its lower half.
//   A   a0: [group][pair..]    a1: [group + 8][pair..]    a2: [group][pair + 8..]    a3: [group + 8][pair + 8..]
//   B   b0: [pair..][group]    b1: [pair + 8..][group]    A column of B lies in memory as a row, such as a key of K.
//   C   c0, c1: [group][pair..]    c2, c3: [group + 8][pair..]    float32; two C tiles side by side form an A
//   ldmatrix   Register i gets [group][pair..] of matrix i; transposed, it gets [pair..][group]. Lane 8 i + r supplies
//              the address of row r of matrix i: 8 elements, 16 aligned bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

namespace kvc::kernels::cuda {

constexpr int kMmaRows = 16, kMmaDepth = 16, kMmaColumns = 8;

struct MatrixPlace {
  int row, column;
};

// The place in the matrix of a lane's element i. In A and B, element i is half i % 2 of register i / 2. In C it is
// register i.
KVC_HOST_DEVICE MatrixPlace place_in_a(int lane, int i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + (i / 4) * 8};
}
KVC_HOST_DEVICE MatrixPlace place_in_b(int lane, int i) { return {lane % 4 * 2 + i % 2 + (i / 2) * 8, lane / 4}; }
KVC_HOST_DEVICE MatrixPlace place_in_c(int lane, int i) { return {lane / 4 + (i / 2) * 8, lane % 4 * 2 + i % 2}; }

// The element of an 8 x 8 matrix that ldmatrix loads into half `half` of a lane's register.
KVC_HOST_DEVICE MatrixPlace place_in_loaded(int lane, int half, bool transposed) {
  const MatrixPlace place = {lane / 4, lane % 4 * 2 + half};
  return transposed ? MatrixPlace{place.column, place.row} : place;
}

// The place of a 16-byte chunk of a row, in bytes from the begin of a tile in shared memory. A row has `pitch_bytes`
// bytes, a multiple of 128. The eight chunks of each 128 bytes are permuted by the row's number. So the same chunk of 8
// adjacent rows, which ldmatrix reads, lies in different banks. Eight adjacent chunks of a row also lie in different
// banks.
KVC_HOST_DEVICE int32_t swizzled(int32_t row, int32_t chunk, int32_t pitch_bytes) {
  return row * pitch_bytes + ((chunk ^ (row & 7)) << 4);
}

}  // namespace kvc::kernels::cuda
