// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/listed_keys.h"

#include <string.h>

#include "kernels/common/mask.h"

namespace kvc::kernels {
namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

// Says which keys of its list one query sees. A list entry names block_tokens consecutive keys, which are called a unit
// here.
struct ListRule {
  int32_t block_tokens;
  KeyRange keys;
  KeyRange units;  // the units that have a key in `keys`
  KeyTree tree;
  QueryMask mask;

  bool takes(int32_t unit) const { return unit >= units.begin && unit < units.end; }
};

ListRule rule_of(const kvc_backend_attend& args, const kvc_backend_item& item, int32_t query) {
  ListRule rule = {args.lists.block_tokens, {0, 0}, {0, 0}, {INT32_MAX, nullptr}, {}};
  if (args.lists.physical != 0) {
    const int64_t slots = args.layer->num_pages * args.layer->page_size;
    rule.keys = {0, slots < INT32_MAX ? static_cast<int32_t>(slots) : INT32_MAX};
  } else {
    kvc_backend_item all_keys = item;  // the range of `item` is a range of places in the list, not of keys
    all_keys.key_begin = 0;
    all_keys.key_end = INT32_MAX;
    rule.mask = query_mask(&args, &all_keys, item.row, query);
    rule.tree = tree_of_row(&args.plan->arrays.rows, item.row);
    rule.keys = rule.mask.keys;
  }
  if (rule.keys.begin >= rule.keys.end) return rule;
  rule.units = {rule.keys.begin / rule.block_tokens, (rule.keys.end - 1) / rule.block_tokens + 1};
  return rule;
}

// Appends the keys of a unit that the query sees. Returns the new end of the array.
int32_t* add_unit(const ListRule& rule, int32_t unit, int32_t* out) {
  const int32_t begin = unit * rule.block_tokens;
  const KeyRange keys = intersect(rule.keys, {begin, begin + rule.block_tokens});
  for (int32_t key = keys.begin; key < keys.end; ++key) {
    *out = key;
    out += key < rule.tree.begin || sees_node(&rule.tree, &rule.mask, key) ? 1 : 0;
  }
  return out;
}

// Sorts units[0, n) by a radix sort. No unit is negative. `other` has room for n units too. Returns the array that
// holds the result: `units` or `other`.
int32_t* sort_units(int32_t n, int32_t* units, int32_t* other) {
  int32_t all = 0;
  for (int32_t i = 0; i < n; ++i) all |= units[i];
  for (int shift = 0; shift < 31 && all >> shift != 0; shift += kDigitBits) {
    int32_t begin[kDigits + 1] = {};
    for (int32_t i = 0; i < n; ++i) ++begin[((units[i] >> shift) & (kDigits - 1)) + 1];
    for (int d = 0; d < kDigits; ++d) begin[d + 1] += begin[d];
    for (int32_t i = 0; i < n; ++i) other[begin[(units[i] >> shift) & (kDigits - 1)]++] = units[i];
    int32_t* const sorted = other;
    other = units;
    units = sorted;
  }
  return units;
}

}  // namespace

void find_listed_keys(const kvc_backend_attend& args, const kvc_backend_item& item, ListScratch* scratch,
                      ListedQuery* listed) {
  const kvc_backend_lists& lists = args.lists;
  const int32_t query = item.q_begin + listed->query;
  const int64_t token = args.plan->arrays.rows.token_begin[item.row] + query;
  const ListRule rule = rule_of(args, item, query);
  const int32_t* const entries =
      lists.entries + item.row * lists.row_stride + token * lists.token_stride + listed->head_begin * lists.head_stride;
  int32_t count = 0, last = -1;
  bool ascends = true;
  for (int32_t i = 0; i < lists.num_entries; ++i) {
    const int32_t unit = __atomic_load_n(entries + i, __ATOMIC_RELAXED);
    if (!rule.takes(unit)) continue;
    ascends = ascends && unit > last;
    last = unit;
    scratch->units[count++] = unit;
  }
  int32_t* units = scratch->units;
  if (!ascends) {
    units = sort_units(count, scratch->units, scratch->keys);
    if (units != scratch->units) {
      memcpy(scratch->units, units, static_cast<size_t>(count) * sizeof *units);
      units = scratch->units;
    }
  }
  int32_t* end = scratch->keys;
  for (int32_t i = 0; i < count; ++i) {
    if (i == 0 || units[i] != units[i - 1]) end = add_unit(rule, units[i], end);
  }
  listed->keys = scratch->keys;
  listed->num_keys = static_cast<int32_t>(end - scratch->keys);
}

}  // namespace kvc::kernels
