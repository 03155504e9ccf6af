#include "cache/cache_core.h"

namespace kvc {

CacheCore::CacheCore(std::unique_ptr<Layers> owned, uint32_t number)
    : owned_layers(std::move(owned)),
      layers(*owned_layers),
      context(layers.context()),
      geometry(layers.geometry()),
      tag(number),
      store([&] {
        SequenceStoreConfig config = geometry.store;
        config.cache_tag = number;
        return config;
      }()),
      rope_sets(geometry.has_rope_sets() ? geometry.store.max_sequences : 0),
      copies(layers, &order),
      sent(store) {
  if (geometry.store.indexed) prefixes = std::make_unique<PrefixStore>(geometry.prefixes, &store);
}

CacheCore::~CacheCore() {
  for_each_open([&](const Step&) { context->pool().keep_awake(-1); });
}

Status CacheCore::check_usable() const {
  const kvc_backend& backend = context->backend();
  if (backend.health != nullptr) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(backend.health(context->device(), &error), error));
  }
  return order.check();
}

}  // namespace kvc
