// The index arrays of an attend: where the device has each, or that it is to be sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

// In the order of their pieces.
enum {
  kItems,
  kTiles,
  kSpans,
  kParts,
  kTokenBegin,
  kLengths,
  kPositions,
  kKeyEnds,
  kStreamSinks,
  kStreamWindows,
  kTreeBegin,
  kTreeOffset,
  kTreeNodes,
  kKeyBegins,
  kKeySets,
  kRoots,
  kLevels,
  kBlocks,
  kPages,
  kPageBegin,
  kNumPieces
};

// What a call makes of its items and page lists, where no step has it.
struct Made {
  const kvc_backend_step::Blocks* staged = nullptr;
  BlockCounts blocks = {};
  bool own_blocks = false;
  const PageRange* ranges = nullptr;  // null: the lists are walked on the device, or staged
};

// The mirror of the call's trees; null: its lists are flattened.
const int32_t* mirrored_nodes(const kvc_backend_attend& args);
// Fills pieces [kNumPieces]: of what is staged the address, else what is to be sent. The caller has the upload's lock.
kvc_status find_arrays(const kvc_backend_attend& args, const BlockCut& many, Upload* upload, Piece* pieces, Made* made,
                       kvc_error* error);
// Behind the upload's take: writes those that are made here.
void write_made(const kvc_backend_attend& args, const BlockCut& many, const Made& made, const Piece* pieces);

}  // namespace kvc::kernels::cuda
