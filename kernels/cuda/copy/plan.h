// copy_slots, the host's part: which copies can be made beside each other. Pure functions, tested without a device.
//
// Copies take effect in their order. Those that meet (they have slots in common, whichever of them reads or writes
// those), or that others join in that way, are a chain: it is made in its order, and no chain touches what is
// another's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// Slots that copy number `copy` reads, or writes.
struct SlotRange {
  int64_t begin, end;
  int64_t copy;
  bool written;
};

// ranges: [2 * count], of all copies, in the order of their begins.
inline void sort_ranges(const kvc_backend_slot_copy* copies, int64_t count, SlotRange* ranges) {
  for (int64_t i = 0; i < count; ++i) {
    const kvc_backend_slot_copy& copy = copies[i];
    const int64_t read = copy.source_slot < 0 ? INT64_MAX : copy.source_slot;  // one that clears reads no slot
    ranges[2 * i] = {read, copy.source_slot < 0 ? read : read + copy.num_slots, i, false};
    ranges[2 * i + 1] = {copy.target_slot, copy.target_slot + copy.num_slots, i, true};
  }
  std::sort(ranges, ranges + 2 * count, [](const SlotRange& a, const SlotRange& b) { return a.begin < b.begin; });
}

// Whether no copy writes slots that another one, or itself, reads or writes. ranges: [2 * count], sorted.
inline bool are_apart(const SlotRange* ranges, int64_t count) {
  int64_t end = INT64_MIN, written_end = INT64_MIN;  // of what follows
  for (int64_t i = 0; i < 2 * count; ++i) {
    const SlotRange& range = ranges[i];
    if (range.begin < (range.written ? end : written_end)) return false;
    end = std::max(end, range.end);
    if (range.written) written_end = std::max(written_end, range.end);
  }
  return true;
}

// The first copy of the chain that a copy is of, as far as is known. before: [count], of each copy itself, or one of
// its chain with a lower number.
inline int64_t first_of_chain(int64_t* before, int64_t copy) {
  while (before[copy] != copy) copy = before[copy] = before[before[copy]];
  return copy;
}

// Cuts copies into chains: chain c is those from ordered[begins[c]] to ordered[begins[c + 1]]. Returns how many there
// are. ranges: [2 * count], sorted; chain_of: [count], for the function's own use; ordered: [count]; begins: [count +
// 1].
inline int64_t cut_chains(const kvc_backend_slot_copy* copies, int64_t count, const SlotRange* ranges,
                          int64_t* chain_of, kvc_backend_slot_copy* ordered, int64_t* begins) {
  for (int64_t i = 0; i < count; ++i) chain_of[i] = i;
  int64_t end = INT64_MIN, furthest = 0;  // of the ranges so far that hang together, and the copy that ends there
  for (int64_t i = 0; i < 2 * count; ++i) {
    const SlotRange& range = ranges[i];
    if (range.begin == range.end) continue;
    if (range.begin < end) {
      const int64_t a = first_of_chain(chain_of, range.copy), b = first_of_chain(chain_of, furthest);
      chain_of[std::max(a, b)] = std::min(a, b);
    }
    if (range.end > end) {
      end = range.end;
      furthest = range.copy;
    }
  }
  for (int64_t i = 0; i < count; ++i) chain_of[i] = first_of_chain(chain_of, i);
  int64_t chains = 0;
  for (int64_t i = 0; i < count; ++i) chain_of[i] = chain_of[i] == i ? chains++ : chain_of[chain_of[i]];
  std::fill(begins, begins + chains + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++begins[chain_of[i] + 1];
  for (int64_t c = 0; c < chains; ++c) begins[c + 1] += begins[c];
  for (int64_t i = 0; i < count; ++i) ordered[begins[chain_of[i]]++] = copies[i];
  for (int64_t c = chains; c > 0; --c) begins[c] = begins[c - 1];  // each was moved to its end
  begins[0] = 0;
  return chains;
}

// Copies as they are launched.
struct CopyCut {
  const kvc_backend_slot_copy* copies;  // [count]
  const int64_t* begins;                // [chains + 1]; null: all are apart
  int64_t chains;
};

// Bytes that cut_copies needs of memory aligned to 8.
constexpr int64_t bytes_to_cut(int64_t count) {
  return count * static_cast<int64_t>(2 * sizeof(SlotRange) + sizeof(kvc_backend_slot_copy) + 2 * sizeof(int64_t)) +
         static_cast<int64_t>(sizeof(int64_t));
}
// may_be_apart: as far as their numbers go. memory: [bytes_to_cut(count)], which the result is in.
inline CopyCut cut_copies(const kvc_backend_slot_copy* copies, int64_t count, bool may_be_apart, void* memory) {
  auto* const ranges = static_cast<SlotRange*>(memory);
  auto* const ordered = reinterpret_cast<kvc_backend_slot_copy*>(ranges + 2 * count);
  auto* const chain_of = reinterpret_cast<int64_t*>(ordered + count);
  int64_t* const begins = chain_of + count;
  sort_ranges(copies, count, ranges);
  if (may_be_apart && are_apart(ranges, count)) return {copies, nullptr, 0};
  return {ordered, begins, cut_chains(copies, count, ranges, chain_of, ordered, begins)};
}

}  // namespace kvc::kernels::cuda
