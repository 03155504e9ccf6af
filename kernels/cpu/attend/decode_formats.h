// Makes entries for the decode kernel in the table of a SIMD target (kernels/cpu/implementation.h). Each entry is
// compiled for one format. The code of these entries is most of the library's size. So a target lists only the formats
// for which its code differs from that of its base target.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_pass.h"
#include "kernels/cpu/attend/project.h"
#include "kernels/cpu/attend/quantise.h"
#include "kernels/cpu/implementation.h"

namespace kvc::kernels::KVC_TARGET {

template <class Format>
static void decode_entry(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                         Scratch* scratch) {
  View view = make_view(args, item, listed, scratch);
  if constexpr (Format::kNibbles) view.staged = false;
  // The most common head dims are template arguments. So loops are unrolled, and offsets within a page are constants.
  if constexpr (kLanes == 16) {
    const int32_t head_dim = view.head_dim == view.v_head_dim ? view.head_dim : 0;
    if (head_dim == 128) return decode_item<Format, 128>(view);
    if constexpr (!Format::kNibbles) {
      if (head_dim == 64) return decode_item<Format, 64>(view);
      if (head_dim == 256) return decode_item<Format, 256>(view);
    }
  }
  decode_item<Format, 0>(view);
}

// Copies rows to scratch as float32, and runs the decode kernel for float32 on the copy. This function is compiled
// once, not for each format.
[[maybe_unused]] static void staged_decode_entry(const kvc_backend_attend* args, const kvc_backend_item* item,
                                                 const ListedQuery* listed, Scratch* scratch) {
  View view = make_view(args, item, listed, scratch);
  view.staged = true;
  decode_item<Converted<float>, 0>(view);
}

// Returns an entry with the decode kernel for one format. The base target provides all other fields.
template <class Format>
static consteval AttendFormat decode_kernel() {
  return {decode_entry<Format>, nullptr, 0, 0, nullptr};
}

static consteval Implementation implementation_of(const char* name, const Implementation* base,
                                                  const AttendFormats* formats) {
  return {name, base, formats, kLanes, convert_row, quantise_row, rotate_row, project_rows};
}

}  // namespace kvc::kernels::KVC_TARGET
