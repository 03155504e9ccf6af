#include "cache/cache.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>

namespace kvc {
namespace {

// The number of the next cache that this process creates. The ids of a cache contain its number.
constinit std::atomic<uint32_t> next_tag{1};

}  // namespace

Cache::Cache(std::unique_ptr<Layers> layers, uint32_t tag)
    : owned_layers_(std::move(layers)),
      layers_(*owned_layers_),
      context_(layers_.context()),
      geometry_(layers_.geometry()),
      step_ids_(IdKind::kForward, tag, geometry_.max_open_forwards + kMaxGraphs),
      store_([&] {
        SequenceStoreConfig config = geometry_.store;
        config.cache_tag = tag;
        return config;
      }()),
      rope_sets_(geometry_.has_rope_sets() ? geometry_.store.max_sequences : 0),
      batch_(geometry_.limits) {
  const auto copies = static_cast<size_t>(geometry_.limits.rows) * geometry_.store.groups.size();
  checked_slots_.resize(static_cast<size_t>(geometry_.limits.rows));
  copies_.reserve(copies);
  layer_copies_.reserve(copies);
  if (geometry_.store.indexed) prefixes_ = std::make_unique<PrefixStore>(geometry_.prefixes, &store_);
  if (geometry_.tables_only) copy_queue_.reserve(2 * static_cast<int64_t>(copies));
}

Status Cache::create(std::shared_ptr<Context> context, const CacheConfig& config, std::unique_ptr<Cache>* out) {
  Geometry geometry;
  KVC_TRY(make_geometry(*context, config, &geometry));
  std::unique_ptr<Layers> layers;
  KVC_TRY(Layers::create(std::move(context), std::move(geometry), &layers));
  const uint32_t tag = next_tag.fetch_add(1, std::memory_order_relaxed) & kTagMask;
  std::unique_ptr<Cache> cache(new Cache(std::move(layers), tag));
  KVC_TRY(cache->create_mirrors());
  KVC_TRY(cache->create_events());
  for (int32_t i = 0; i < cache->geometry_.max_open_forwards; ++i) {
    std::unique_ptr<Step> step;
    KVC_TRY(Step::create(cache->layers_, &step));
    cache->steps_.push_back(std::move(step));
  }
  cache->steps_.resize(cache->steps_.size() + kMaxGraphs);
  cache->owned_layers_->take_ownership();  // nothing can fail from here on
  *out = std::move(cache);
  return Status();
}

// Creates order_, and the device's copies of the page lists. There are no copies if the device reads the host's lists,
// or if the cache has no storage.
Status Cache::create_mirrors() {
  KVC_TRY(StreamOrder::create(context_, &order_));
  mirrors_.resize(static_cast<size_t>(num_groups()));
  if (context_->backend().mirror_create == nullptr || geometry_.tables_only) return Status();
  MutexLock lock(mutex_);
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (store_.rules(g).holds_state()) continue;
    const PageTable& table = store_.table(g);
    store_.track_changed_nodes(g);
    KVC_TRY(NodeMirror::create(context_, table.node_data(), table.nodes().size(), &mirrors_[static_cast<size_t>(g)]));
  }
  node_changes_.reserve(mirrors_.size());
  return Status();
}

Status Cache::check_usable() const {
  const kvc_backend& backend = context_->backend();
  if (backend.health == nullptr) return Status();
  kvc_error error = KVC_ERROR_INIT;
  KVC_TRY(Status::from(backend.health(context_->device(), &error), error));
  return order_.check();
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
                              EventRing::bytes_needed(geometry.events_capacity, geometry.page_size);
  }
  out->scratch_bytes = Forward::scratch_bytes(context, geometry, classes) +
                       RopeTables::bytes_needed(geometry.rope_classes) +
                       (geometry.tables_only ? 0 : LatentScratch::bytes_needed(context, geometry));
  return Status();
}

Cache::~Cache() {
  for_each_open([&](const Step&) { context_->pool().keep_awake(-1); });
}

Status Cache::add(std::span<kvc_seq> out) {
  MutexLock lock(mutex_);
  return store_.add(out);
}

Status Cache::remove(std::span<const kvc_seq> ids) {
  MutexLock lock(mutex_);
  KVC_TRY(store_.remove(ids));
  for (kvc_seq id : ids) rope_sets_.set(store_.slot_of(id), KVC_ROPE_SET_SHORT);
  if (owned_tiers_) {
    for (kvc_seq id : ids) owned_tiers_->forget(id);
  }
  return Status();
}

Status Cache::fork(std::span<const kvc_seq> parents, std::span<const int64_t> positions, std::span<kvc_seq> children,
                   void* stream) {
  KVC_TRY(context_->check_stream(stream));
  MutexLock lock(mutex_);
  KVC_TRY(make_room_for_copies(static_cast<int64_t>(children.size()) * num_groups()));
  copies_.clear();
  KVC_TRY(store_.fork(parents, positions, children, &copies_));
  Status copied = copy_slots(copies_, stream);
  if (copied.ok()) {
    for (size_t i = 0; i < children.size(); ++i) {
      rope_sets_.set(store_.slot_of(children[i]), rope_sets_.of(store_.slot_of(parents[i])));
    }
    return Status();
  }
  Status undone = store_.remove(children);
  return undone.ok() ? std::move(copied) : std::move(undone);
}

Status Cache::truncate(std::span<const kvc_seq> ids, std::span<const int64_t> lengths) {
  MutexLock lock(mutex_);
  KVC_TRY(store_.truncate(ids, lengths));
  for (size_t i = 0; transfers_ && i < ids.size(); ++i) transfers_->note_cut(ids[i], lengths[i]);
  return Status();
}

Status Cache::commit(std::span<const kvc_seq> ids, std::span<const int32_t> leaves, void* stream) {
  KVC_TRY(context_->check_stream(stream));
  MutexLock lock(mutex_);
  copies_.clear();
  KVC_TRY(store_.plan_commit(ids, leaves, &copies_));
  KVC_TRY(make_room_for_copies(static_cast<int64_t>(copies_.size())));
  bool begun = false;
  if (Status copied = copy_slots(copies_, stream, &begun); !copied.ok()) {
    if (begun) order_.lose();  // nodes may have overwritten other nodes, so the commit cannot be repeated
    return copied;
  }
  store_.finish_commit(ids, leaves);
  return Status();
}

Status Cache::clear() {
  MutexLock lock(mutex_);
  bool busy = false;
  for_each_open([&](const Step&) { busy = true; });
  if (busy) return Status::error(KVC_ERROR_BUSY, "a forward is open");
  if (const CacheTiers* tiers = tiers_; tiers != nullptr && tiers->has_jobs()) {
    return Status::error(KVC_ERROR_BUSY, "a job runs: cancel it, and poll it until it is done");
  }
  if (transfers_ && transfers_->receives()) {
    return Status::error(KVC_ERROR_BUSY, "a sequence is being received: cancel the transfer");
  }
  KVC_TRY(store_.clear());
  if (owned_tiers_) owned_tiers_->forget_all();
  if (prefixes_) prefixes_->clear();
  copy_queue_.clear();
  rope_sets_.clear();
  return Status();
}

Status Cache::lengths(std::span<const kvc_seq> ids, std::span<int64_t> out) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = store_.length(store_.slot_of(ids[i]));
  return Status();
}

Status Cache::tree_nodes(std::span<const kvc_seq> ids, std::span<int32_t> out) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = store_.nodes(store_.slot_of(ids[i]));
  return Status();
}

Status Cache::checkpoint(std::span<const kvc_seq> ids) {
  MutexLock lock(mutex_);
  if (ids.empty()) return Status();
  if (!store_.has_states()) return Status::error(KVC_ERROR_UNSUPPORTED, "no group is KVC_ROW_STATE");
  return store_.checkpoint(ids);
}

Status Cache::encoder_lengths(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out) {
  KVC_TRY(layers_.check_group(group, false));
  MutexLock lock(mutex_);
  if (ids.empty()) return Status();
  if (!store_.rules(group).holds_encoder()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %d is not KVC_VISIBLE_ENCODER", group);
  }
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = store_.length_in(store_.slot_of(ids[i]), group);
  return Status();
}

Status Cache::pages(kvc_seq id, int32_t group, std::span<int32_t> out, int64_t* count) {
  KVC_TRY(layers_.check_group(group, false));
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(store_.resolve(id, 0, &slot));
  *count = ceil_div(store_.length_in(slot, group), store_.rules(group).page_size);
  if (out.empty()) return Status();
  if (*count > static_cast<int64_t>(out.size())) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " entries do not fit in a capacity of %zu", *count,
                         out.size())
        .missing(*count, static_cast<int64_t>(out.size()));
  }
  std::fill_n(out.begin(), *count, -1);
  store_.table(group).for_each(store_.list(slot, group), 0, *count,
                               [&](int64_t index, int32_t page) { out[static_cast<size_t>(index)] = page; });
  if (!store_.busy(slot)) return Status();
  // An open step may have replaced a shared last page with a copy. Until the step ends, report the original page.
  for_each_open([&](const Step& step) {
    const auto rows = step.slots();
    const auto row = std::find(rows.begin(), rows.end(), slot);
    if (row == rows.end()) return;
    const Reservation& reservation =
        step.reservations()[static_cast<size_t>((row - rows.begin()) * num_groups() + group)];
    if (reservation.copied_from < 0 || reservation.old_size > *count) return;  // no copy, or a copy of tree nodes
    out[static_cast<size_t>(reservation.old_size - 1)] = reservation.copied_from;
  });
  return Status();
}

Status Cache::nearest_position(kvc_seq id, int64_t position, int64_t* before, int64_t* after) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(store_.resolve(id, 0, &slot));
  if (position < 0 || position > store_.length(slot)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "position %" PRId64 " is outside the sequence's length %" PRId64,
                         position, store_.length(slot));
  }
  store_.nearest_position(slot, position, before, after);
  return Status();
}

Status Cache::set_rope(std::span<const kvc_seq> ids, int32_t set) {
  if (set != KVC_ROPE_SET_SHORT && set != KVC_ROPE_SET_LONG) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "set %d is neither KVC_ROPE_SET_SHORT nor KVC_ROPE_SET_LONG", set);
  }
  if (ids.empty()) return Status();
  if (!geometry_.has_rope_sets()) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "no layer has KVC_ROPE_SCALING_LONGROPE");
  }
  const bool stored = std::any_of(geometry_.rope_classes.begin(), geometry_.rope_classes.end(),
                                  [](const RopeClass& rope) { return rope.sets.size() > 1 && !rope.on_read; });
  MutexLock lock(mutex_);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int32_t slot = -1;
    KVC_TRY(store_.resolve(ids[i], index, &slot));
    if (store_.busy(slot)) return store_.in_step(slot, index);
    if (!stored || store_.stored(slot) == 0) continue;
    return Status::error(KVC_ERROR_ORDER, "sequence %" PRIu64 " holds %" PRId64 " tokens rotated by its set", ids[i],
                         store_.stored(slot))
        .at(index);
  }
  for (kvc_seq id : ids) rope_sets_.set(store_.slot_of(id), set);
  return Status();
}

Status Cache::set_streaming(std::span<const kvc_seq> ids, std::span<const int64_t> sinks,
                            std::span<const int64_t> windows, uint32_t flags) {
  if ((flags & ~uint32_t{KVC_STREAMING_PREFIX_IS_SINK}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  if (ids.empty()) return Status();
  if (!geometry_.limits.streaming) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the cache was created without KVC_CACHE_STREAMING");
  }
  std::vector<StreamWindow> streams(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t s = sinks.empty() ? 0 : sinks[i];
    const int64_t most = windows[i] == 0 ? 0 : geometry_.store.max_length;  // without a window, sinks must be 0 too
    if (windows[i] < 0 || windows[i] > geometry_.store.max_length || s < 0 || s > most) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "window_tokens %" PRId64 " or sink_tokens %" PRId64 " at index %zu is outside 0..%" PRId64
                           " or 0..%" PRId64,
                           windows[i], s, i, geometry_.store.max_length, most)
          .at(static_cast<int64_t>(i));
    }
    streams[i] = {static_cast<int32_t>(s), static_cast<int32_t>(windows[i])};
  }
  MutexLock lock(mutex_);
  return store_.set_streams(ids, streams, (flags & KVC_STREAMING_PREFIX_IS_SINK) != 0);
}

Status Cache::streaming(std::span<const kvc_seq> ids, std::span<int64_t> sinks, std::span<int64_t> windows) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) {
    const StreamWindow stream = store_.stream(store_.slot_of(ids[i]));
    sinks[i] = stream.sinks;
    windows[i] = stream.window;
  }
  return Status();
}

Status Cache::max_append(std::span<const kvc_seq> ids, std::span<int64_t> out) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = store_.max_append(store_.slot_of(ids[i]), geometry_.limits.tokens);
  return Status();
}

Status Cache::exclusive_pages(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out) {
  KVC_TRY(layers_.check_group(group, false));
  MutexLock lock(mutex_);
  int32_t slot = -1;
  for (size_t i = 0; i < ids.size(); ++i) KVC_TRY(store_.resolve(ids[i], static_cast<int64_t>(i), &slot));
  for (size_t i = 0; i < ids.size(); ++i) out[i] = store_.exclusive_pages(store_.slot_of(ids[i]), group);
  return Status();
}

Status Cache::stats(int32_t group, kvc_stats* out) {
  KVC_TRY(layers_.check_group(group, true));
  MutexLock lock(mutex_);
  count(group, out);
  return Status();
}

void Cache::count(int32_t group, kvc_stats* out) const {
  out->num_sequences = static_cast<int32_t>(store_.num_sequences() - store_.num_removed());
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (group >= 0 && g != group) continue;
    const SequenceStore::Counts counts = store_.count(g);
    const RefPool& pages = store_.table(g).pages();
    const int64_t page_bytes = geometry_.group_page_bytes(g);
    out->pages_total += pages.size();
    out->pages_used += pages.used();
    out->pages_free += pages.free();
    out->pages_peak += pages.peak();
    out->pages_shared += counts.pages_shared;
    out->tokens_held = std::max(out->tokens_held, counts.tokens_held);
    out->tokens_shared = std::max(out->tokens_shared, counts.tokens_shared);
    if (group >= 0 || !store_.rules(g).holds_encoder()) out->tokens_logical = counts.tokens_logical;
    if (!store_.rules(g).holds_state()) {
      const int64_t in_use = pages.used() - pages.idle();
      out->fragmentation_bytes += in_use * page_bytes - counts.tokens_held * geometry_.group_token_bytes(g);
    }
    out->pages_published += pages.indexed();
    out->pages_idle += pages.idle();
    if (prefixes_) out->pages_evicted += prefixes_->evicted(g);
    out->storage_bytes += geometry_.group_storage_bytes(g);
  }
  if (!prefixes_) return;
  out->prefix_attaches = prefixes_->counts().attaches;
  out->prefix_tokens = prefixes_->counts().attached_tokens;
}

uint64_t Cache::digest() {
  MutexLock lock(mutex_);
  const uint64_t sequences = copy_queue_.digest(rope_sets_.digest(store_.digest()));
  return prefixes_ ? prefixes_->digest(sequences) : sequences;
}

Status Cache::check_invariants() {
  MutexLock lock(mutex_);
  std::vector<std::span<const Reservation>> open_steps;
  for_each_open([&](const Step& step) { open_steps.push_back(step.reservations()); });
  if (!prefixes_) return store_.check_invariants(open_steps);
  KVC_TRY(prefixes_->check_invariants());
  return store_.check_invariants(open_steps, prefixes_->references());
}

namespace {

// Converts a copy of tokens to a copy of rows. Source and target begin at the same offset in their pages, except for
// nodes of a tree.
void add_copy(const GroupRules& rules, const SlotCopy& copy, std::vector<kvc_backend_slot_copy>* out) {
  const int64_t target = rules.rows_of(copy.target), count = rules.rows_of(copy.target + copy.tokens) - target;
  const int64_t source = copy.source < 0 ? -1 : rules.rows_of(copy.source);
  if (count > 0) out->push_back({source, target, static_cast<int32_t>(count), 0});
}

}  // namespace

// Makes the copies in every layer of their groups, with one call for each layer. In a cache without storage, queues the
// copies for the caller. begun: nullable, false before the call. Sets *begun, also on failure, if some copies may have
// begun.
Status Cache::copy_slots(std::span<const SlotCopy> copies, void* stream, bool* begun) {
  if (copies.empty()) return Status();
  if (geometry_.tables_only) {
    copy_queue_.add(copies);
    return Status();
  }
  KVC_TRY(order_.check_stream(stream));
  KVC_TRY(order_.enter(stream));
  bool any = false;
  Status copied = copy_layers(copies, stream, &any);
  if (begun != nullptr) *begun = any;
  Status left = order_.leave(stream);  // also after a failure: some copies may be in flight
  return copied.ok() ? std::move(left) : std::move(copied);
}

Status Cache::copy_layers(std::span<const SlotCopy> copies, void* stream, bool* begun) {
  layer_copies_.reserve(copies.size());
  for (const Layer& layer : layers_) {
    if (layer.kv_layer >= 0 || layer.states) continue;  // K and V are copied in kv_layer; states are never copied
    layer_copies_.clear();
    for (const SlotCopy& copy : copies) {
      if (copy.group == layer.group) add_copy(layers_.rules(layer), copy, &layer_copies_);
    }
    if (layer_copies_.empty()) continue;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status copied =
        context_->backend().copy_slots(context_->device(), &layer.backend, layer_copies_.data(),
                                       static_cast<int64_t>(layer_copies_.size()), stream, &error);
    // If the device failed, it may have failed after it received the copies.
    if (copied == KVC_OK || copied == KVC_ERROR_DEVICE_FAILED) *begun = true;
    KVC_TRY(Status::from(copied, error));
  }
  return Status();
}

}  // namespace kvc
