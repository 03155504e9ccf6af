// docs/reference/describe.md lists the fields of a description.
#include "cache/cache_reports.h"

#include <algorithm>

namespace kvc {
namespace {

// Flags of a run of pages in the map of a group.
constexpr uint8_t kUsed = 1;
constexpr uint8_t kPublished = 2;
constexpr uint8_t kPinned = 4;

void describe_tiers(const kvc_tier_traffic& traffic, int64_t by_io_uring, JsonText* out) {
  out->open('{');
  out->member("tiers", traffic.num_tiers);
  out->member("tiers_by_io_uring", by_io_uring);
  out->member("pages_waiting", traffic.pages_waiting);
  out->member("pages_stored", traffic.pages_stored);
  out->member("pages_dropped", traffic.pages_dropped);
  out->member("pages_not_stored", traffic.pages_not_stored);
  out->member("pages_loading", traffic.pages_loading);
  out->member("pages_loaded", traffic.pages_loaded);
  out->member("pages_not_loaded", traffic.pages_not_loaded);
  out->member("sequences_suspended", traffic.sequences_suspended);
  out->close('}');
}

}  // namespace

Status CacheReports::stats(int32_t group, kvc_stats* out) {
  KVC_TRY(core_.layers.check_group(group, true));
  MutexLock lock(core_.mutex);
  count(group, out);
  return Status();
}

void CacheReports::count(int32_t group, kvc_stats* out) const {
  out->num_sequences = static_cast<int32_t>(core_.store.num_sequences() - core_.store.num_removed());
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    if (group >= 0 && g != group) continue;
    const SequenceStore::Counts counts = core_.store.count(g);
    const RefPool& pages = core_.store.table(g).pages();
    const int64_t page_bytes = core_.geometry.group_page_bytes(g);
    out->pages_total += pages.size();
    out->pages_used += pages.used();
    out->pages_free += pages.free();
    out->pages_peak += pages.peak();
    out->pages_shared += counts.pages_shared;
    out->tokens_held = std::max(out->tokens_held, counts.tokens_held);
    out->tokens_shared = std::max(out->tokens_shared, counts.tokens_shared);
    if (group >= 0 || !core_.rules(g).holds_encoder()) out->tokens_logical = counts.tokens_logical;
    if (!core_.rules(g).holds_state()) {
      const int64_t in_use = pages.used() - pages.idle();
      out->fragmentation_bytes += in_use * page_bytes - counts.tokens_held * core_.geometry.group_token_bytes(g);
    }
    out->pages_published += pages.indexed();
    out->pages_idle += pages.idle();
    if (core_.prefixes) out->pages_evicted += core_.prefixes->evicted(g);
    out->storage_bytes += core_.geometry.group_storage_bytes(g);
  }
  if (!core_.prefixes) return;
  out->prefix_attaches = core_.prefixes->counts().attaches;
  out->prefix_tokens = core_.prefixes->counts().attached_tokens;
}

uint64_t CacheReports::digest() {
  MutexLock lock(core_.mutex);
  const uint64_t sequences = core_.copies.queue().digest(core_.rope_sets.digest(core_.store.digest()));
  return core_.prefixes ? core_.prefixes->digest(sequences) : sequences;
}

Status CacheReports::check_invariants() {
  MutexLock lock(core_.mutex);
  std::vector<std::span<const Reservation>> open_steps;
  core_.for_each_open([&](const Step& step) { open_steps.push_back(step.reservations()); });
  if (!core_.prefixes) return core_.store.check_invariants(open_steps);
  KVC_TRY(core_.prefixes->check_invariants());
  return core_.store.check_invariants(open_steps, core_.prefixes->references());
}

void CacheReports::describe_group(int32_t group, std::span<const PageUsers> users, JsonText* out) const {
  const GroupRules& rules = core_.rules(group);
  const RefPool& pages = core_.store.table(group).pages();
  kvc_stats stats;
  kvc_stats_init(&stats);
  count(group, &stats);
  out->open('{');
  out->name("row").text(rules.row_name());
  out->name("visibility")
      .text(rules.encoder              ? "encoder"
            : rules.visible.window > 0 ? "window"
            : rules.visible.chunk > 0  ? "chunk"
                                       : "all");
  out->member("window_tokens", rules.visible.window);
  out->member("chunk_tokens", rules.visible.chunk);
  out->member("page_size", rules.holds_state() ? 0 : rules.page_size);
  out->member("page_bytes", core_.geometry.group_page_bytes(group));
  out->member("pages_total", stats.pages_total);
  out->member("pages_used", stats.pages_used);
  out->member("pages_free", stats.pages_free);
  out->member("pages_shared", stats.pages_shared);
  out->member("pages_peak", stats.pages_peak);
  out->member("pages_published", stats.pages_published);
  out->member("pages_idle", stats.pages_idle);
  out->member("pages_evicted", stats.pages_evicted);
  out->member("tokens_held", stats.tokens_held);
  out->member("tokens_shared", stats.tokens_shared);
  out->member("tokens_logical", stats.tokens_logical);
  out->member("fragmentation_bytes", stats.fragmentation_bytes);
  out->member("storage_bytes", stats.storage_bytes);

  std::vector<uint8_t> flags(users.size());
  for (size_t page = 0; page < flags.size(); ++page) {
    const auto id = static_cast<int32_t>(page);
    if (pages.refs(id) > 0) flags[page] = pages.is_indexed(id) ? kUsed | kPublished : kUsed;
  }
  if (core_.prefixes) {
    core_.prefixes->for_each_pinned([&](int32_t g, int32_t page) {
      if (g == group) flags[static_cast<size_t>(page)] |= kPinned;
    });
  }
  out->name("map").open('[');
  for (size_t begin = 0, end = 0; begin < users.size(); begin = end) {
    while (end < users.size() && users[end].count == users[begin].count && flags[end] == flags[begin]) ++end;
    out->open('[');
    out->number(static_cast<int64_t>(end - begin));
    out->number(users[begin].count);
    out->number(flags[begin]);
    out->close(']');
  }
  out->close(']');
  out->close('}');
}

void CacheReports::describe_steps(std::span<const int32_t> numbers, JsonText* out) const {
  out->open('[');
  core_.for_each_open([&](const Step& step) {
    out->open('{');
    out->name("graph").flag(step.is_graph());
    out->name("cancelled").flag(step.cancelled());
    out->member("layer_begin", step.kind().layers.begin);
    out->member("layer_end", step.kind().layers.end);
    out->member("encoder_group", step.kind().encoder_group);
    out->name("sequences").open('[');
    for (const int32_t slot : step.slots()) out->number(slot < 0 ? -1 : numbers[static_cast<size_t>(slot)]);
    out->close(']');
    out->name("lengths").open('[');
    for (const int32_t length : step.lengths()) out->number(length);
    out->close(']');
    out->close('}');
  });
  out->close(']');
}

std::string CacheReports::describe() {
  kvc_tier_traffic traffic;
  kvc_tier_traffic_init(&traffic);
  JsonText out;
  std::vector<std::vector<PageUsers>> users;
  std::vector<int32_t> numbers;
  MutexLock lock(core_.mutex);
  tiers_.count(&traffic);
  out.open('{');
  out.name("sequences");
  core_.store.describe(&out, &users, &numbers);
  out.name("groups").open('[');
  for (int32_t g = 0; g < core_.num_groups(); ++g) describe_group(g, users[static_cast<size_t>(g)], &out);
  out.close(']');
  out.name("steps");
  describe_steps(numbers, &out);
  out.name("prefix");
  if (core_.prefixes) {
    out.open('{');
    out.member("blocks", core_.prefixes->index().used_blocks());
    out.member("pins", core_.prefixes->num_pins());
    out.member("attaches", core_.prefixes->counts().attaches);
    out.member("attached_tokens", core_.prefixes->counts().attached_tokens);
    out.close('}');
  } else {
    out.null();
  }
  out.name("tiers");
  if (traffic.num_tiers > 0) {
    describe_tiers(traffic, tiers_.jobs()->num_by_io_uring(), &out);
  } else {
    out.null();
  }
  out.close('}');
  return out.take();
}

}  // namespace kvc
