// Graphs. A graph has one step with its own buffers. The id of the step and the addresses of the buffers never change.
#include <cinttypes>

#include "cache/cache_steps.h"

namespace kvc {
namespace {

Status check_limit(const char* name, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %" PRId64 " is not in 0..%" PRId64, name, value, most);
}

}  // namespace

Status CacheSteps::resolve_graph(kvc_forward id, int32_t* index) const {
  const int32_t candidate = ids_.slot_of(id);
  if (candidate >= core_.geometry.max_open_forwards && candidate < static_cast<int32_t>(core_.steps.size()) &&
      core_.steps[static_cast<size_t>(candidate)] && step_id(candidate) == id) {
    *index = candidate;
    return Status();
  }
  return Status::error(KVC_ERROR_STALE_ID, "graph %" PRIu64 " is no graph of this cache", id);
}

Status CacheSteps::create_graph(const kvc_graph_config& config, kvc_forward* out) {
  if (config.flags != 0 || config.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s 0x%x is not 0", config.flags != 0 ? "flags" : "reserved",
                         config.flags != 0 ? config.flags : config.reserved);
  }
  KVC_TRY(check_limit("max_sequences", config.max_sequences, core_.geometry.limits.rows));
  KVC_TRY(check_limit("max_tokens", config.max_tokens, core_.geometry.limits.tokens));
  KVC_TRY(check_limit("max_pages_per_row", config.max_pages_per_row, 1 << 26));
  KVC_TRY(check_no_compressed_group("a graph"));
  BatchLimits limits = core_.geometry.limits;
  if (config.max_sequences > 0) limits.rows = config.max_sequences;
  if (config.max_tokens > 0) limits.tokens = config.max_tokens;
  std::unique_ptr<Step> step;
  KVC_TRY(Step::create_graph(core_.layers, limits, config.max_pages_per_row, &step));
  MutexLock lock(core_.mutex);
  int32_t index = core_.geometry.max_open_forwards;
  while (index < static_cast<int32_t>(core_.steps.size()) && core_.steps[static_cast<size_t>(index)]) ++index;
  if (index == static_cast<int32_t>(core_.steps.size())) {
    return Status::error(KVC_ERROR_TOO_MANY_FORWARDS, "%d graphs exist already", kMaxGraphs)
        .missing(kMaxGraphs + 1, kMaxGraphs);
  }
  step->set_generation(++graphs_made_);
  core_.steps[static_cast<size_t>(index)] = std::move(step);
  *out = step_id(index);
  return Status();
}

Status CacheSteps::destroy_graph(kvc_forward id) {
  std::unique_ptr<Step> step;  // freed outside the lock
  MutexLock lock(core_.mutex);
  int32_t index = -1;
  KVC_TRY(resolve_graph(id, &index));
  if (core_.steps[static_cast<size_t>(index)]->is_open()) {
    return Status::error(KVC_ERROR_BUSY, "a forward is open in graph %" PRIu64, id);
  }
  step = std::move(core_.steps[static_cast<size_t>(index)]);
  return Status();
}

}  // namespace kvc
