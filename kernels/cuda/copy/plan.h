// The host's part of copy_slots: which copies can run in parallel. Pure functions, tested without a device.
//
// Copies take effect in order. Two copies conflict if one of them writes a slot that the other reads or writes. Copies
// that conflict, directly or through further copies, form a chain. The copies of a chain run in order. Different chains
// have no slot in common, so they run in parallel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// The slots that copy number `copy` reads, or the slots that it writes.
struct SlotRange {
  int64_t begin, end;
  int64_t copy;
  bool written;
};

// Fills ranges [2 * count] with the ranges of all copies, sorted by `begin`.
inline void sort_ranges(const kvc_backend_slot_copy* copies, int64_t count, SlotRange* ranges) {
  for (int64_t i = 0; i < count; ++i) {
    const kvc_backend_slot_copy& copy = copies[i];
    // A copy without a source clears its target, so it reads an empty range.
    const int64_t read = copy.source_slot < 0 ? INT64_MAX : copy.source_slot;
    ranges[2 * i] = {read, copy.source_slot < 0 ? read : read + copy.num_slots, i, false};
    ranges[2 * i + 1] = {copy.target_slot, copy.target_slot + copy.num_slots, i, true};
  }
  std::sort(ranges, ranges + 2 * count, [](const SlotRange& a, const SlotRange& b) { return a.begin < b.begin; });
}

// Returns true if no copy writes a slot that another copy reads or writes, or that the copy itself reads.
// ranges: [2 * count], sorted.
inline bool are_apart(const SlotRange* ranges, int64_t count) {
  int64_t end = INT64_MIN, written_end = INT64_MIN;  // the largest end of all ranges so far, and of the written ranges
  for (int64_t i = 0; i < 2 * count; ++i) {
    const SlotRange& range = ranges[i];
    if (range.begin < (range.written ? end : written_end)) return false;
    end = std::max(end, range.end);
    if (range.written) written_end = std::max(written_end, range.end);
  }
  return true;
}

// Returns the first copy of the chain of `copy`, among the chains as they have been joined so far. before: [count];
// before[i] is i, or an earlier copy of the chain of copy i.
inline int64_t first_of_chain(int64_t* before, int64_t copy) {
  while (before[copy] != copy) copy = before[copy] = before[before[copy]];
  return copy;
}

// Groups copies into chains, and returns the number of chains. Chain c has the copies ordered[begins[c]] to
// ordered[begins[c + 1] - 1]. ranges: [2 * count], sorted. chain_of: [count], for internal use. ordered: [count],
// filled. begins: [count + 1], filled.
inline int64_t cut_chains(const kvc_backend_slot_copy* copies, int64_t count, const SlotRange* ranges,
                          int64_t* chain_of, kvc_backend_slot_copy* ordered, int64_t* begins) {
  for (int64_t i = 0; i < count; ++i) chain_of[i] = i;
  int64_t end = INT64_MIN, furthest = 0;  // the largest end of a range so far, and the copy that has this range
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
  for (int64_t c = chains; c > 0; --c)
    begins[c] = begins[c - 1];  // the loop above moved each begin to the end of its chain
  begins[0] = 0;
  return chains;
}

// Copies in the order and the chains in which the kernels run them.
struct CopyCut {
  const kvc_backend_slot_copy* copies;  // [count]
  const int64_t* begins;                // [chains + 1]; null: no copies conflict, so there are no chains
  int64_t chains;
};

// The number of bytes that cut_copies needs in `memory`, which must be aligned to 8 bytes.
constexpr int64_t bytes_to_cut(int64_t count) {
  return count * static_cast<int64_t>(2 * sizeof(SlotRange) + sizeof(kvc_backend_slot_copy) + 2 * sizeof(int64_t)) +
         static_cast<int64_t>(sizeof(int64_t));
}
// Cuts copies into chains. If no copies conflict, and `may_be_apart` is true, it returns `copies` without chains.
// memory: [bytes_to_cut(count)], in which chains are written.
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
