// SavedRecord: the description of a saved sequence, in the header of its object. docs/reference/format.md defines the
// bytes. Pure functions; any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sequence/saved_sequence.h"

namespace kvc {

struct SavedRecord {
  SavedSequence sequence;
  int32_t rope_set = 0;     // KVC_ROPE_SET_*
  bool has_tokens = false;  // the payload begins with the token ids
};

// Throws std::bad_alloc.
std::vector<uint8_t> encode_record(const SavedRecord& record);

// Fails with CORRUPT for values that no sequence can have, whatever its groups are. Throws std::bad_alloc.
Status decode_record(std::span<const uint8_t> bytes, SavedRecord* out);

}  // namespace kvc
