// What a SIMD target provides: one table for each target, chosen once when a device is opened. All functions run inside
// a work item, with the default float environment. They take no lock and allocate nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/select.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// Computes one item: its rows of the output, or its partial state. `scratch` is the worker's. listed: null in a call
// without lists. Else only this query and these heads of the item are computed, over these keys.
using AttendItem = void (*)(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                            Scratch* scratch);

// Computes the scores of an item's queries and keys. It does no arithmetic of softmax, so options of `args` are not
// read.
using ScoreItem = void (*)(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                           const ScoreCall* call, Scratch* scratch);

// How a target attends, for one type of q and one stored type.
struct AttendFormat {
  AttendItem decode = nullptr;  // for few rows per kv head; null: that of the base target
  AttendItem panels = nullptr;  // for many rows; null: that of the base target
  int32_t decode_rows = 0;    // up to this number of rows per kv head, decode is the faster one. 0: as the base target
  int32_t row_group = 0;      // the panel kernel computes this number of rows together. 0: as the base target
  ScoreItem score = nullptr;  // for kvc_backend_select; null: that of the base target
};

constexpr int kNumTypes = static_cast<int>(Type::kNone);

struct AttendFormats {
  AttendFormat of[kNumTypes][kNumTypes] = {};  // [type of q][stored type]
};

struct Implementation {
  const char* name;            // static
  const Implementation* base;  // nullable: the target that computes what `formats` lacks
  const AttendFormats* formats;
  int32_t lanes;  // floats of a vector

  // target[0, n) = source[0, n) rounded to the target's type: float32, float16 or bfloat16. The same type, quantised
  // ones too, copies bits. Any alignment, no overlap.
  void (*convert_row)(Type target_type, void* target, Type source_type, const void* source, int32_t n);

  // row[0, n) to a quantised type of 8 bits: divided by `scale`, rounded to nearest even, saturated. int8
  // ignores `scale` and gives the row one of its own (kernels/common/scales.h). Returns the scale. The same bits on
  // every target.
  float (*quantise_row)(Type type, void* target, const float* row, int32_t n, float scale);

  // Rotates the layer's pairs of row [head_dim] by cos_sin [2, rope_dim/2], in float32 without fused operations, so
  // that every implementation stores the same bits.
  void (*rotate_row)(const kvc_backend_layer* layer, const float* cos_sin, float* row);

  // Rows [token_begin, token_end) of one head of a projection, at most kMinRows of them.
  void (*project_rows)(const kvc_backend_project* args, int32_t head, int64_t token_begin, int64_t token_end,
                       Scratch* scratch);
};

// Attends by the format of the item's types, with the decode or the panel kernel by the item's rows.
void attend_item(const Implementation& implementation, const kvc_backend_attend* args, const kvc_backend_item* item,
                 Scratch* scratch);

// The kernel that scores keys for queries of this type.
ScoreItem score_kernel(const Implementation& implementation, Type q, Type stored);

// The number of new rows, counted in query x group, that a tile of queries of the layer should have.
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
