// Makes entries of a target's table for the panel kernel, and for both kernels (see decode_formats.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_formats.h"
#include "kernels/cpu/attend/panel_pass.h"
#include "kernels/cpu/attend/score_keys.h"

namespace kvc::kernels::KVC_TARGET {

template <class Format>
static void panel_entry(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                        Scratch* scratch) {
  panel_item<typename PanelFormatOf<Format>::Type>(make_view(args, item, listed, scratch), pack_panel<Format>);
}

// Returns an entry with the panel kernel for one format. The base target provides the decode kernel.
template <class Format>
static consteval AttendFormat panel_kernel() {
  return {nullptr, panel_entry<Format>, Format::kDecodeRows, Format::kRowGroup, score_entry<Format>};
}

// Returns an entry with all kernels for one format.
template <class Format>
static consteval AttendFormat all_kernels() {
  return {decode_entry<typename DecodeFormatOf<Format>::Type>, panel_entry<Format>, Format::kDecodeRows,
          Format::kRowGroup, score_entry<Format>};
}

// Returns an entry for block rows. The panel kernel reads them as stored. The decode kernel stages them: an MLA row has
// many query heads, so the panel kernel computes it.
static consteval AttendFormat block_row_kernels() {
  return {staged_decode_entry, panel_entry<Blocks>, Blocks::kDecodeRows, Blocks::kRowGroup, score_entry<Blocks>};
}

// Returns entries for every pair of types. They convert K and V to float32, and accept any type of q.
[[maybe_unused]] static consteval AttendFormats converting_formats() {
  AttendFormats formats;
  for (auto& of_q : formats.of) {
    of_q[static_cast<int>(Type::kF32)] = all_kernels<Converted<float>>();
    of_q[static_cast<int>(Type::kF16)] = all_kernels<Converted<F16>>();
    of_q[static_cast<int>(Type::kBf16)] = all_kernels<Converted<Bf16>>();
    of_q[static_cast<int>(Type::kE4m3)] = all_kernels<Converted<E4m3>>();
    of_q[static_cast<int>(Type::kE5m2)] = all_kernels<Converted<E5m2>>();
    of_q[static_cast<int>(Type::kI8)] = all_kernels<Converted<I8>>();
    of_q[static_cast<int>(Type::kU4)] = all_kernels<Converted<float>>();  // rows of 4 bits are staged as float32
    of_q[static_cast<int>(Type::kE2m1)] = all_kernels<Converted<float>>();
    of_q[static_cast<int>(Type::kBlockRow)] = block_row_kernels();
  }
  return formats;
}

// Replaces the decode kernels for rows of 4 bits by those that read the rows without staging.
template <class Levels, class Floats>
[[maybe_unused]] static consteval void add_nibbles(AttendFormats* formats) {
  for (auto& of_q : formats->of) {
    AttendFormat &levels = of_q[static_cast<int>(Type::kU4)], &floats = of_q[static_cast<int>(Type::kE2m1)];
    levels.decode = decode_kernel<Levels>().decode;
    levels.decode_rows = Levels::kDecodeRows;
    floats.decode = decode_kernel<Floats>().decode;
    floats.decode_rows = Floats::kDecodeRows;
  }
}

}  // namespace kvc::kernels::KVC_TARGET
