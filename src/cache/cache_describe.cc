// The text of kvc_cache_describe. docs/reference/describe.md lists its fields.
#include "cache/cache.h"

namespace kvc {
namespace {

// Flags of a run of pages in the map of a group.
constexpr uint8_t kUsed = 1;
constexpr uint8_t kPublished = 2;
constexpr uint8_t kPinned = 4;

void describe_tiers(const kvc_tier_traffic& traffic, JsonText* out) {
  out->open('{');
  out->member("tiers", traffic.num_tiers);
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

void Cache::describe_group(int32_t group, std::span<const PageUsers> users, JsonText* out) const {
  const GroupRules& rules = store_.rules(group);
  const RefPool& pages = store_.table(group).pages();
  kvc_stats stats;
  kvc_stats_init(&stats);
  count(group, &stats);
  out->open('{');
  out->name("row").text(rules.holds_state() ? "state" : rules.row == RowKind::kLatent ? "latent" : "kv");
  out->name("visibility")
      .text(rules.encoder              ? "encoder"
            : rules.visible.window > 0 ? "window"
            : rules.visible.chunk > 0  ? "chunk"
                                       : "all");
  out->member("window_tokens", rules.visible.window);
  out->member("chunk_tokens", rules.visible.chunk);
  out->member("page_size", rules.holds_state() ? 0 : rules.page_size);
  out->member("page_bytes", geometry_.group_page_bytes(group));
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
  if (prefixes_) {
    prefixes_->for_each_pinned([&](int32_t g, int32_t page) {
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

void Cache::describe_steps(std::span<const int32_t> numbers, JsonText* out) const {
  out->open('[');
  for_each_open([&](const Step& step) {
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

std::string Cache::describe() {
  kvc_tier_traffic traffic;
  kvc_tier_traffic_init(&traffic);
  JsonText out;
  std::vector<std::vector<PageUsers>> users;
  std::vector<int32_t> numbers;
  MutexLock lock(mutex_);
  count_traffic(&traffic);
  out.open('{');
  out.name("sequences");
  store_.describe(&out, &users, &numbers);
  out.name("groups").open('[');
  for (int32_t g = 0; g < num_groups(); ++g) describe_group(g, users[static_cast<size_t>(g)], &out);
  out.close(']');
  out.name("steps");
  describe_steps(numbers, &out);
  out.name("prefix");
  if (prefixes_) {
    out.open('{');
    out.member("blocks", prefixes_->index().used_blocks());
    out.member("pins", prefixes_->num_pins());
    out.member("attaches", prefixes_->counts().attaches);
    out.member("attached_tokens", prefixes_->counts().attached_tokens);
    out.close('}');
  } else {
    out.null();
  }
  out.name("tiers");
  if (traffic.num_tiers > 0) {
    describe_tiers(traffic, &out);
  } else {
    out.null();
  }
  out.close('}');
  return out.take();
}

}  // namespace kvc
