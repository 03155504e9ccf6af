#include "cache/slot_copies.h"

#include <cinttypes>
#include <new>

namespace kvc {
namespace {

// Converts a copy of tokens to a copy of rows, and adds it to `out`. Source and target begin at the same offset in
// their pages, except for nodes of a tree.
void add_copy(const GroupRules& rules, const SlotCopy& copy, std::vector<kvc_backend_slot_copy>* out) {
  const int64_t target = rules.rows_of(copy.target), count = rules.rows_of(copy.target + copy.tokens) - target;
  const int64_t source = copy.source < 0 ? -1 : rules.rows_of(copy.source);
  if (count > 0) out->push_back({source, target, static_cast<int32_t>(count), 0});
}

// Returns an upper bound of the number of copies that most calls need: one for each sequence and group.
int64_t usual_copies(const Layers& layers) { return layers.geometry().limits.rows * layers.num_groups(); }

}  // namespace

SlotCopies::SlotCopies(const Layers& layers, StreamOrder* order) : layers_(layers), order_(*order) {
  const int64_t copies = usual_copies(layers);
  reserve(copies);
  if (layers.geometry().tables_only) queue_.reserve(2 * copies);
}

Status SlotCopies::make(void* stream, bool* begun) {
  if (planned_.empty()) return Status();
  if (layers_.geometry().tables_only) {
    queue_.add(planned_);
    return Status();
  }
  KVC_TRY(order_.check_stream(stream));
  KVC_TRY(order_.enter(stream));
  bool any = false;
  Status copied;
  try {
    copied = make_in_layers(stream, &any);
  } catch (const std::bad_alloc&) {  // the caller then undoes the change that needs the copies
    copied = Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for %zu copies of tokens", planned_.size());
  }
  if (begun != nullptr) *begun = any;
  Status left = order_.leave(stream);  // also after a failure, because some copies may be in flight
  return copied.ok() ? std::move(left) : std::move(copied);
}

Status SlotCopies::make_in_layers(void* stream, bool* begun) {
  const Context& context = *layers_.context();
  layer_copies_.reserve(planned_.size());
  for (const Layer& layer : layers_) {
    if (layer.kv_layer >= 0 || layer.states) continue;  // K and V are copied in kv_layer; states are never copied
    layer_copies_.clear();
    for (const SlotCopy& copy : planned_) {
      if (copy.group == layer.group) add_copy(layers_.rules(layer), copy, &layer_copies_);
    }
    if (layer_copies_.empty()) continue;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status copied = context.backend().copy_slots(context.device(), &layer.backend, layer_copies_.data(),
                                                           static_cast<int64_t>(layer_copies_.size()), stream, &error);
    // If the device failed, it may have failed after it received the copies.
    if (copied == KVC_OK || copied == KVC_ERROR_DEVICE_FAILED) *begun = true;
    KVC_TRY(Status::from(copied, error));
  }
  return Status();
}

Status SlotCopies::make_room(int64_t more) {
  if (!layers_.geometry().tables_only) return Status();
  const int64_t most = usual_copies(layers_);
  if (queue_.size() >= most) {
    return Status::error(KVC_ERROR_ORDER,
                         "%" PRId64 " copies wait, and a call adds to fewer than %" PRId64
                         " (max_sequences * num_groups): make them first (kvc_cache_take_copies)",
                         queue_.size(), most);
  }
  queue_.reserve(more);
  return Status();
}

Status SlotCopies::check_taken() const {
  if (queue_.empty()) return Status();
  return Status::error(KVC_ERROR_ORDER, "%" PRId64 " copies wait: make them first (kvc_cache_take_copies)",
                       queue_.size());
}

Status SlotCopies::take(std::span<kvc_copy> out, int64_t* count) {
  *count = queue_.size();
  if (out.empty()) return Status();
  if (*count > static_cast<int64_t>(out.size())) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " copies do not fit in a capacity of %zu", *count,
                         out.size())
        .missing(*count, static_cast<int64_t>(out.size()));
  }
  kvc_copy* next = out.data();
  for (const SlotCopy& copy : queue_.copies()) *next++ = {copy.source, copy.target, copy.group, copy.tokens};
  queue_.clear();
  return Status();
}

}  // namespace kvc
