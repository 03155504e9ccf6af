// Which elements of a matrix each lane of a warp holds, for the 16-bit products of the tensor cores: D = A B + C with A
// [16, 16], B [16, 8], C and D [16, 8] (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix"). The kernels and
// the tests' emulation of the instructions both use this mapping. A test compares both with plain products.
//
// Let group = lane / 4 and pair = lane % 4 * 2. A register holds two 16-bit elements, the first in its lower half:
//   A   a0: [group][pair..]        a1: [group + 8][pair..]   a2: [group][pair + 8..]   a3: [group + 8][pair + 8..]
//   B   b0: [pair..][group]        b1: [pair + 8..][group]       (so B's columns are read as rows: keys of K)
//   C   c0, c1: [group][pair..]    c2, c3: [group + 8][pair..]   (float32; so two C tiles side by side are an A)
//   ldmatrix, register i: matrix i, [group][pair..]; transposed: [pair..][group]. Lane 8 i + r supplies the address of
//   row r of matrix i: 8 elements, 16 bytes, aligned.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

namespace kvc::kernels::cuda {

constexpr int kMmaRows = 16, kMmaDepth = 16, kMmaColumns = 8;

struct MatrixPlace {
  int row, column;
};

// Element i of a lane. In A and B it is half i % 2 of register i / 2; in C it is register i.
KVC_HOST_DEVICE MatrixPlace place_in_a(int lane, int i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + (i / 4) * 8};
}
KVC_HOST_DEVICE MatrixPlace place_in_b(int lane, int i) { return {lane % 4 * 2 + i % 2 + (i / 2) * 8, lane / 4}; }
KVC_HOST_DEVICE MatrixPlace place_in_c(int lane, int i) { return {lane / 4 + (i / 2) * 8, lane % 4 * 2 + i % 2}; }

// Which element of an 8 x 8 matrix ldmatrix puts into half `half` of a lane's register.
KVC_HOST_DEVICE MatrixPlace place_in_loaded(int lane, int half, bool transposed) {
  const MatrixPlace place = {lane / 4, lane % 4 * 2 + half};
  return transposed ? MatrixPlace{place.column, place.row} : place;
}

// The place of a 16-byte chunk of a row, in bytes from the begin of its tile in shared memory. Rows have `pitch_bytes`,
// a multiple of 128. The row's number permutes the eight chunks of each 128 bytes. So the 8 rows that ldmatrix reads at
// one chunk are in different banks, and so are 8 adjacent chunks of a row.
KVC_HOST_DEVICE int32_t swizzled(int32_t row, int32_t chunk, int32_t pitch_bytes) {
  return row * pitch_bytes + ((chunk ^ (row & 7)) << 4);
}

}  // namespace kvc::kernels::cuda
