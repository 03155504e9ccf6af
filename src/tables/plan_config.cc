#include "tables/plan_config.h"

#include <cinttypes>

#include "kernels/common/table_rules.h"
#include "sequence/token_tree.h"

namespace kvc {
namespace {

Status check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %" PRId64 " is not in %" PRId64 "..%" PRId64, name, value, least,
                       most);
}

Status check_config(const kvc_plan_config& c) {
  constexpr uint32_t kFlags = KVC_PLAN_GRAPH | KVC_PLAN_PAD_VALUE | KVC_PLAN_SLOTS | KVC_PLAN_LENGTHS_WITH_NEW;
  constexpr uint32_t kArrays = KVC_TABLES_DENSE | KVC_TABLES_CSR | KVC_TABLES_TOKENS;
  if ((c.flags & ~kFlags) != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", c.flags);
  if ((c.arrays & ~kArrays) != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "arrays 0x%x has unknown bits", c.arrays);
  if (c.mode < KVC_PLAN_DECODE || c.mode > KVC_PLAN_DRAFT_DECODE) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "mode %d is not a KVC_PLAN_* mode", c.mode);
  }
  const bool verify = c.mode == KVC_PLAN_VERIFY, draft = c.mode == KVC_PLAN_DRAFT_DECODE;
  const bool graph = (c.flags & KVC_PLAN_GRAPH) != 0, extend = c.mode == KVC_PLAN_EXTEND;
  KVC_TRY(check_range("page_size", c.page_size, 1, 65536));
  KVC_TRY(check_range("num_draft_tokens", c.num_draft_tokens, verify ? 1 : 0, verify ? kMaxTreeNodes : 0));
  KVC_TRY(check_range("num_steps", c.num_steps, draft ? 1 : 0, draft ? 64 : 0));
  KVC_TRY(check_range("top_k", c.top_k, draft ? 1 : 0, draft ? 64 : 0));
  KVC_TRY(check_range("max_rows", c.max_rows, graph ? 1 : 0, graph ? kMaxPlanRows : 0));
  KVC_TRY(check_range("max_tokens", c.max_tokens, graph && extend ? 1 : 0, graph && extend ? kMaxPlanRows : 0));
  KVC_TRY(check_range("max_pages_per_row", c.max_pages_per_row, graph ? 1 : 0, graph ? 1 << 26 : 0));
  KVC_TRY(check_range("window_tokens", c.window_tokens, 0, kernels::kMaxRowTokens));
  KVC_TRY(check_range("chunk_tokens", c.chunk_tokens, 0, kernels::kMaxRowTokens));
  KVC_TRY(check_range("num_pool_pages", c.num_pool_pages, 0, kMaxPlanSlots / c.page_size));
  if (c.window_tokens > 0 && c.chunk_tokens > 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "window_tokens %" PRId64 " with chunk_tokens %" PRId64,
                         c.window_tokens, c.chunk_tokens);
  }
  if (draft && (c.flags & KVC_PLAN_LENGTHS_WITH_NEW) != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "KVC_PLAN_LENGTHS_WITH_NEW with draft steps, which add tokens one after another");
  }
  if ((c.flags & KVC_PLAN_PAD_VALUE) != 0 || c.pad_value == 0) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "pad_value %d without KVC_PLAN_PAD_VALUE", c.pad_value);
}

// Returns the config with defaults in place of zeros.
kvc_plan_config complete(kvc_plan_config config) {
  if (config.page_size == 0) config.page_size = 16;
  if (config.arrays == 0) config.arrays = KVC_TABLES_DENSE | KVC_TABLES_CSR | KVC_TABLES_TOKENS;
  if (config.mode == KVC_PLAN_DRAFT_DECODE && config.top_k == 0) config.top_k = 1;
  if ((config.flags & KVC_PLAN_PAD_VALUE) == 0 && config.pad_value == 0) {
    config.pad_value = (config.flags & KVC_PLAN_GRAPH) != 0 ? 0 : -1;
  }
  return config;
}

}  // namespace

Status complete_config(const kvc_plan_config& config, kvc_plan_config* out) {
  kvc_plan_config checked = complete(config);
  // The check must see the pad_value that the caller gave, not the default.
  if ((config.flags & KVC_PLAN_PAD_VALUE) == 0) checked.pad_value = config.pad_value;
  KVC_TRY(check_config(checked));
  *out = complete(config);
  return Status();
}

}  // namespace kvc
