#include "context/fault_text.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace kvc {
namespace {

constexpr std::array kCalls = {"kvc_flash_attn_with_kvcache", "kvc_append_slots", "kvc_plan_build"};
constexpr std::array kArrays = {"cache_seqlens", "seqused_k",        "cache_batch_idx", "cache_leftpad",
                                "cu_seqlens_q",  "cu_seqlens_k_new", "rotary_seqlens",  "block_table",
                                "slot_mapping",  "positions",        "seq_lens",        "append_lengths",
                                "rows",          "encoder_lens",     "tree_parents",    "req_to_token"};

template <size_t N>
const char* name_at(const std::array<const char*, N>& names, int32_t i) {
  return i >= 0 && static_cast<size_t>(i) < N ? names[static_cast<size_t>(i)] : "(unknown)";
}

}  // namespace

Status status_of_fault(const kvc_backend_fault& fault) noexcept {
  const char *const call = name_at(kCalls, fault.call), *const array = name_at(kArrays, fault.array);
  char place[64];
  if (fault.table_row >= 0) {
    snprintf(place, sizeof place, "%s[%" PRId64 ", %" PRId64 "]", array, fault.table_row, fault.column);
  } else {
    snprintf(place, sizeof place, "%s[%" PRId64 "]", array, fault.column >= 0 ? fault.column : fault.row);
  }
  char what[160];
  switch (fault.kind) {
    case KVC_BACKEND_FAULT_PAGE:
      snprintf(what, sizeof what, "%s is %" PRId64 ": a page of %" PRId64 " tokens does not begin there", place,
               fault.value, fault.most);
      break;
    case KVC_BACKEND_FAULT_COLUMNS:
      snprintf(what, sizeof what, "%" PRId64 " columns of %s are needed, which has %" PRId64, fault.value, array,
               fault.most);
      break;
    case KVC_BACKEND_FAULT_PAGES:
      snprintf(what, sizeof what, "%" PRId64 " pages of %s exceed the plan's %" PRId64, fault.value, array, fault.most);
      break;
    case KVC_BACKEND_FAULT_SUM:
      snprintf(what, sizeof what, "%s of all rows make %" PRId64 ", and there is room for %" PRId64, array, fault.value,
               fault.most);
      break;
    default:
      snprintf(what, sizeof what, "%s is %" PRId64 ", not in %" PRId64 "..%" PRId64, place, fault.value, fault.least,
               fault.most);
  }
  char row[40] = "";
  if (fault.row >= 0) snprintf(row, sizeof row, ", row %" PRId64, fault.row);
  return Status::error(KVC_ERROR_EARLIER_CALL, "an earlier %s%s: %s", call, row, what).at(fault.row);
}

}  // namespace kvc
