// Which element of a matrix a lane of a warp holds where, for the tensor cores' 16-bit products: D = A B + C with A
// [16, 16], B [16, 8], C and D [16, 8] (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix"). One place for the
// mapping: the kernels are written by it, the emulation of the instructions in tests computes by it, and a test
// compares both with plain products.
//
// With group = lane / 4 and pair = lane % 4 * 2, each register holding two 16-bit elements, the lower half first:
//   A   a0: [group][pair..]        a1: [group + 8][pair..]   a2: [group][pair + 8..]   a3: [group + 8][pair + 8..]
//   B   b0: [pair..][group]        b1: [pair + 8..][group]       (so B's columns are read as rows: keys of K)
//   C   c0, c1: [group][pair..]    c2, c3: [group + 8][pair..]   (float32; so two C tiles side by side are an A)
//   ldmatrix, register i: matrix i, [group][pair..]; transposed: [pair..][group]. Lane 8 i + r brings the address of
//   row r of matrix i: 8 elements, 16 bytes, aligned.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"

namespace kvc::kernels::cuda {

constexpr int kMmaRows = 16, kMmaDepth = 16, kMmaColumns = 8;

struct MatrixPlace {
  int row, column;
};

// Element `i` of a lane: of A and B the half i % 2 of register i / 2, of C register i.
KVC_HOST_DEVICE MatrixPlace place_in_a(int lane, int i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + (i / 4) * 8};
}
KVC_HOST_DEVICE MatrixPlace place_in_b(int lane, int i) { return {lane % 4 * 2 + i % 2 + (i / 2) * 8, lane / 4}; }
KVC_HOST_DEVICE MatrixPlace place_in_c(int lane, int i) { return {lane / 4 + (i / 2) * 8, lane % 4 * 2 + i % 2}; }

// Half `half` of what ldmatrix gives a lane of an 8 x 8 matrix.
KVC_HOST_DEVICE MatrixPlace place_in_loaded(int lane, int half, bool transposed) {
  const MatrixPlace place = {lane / 4, lane % 4 * 2 + half};
  return transposed ? MatrixPlace{place.column, place.row} : place;
}

// A tile in shared memory: rows of `pitch_bytes`, a multiple of 128, in chunks of 16 bytes. The chunk of a row is
// exchanged with another of its eight by the row's number, so that neither the 8 rows that ldmatrix reads at a chunk,
// nor 8 chunks of a row that are written together, share a bank. Bytes from the tile's begin.
KVC_HOST_DEVICE int32_t swizzled(int32_t row, int32_t chunk, int32_t pitch_bytes) {
  return row * pitch_bytes + ((chunk ^ (row & 7)) << 4);
}

}  // namespace kvc::kernels::cuda
