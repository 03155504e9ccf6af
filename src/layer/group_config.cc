#include "layer/group_config.h"

#include <cinttypes>

#include "base/limits.h"

namespace kvc {

Status check_group_field(int64_t index, const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %" PRId64 ": %s %" PRId64 " is outside %" PRId64 "..%" PRId64,
                       index, name, value, low, high)
      .at(index)
      .in_group(index);
}

namespace {

constexpr const char* kRowNames[] = {"KVC_ROW_KV", "KVC_ROW_LATENT", "KVC_ROW_STATE"};
constexpr const char* kVisibilityNames[] = {"KVC_VISIBLE_ALL", "KVC_VISIBLE_WINDOW", "KVC_VISIBLE_CHUNK",
                                            "KVC_VISIBLE_ENCODER"};

// Checks a number that belongs to one visibility. With any other visibility, the number must be 0.
Status check_reach(const char* field, int64_t tokens, int32_t visibility, int32_t needed_by, int64_t index) {
  const bool needed = visibility == needed_by;
  if (needed ? tokens >= 1 && tokens <= kMaxLength : tokens == 0) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %" PRId64 ": %s %" PRId64 " with %s is outside %s", index,
                       field, tokens, kVisibilityNames[visibility], needed ? "1..2^30" : "0..0")
      .at(index)
      .in_group(index);
}

// Reads how many tokens a row of a group represents.
Status read_tokens_per_row(const kvc_group_config& config, int64_t index, int64_t page_size, GroupRules* out) {
  KVC_TRY(check_group_field(index, "tokens_per_row", config.tokens_per_row, 0, page_size));
  if (config.tokens_per_row <= 1) return Status();
  const auto refuse = [&](const char* why) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %" PRId64 ": tokens_per_row %d with %s, %s", index,
                         config.tokens_per_row,
                         config.row == KVC_ROW_STATE ? kRowNames[config.row] : kVisibilityNames[config.visibility], why)
        .at(index)
        .in_group(index);
  };
  if (config.row == KVC_ROW_STATE) return refuse("which has no rows");
  if (config.visibility != KVC_VISIBLE_ALL) return refuse("and only KVC_VISIBLE_ALL goes with it");
  if (page_size % config.tokens_per_row != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "group %" PRId64 ": tokens_per_row %d does not divide the page size of %" PRId64 " tokens",
                         index, config.tokens_per_row, page_size)
        .at(index)
        .in_group(index);
  }
  out->tokens_per_row = config.tokens_per_row;
  return Status();
}

}  // namespace

Status read_group(const kvc_group_config& config, int64_t index, int64_t page_size, GroupRules* out) {
  KVC_TRY(check_group_field(index, "row", config.row, KVC_ROW_KV, KVC_ROW_STATE));
  KVC_TRY(check_group_field(index, "visibility", config.visibility, KVC_VISIBLE_ALL, KVC_VISIBLE_ENCODER));
  if (config.row == KVC_ROW_STATE && config.visibility != KVC_VISIBLE_ALL) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "group %" PRId64 ": %s with %s: a state is of all tokens, and queries see no keys of it",
                         index, kRowNames[config.row], kVisibilityNames[config.visibility])
        .at(index)
        .in_group(index);
  }
  KVC_TRY(check_reach("window_tokens", config.window_tokens, config.visibility, KVC_VISIBLE_WINDOW, index));
  KVC_TRY(check_reach("chunk_tokens", config.chunk_tokens, config.visibility, KVC_VISIBLE_CHUNK, index));
  KVC_TRY(check_group_field(index, "num_pages", config.num_pages, 0, kMaxPages));
  KVC_TRY(read_tokens_per_row(config, index, page_size, out));
  out->row = config.row == KVC_ROW_STATE    ? RowKind::kState
             : config.row == KVC_ROW_LATENT ? RowKind::kLatent
                                            : RowKind::kKeyValue;
  out->visible.window = static_cast<int32_t>(config.window_tokens);
  out->visible.chunk = static_cast<int32_t>(config.chunk_tokens);
  out->encoder = config.visibility == KVC_VISIBLE_ENCODER;
  return Status();
}

Status check_compressed_groups(const std::vector<SequenceStoreConfig::Group>& groups, bool streaming,
                               bool tables_only) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].rules.compresses() || (!streaming && !tables_only)) continue;
    const auto index = static_cast<int64_t>(g);
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %zu: tokens_per_row %" PRId64 " with %s", g,
                         groups[g].rules.tokens_per_row,
                         streaming ? "KVC_CACHE_STREAMING" : "KVC_STORAGE_NONE, which hands out copies of tokens")
        .at(index)
        .in_group(index);
  }
  return Status();
}

Status check_layer_of_group(const kvc_layer_config& config, int64_t index, const GroupRules& rules) {
  if (config.latent_dim != 0 && rules.row != RowKind::kLatent) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": latent_dim %d, and the rows of group %d are not KVC_ROW_LATENT", index,
                         config.latent_dim, config.group)
        .at(index);
  }
  if (config.rope_mode != KVC_ROPE_NONE && rules.compresses()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": rope_mode %d, and a row of group %d stands for %" PRId64
                         " tokens: rotate rows before they are appended",
                         index, config.rope_mode, config.group, rules.tokens_per_row)
        .at(index);
  }
  if (config.rope_mode != KVC_ROPE_NONE && rules.encoder) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64
                         ": rope_mode %d, and group %d is KVC_VISIBLE_ENCODER: its keys have no place among the "
                         "sequence's positions",
                         index, config.rope_mode, config.group)
        .at(index);
  }
  return Status();
}

}  // namespace kvc
