// Declares the table of functions that each SIMD target provides. A device chooses its table once, when the device is
// opened. All functions of a table run within a work item, in the default float environment (float_environment.h). They
// take no lock and allocate no memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/select.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// Computes one item: its rows of the output, or its partial state. scratch: the scratch of the worker. listed: null if
// the call has no lists of keys. Otherwise only the query and the heads of `listed` are computed, over the keys of
// `listed`.
using AttendItem = void (*)(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                            Scratch* scratch);

// Computes the scores of an item's queries and keys for kvc_backend_select. The function does not read the score
// options of `args`.
using ScoreItem = void (*)(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                           const ScoreCall* call, Scratch* scratch);

// The kernels of a SIMD target for one type of q and one stored type. A field without a value is taken from the base
// target. docs/internals/cpu.md describes the decode kernel and the panel kernel.
struct AttendFormat {
  AttendItem decode = nullptr;  // for few rows of a kv head
  AttendItem panels = nullptr;  // for many rows of a kv head
  int32_t decode_rows = 0;      // `decode` is faster for up to this many rows of a kv head; 0: no value
  int32_t row_group = 0;        // number of rows that the panel kernel computes together; 0: no value
  ScoreItem score = nullptr;    // for kvc_backend_select
};

constexpr int kNumTypes = static_cast<int>(Type::kNone);

struct AttendFormats {
  AttendFormat of[kNumTypes][kNumTypes] = {};  // [type of q][stored type]
};

struct Implementation {
  const char* name;            // static text
  const Implementation* base;  // nullable: the target that provides what `formats` lacks
  const AttendFormats* formats;
  int32_t lanes;  // floats in a vector

  // Converts source[0, n) to target[0, n), rounded to the target's type: float32, float16 or bfloat16. Any alignment is
  // allowed. Source and target do not overlap.
  void (*convert_row)(Type target_type, void* target, Type source_type, const void* source, int32_t n);

  // Converts row[0, n) to a quantised type of 8 bits: divides by `scale`, rounds to nearest even and saturates. int8
  // ignores `scale` and computes a scale for the row (kernels/common/scales.h). Returns the scale. The stored bits are
  // the same on every SIMD target.
  float (*quantise_row)(Type type, void* target, const float* row, int32_t n, float scale);

  // Rotates row [head_dim] by cos_sin [2, rope_dim/2]. The layer says which dims form pairs (rope_interleaved). The
  // function computes in float32 without fused operations, so the bits of the result are the same on every SIMD target.
  void (*rotate_row)(const kvc_backend_layer* layer, const float* cos_sin, float* row);

  // Multiplies the rows [token_begin, token_end) of one head by the matrix of that head. token_end - token_begin is
  // 1..kMinRows, because the scratch has room for kMinRows rows.
  void (*project_rows)(const kvc_backend_project* args, int32_t head, int64_t token_begin, int64_t token_end,
                       Scratch* scratch);
};

// Computes one item with the kernel that fits its types and its number of rows.
void attend_item(const Implementation& implementation, const kvc_backend_attend* args, const kvc_backend_item* item,
                 Scratch* scratch);

// Returns the function that computes scores for queries of type `q` and keys of type `stored`.
ScoreItem score_kernel(const Implementation& implementation, Type q, Type stored);

// Returns how many rows of one kv head a tile of queries should have. A row is a query with one of its q heads.
int32_t preferred_rows(const Implementation& implementation, const kvc_backend_layer* layer);

extern const Implementation kReferenceImplementation;
extern const Implementation kScalarImplementation;
extern const Implementation kNeonImplementation;
extern const Implementation kAvx2Implementation;
extern const Implementation kAvx512Implementation;
extern const Implementation kAvx512VbmiImplementation;
extern const Implementation kAvx512Bf16Implementation;
extern const Implementation kAvx512AmxImplementation;

}  // namespace kvc::kernels
