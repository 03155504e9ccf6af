// Graphs: forwards with buffers of their own, whose id and addresses stay from step to step.
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {
namespace {

Status check_limit(const char* name, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %" PRId64 " is not in 0..%" PRId64, name, value, most);
}

}  // namespace

Status Cache::resolve_graph(kvc_forward id, int32_t* slot) const {
  const int32_t candidate = forward_ids_.slot_of(id);
  if (candidate >= geometry_.max_open_forwards && candidate < static_cast<int32_t>(forwards_.size()) &&
      forwards_[static_cast<size_t>(candidate)] && forward_id(candidate) == id) {
    *slot = candidate;
    return Status();
  }
  return Status::error(KVC_ERROR_STALE_ID, "graph %" PRIu64 " is no graph of this cache", id);
}

Status Cache::create_graph(const kvc_graph_config& config, kvc_forward* out) {
  if (config.flags != 0 || config.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s 0x%x is not 0", config.flags != 0 ? "flags" : "reserved",
                         config.flags != 0 ? config.flags : config.reserved);
  }
  KVC_TRY(check_limit("max_sequences", config.max_sequences, geometry_.limits.rows));
  KVC_TRY(check_limit("max_tokens", config.max_tokens, geometry_.limits.tokens));
  KVC_TRY(check_limit("max_pages_per_row", config.max_pages_per_row, 1 << 26));
  Geometry sized = geometry_;
  if (config.max_sequences > 0) sized.limits.rows = config.max_sequences;
  if (config.max_tokens > 0) sized.limits.tokens = config.max_tokens;
  std::unique_ptr<Forward> forward;
  KVC_TRY(Forward::create(context_, sized, work_classes_, class_layers_, &forward));
  forward->graph = true;
  forward->tables = ForwardTables(sized.limits, config.max_pages_per_row);
  MutexLock lock(mutex_);
  int32_t slot = geometry_.max_open_forwards;
  while (slot < static_cast<int32_t>(forwards_.size()) && forwards_[static_cast<size_t>(slot)]) ++slot;
  if (slot == static_cast<int32_t>(forwards_.size())) {
    return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "%d graphs exist already", kMaxGraphs)
        .missing(kMaxGraphs + 1, kMaxGraphs);
  }
  forward->generation = ++graphs_made_;
  forwards_[static_cast<size_t>(slot)] = std::move(forward);
  *out = forward_id(slot);
  return Status();
}

Status Cache::destroy_graph(kvc_forward id) {
  std::unique_ptr<Forward> forward;  // freed outside the lock
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_graph(id, &slot));
  if (forwards_[static_cast<size_t>(slot)]->open) {
    return Status::error(KVC_ERROR_BUSY, "a forward is open in graph %" PRIu64, id);
  }
  forward = std::move(forwards_[static_cast<size_t>(slot)]);
  return Status();
}

}  // namespace kvc
