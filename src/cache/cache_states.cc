// States of recurrent layers: out of the cache and into it, by the rows of a step.
#include "cache/cache.h"
#include "cache/forward_use.h"

namespace kvc {

Status Cache::copy_state(kvc_forward id, int32_t layer, int32_t state, const DLTensor* tensor, bool store) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter_unless_cancelled(id));
  KVC_TRY(check_forward_layer(*forward, layer));
  const auto index = static_cast<size_t>(layer);
  const std::vector<StateGeometry>& states = geometry_.layers[index].states;
  if (states.empty() || forward->kind.encoder_group >= 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d %s", layer,
                         states.empty() ? "is not recurrent" : "has no states in a forward of encoder tokens")
        .at(layer);
  }
  if (state < 0 || state >= static_cast<int32_t>(states.size())) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "state %d of layer %d is outside 0..%zu", state, layer,
                         states.size() - 1)
        .at(layer);
  }
  const StateGeometry& shape = states[static_cast<size_t>(state)];
  kvc_backend_states args = {};
  KVC_TRY(check_states(tensor, "tensor", forward->state_rows(), shape.dtype, shape.rank, shape.shape,
                       context_->dl_device(), !store, &args));
  args.pool = static_cast<char*>(layers_[index].states->data()) + shape.offset_bytes;
  args.page_stride_bytes = geometry_.layers[index].page_bytes;
  args.state_bytes = shape.bytes;
  for (const Forward::StatePages& pages : forward->state_pages) {
    if (pages.group == layers_[index].group) args.pages = store ? pages.after.data() : pages.before.data();
  }
  args.step = forward->step();
  args.num_rows = forward->num_rows;
  args.store = store ? 1 : 0;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status copied = context_->backend().states(context_->device(), &args, forward->stream, &error);
  if (store && copied == KVC_OK) forward->note_state(index, state);
  return forward.done(Status::from(copied, error));
}

// Where the rows' states are: before the step, and after it.
void Cache::find_state_pages(Forward& forward) {
  const std::span<const Reservation> reservations = forward.row_reservations(num_groups());
  for (Forward::StatePages& pages : forward.state_pages) {
    for (int32_t row = 0; row < forward.num_rows; ++row) {
      const Reservation& r = reservations[static_cast<size_t>(row * num_groups() + pages.group)];
      const int32_t before = r.copied_from >= 0 ? r.copied_from : KVC_BACKEND_STATE_ZERO;
      const int32_t slot = forward.slots[row];
      pages.before[row] = slot < 0 ? KVC_BACKEND_STATE_SKIP : before;
      pages.after[row] = slot < 0 ? KVC_BACKEND_STATE_SKIP : store_.list(slot, pages.group).tail_page;
    }
  }
}

}  // namespace kvc
