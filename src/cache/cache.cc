#include "cache/cache.h"

#include <atomic>

namespace kvc {
namespace {

// The number of the next cache that this process creates. The ids of sequences and forwards contain the number of their
// cache.
constinit std::atomic<uint32_t> next_tag{1};

}  // namespace

Status Cache::create(std::shared_ptr<Context> context, const CacheConfig& config, std::unique_ptr<Cache>* out) {
  Geometry geometry;
  KVC_TRY(make_geometry(*context, config, &geometry));
  std::unique_ptr<Layers> layers;
  KVC_TRY(Layers::create(std::move(context), std::move(geometry), &layers));
  const uint32_t tag = next_tag.fetch_add(1, std::memory_order_relaxed) & kTagMask;
  std::unique_ptr<Cache> cache(new Cache(std::move(layers), tag));
  KVC_TRY(StreamOrder::create(cache->core.context, &cache->core.order));
  KVC_TRY(cache->events.prepare());
  KVC_TRY(cache->steps.prepare());
  cache->core.owned_layers->take_ownership();  // nothing can fail from here on
  *out = std::move(cache);
  return Status();
}

Status Cache::estimate(const Context& context, const CacheConfig& config, int32_t group, kvc_estimate* out) {
  Geometry geometry;
  KVC_TRY(make_geometry(context, config, &geometry));
  const auto groups = static_cast<int32_t>(geometry.store.groups.size());
  if (group < -1 || group >= groups) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "group %d is outside [-1, %d)", group, groups);
  }
  if (group >= 0) {
    const int64_t page_bytes = geometry.group_page_bytes(group);
    SequenceStoreConfig alone = geometry.store;
    alone.groups = {geometry.store.groups[static_cast<size_t>(group)]};
    out->num_pages = alone.groups[0].num_pages;
    out->page_bytes = page_bytes;
    out->token_bytes = geometry.group_token_bytes(group);
    out->storage_bytes = geometry.group_storage_bytes(group);
    out->bookkeeping_bytes = SequenceStore::bytes_needed(alone);
    return Status();
  }
  const std::vector<WorkClass> classes = Layers::classes_of(context, geometry, nullptr);
  for (int32_t g = 0; g < groups; ++g) {
    out->num_pages += geometry.store.groups[static_cast<size_t>(g)].num_pages;
    out->token_bytes += geometry.group_token_bytes(g);
  }
  out->storage_bytes = geometry.storage_bytes();
  out->bookkeeping_bytes = SequenceStore::bytes_needed(geometry.store);
  if (geometry.store.indexed) {
    const PrefixStore::Config& prefixes = geometry.prefixes;
    out->bookkeeping_bytes += PrefixIndex::bytes_needed(groups, prefixes.page_size, prefixes.max_blocks,
                                                        prefixes.max_checkpoints, prefixes.fingerprint.has_value()) +
                              EventRing::bytes_needed(geometry.events_capacity, geometry.page_size) +
                              TierPages::bytes_needed(geometry.events_tier_pages, geometry.page_size);
  }
  out->scratch_bytes = Forward::scratch_bytes(context, geometry, classes) +
                       RopeTables::bytes_needed(geometry.rope_classes) +
                       (geometry.tables_only ? 0 : LatentScratch::bytes_needed(context, geometry));
  return Status();
}

}  // namespace kvc
