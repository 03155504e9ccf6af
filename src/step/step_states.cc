// States of recurrent layers, copied out of the cache and into it for the rows of a step.
#include "step/step.h"

namespace kvc {

Status Step::copy_state(int32_t layer, int32_t state, const DLTensor* tensor, bool store) {
  KVC_TRY(check_forward_layer(layer));
  const auto index = static_cast<size_t>(layer);
  const std::vector<StateGeometry>& states = layers_.geometry(layer).states;
  if (states.empty() || forward_->kind.encoder_group >= 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d %s", layer,
                         states.empty() ? "is not recurrent" : "has no states in a forward of encoder tokens")
        .at(layer);
  }
  if (state < 0 || state >= static_cast<int32_t>(states.size())) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "state %d of layer %d is outside [0, %zu)", state, layer,
                         states.size())
        .at(layer);
  }
  const StateGeometry& shape = states[static_cast<size_t>(state)];
  kvc_backend_states args = {};
  if (Status checked = check_states(tensor, "tensor", forward_->state_rows(), shape.dtype, shape.rank, shape.shape,
                                    context().dl_device(), !store, &args);
      !checked.ok()) {
    return std::move(checked).in_layer(layer);
  }
  args.pool = static_cast<char*>(layers_[layer].states->data()) + shape.offset_bytes;
  args.page_stride_bytes = layers_.geometry(layer).page_bytes;
  args.state_bytes = shape.bytes;
  for (const Forward::StatePages& pages : forward_->state_pages) {
    if (pages.group == layers_[layer].group) args.pages = (store ? pages.after : pages.before).for_backend();
  }
  args.step = forward_->step();
  args.num_rows = forward_->num_rows;
  args.store = store ? 1 : 0;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status copied = context().backend().states(context().device(), &args, forward_->stream, &error);
  if (store && copied == KVC_OK) forward_->calls.note_state(index, state);
  return run(Status::from(copied, error));
}

// Finds the pages of the rows' states before the step and after it.
void Step::find_state_pages(const SequenceStore& store) noexcept {
  const std::span<const Reservation> reservations = forward_->row_reservations(layers_.num_groups());
  for (Forward::StatePages& pages : forward_->state_pages) {
    for (int32_t row = 0; row < forward_->num_rows; ++row) {
      const Reservation& r = reservations[static_cast<size_t>(int64_t{row} * layers_.num_groups() + pages.group)];
      const int32_t before = r.copied_from >= 0 ? r.copied_from : KVC_BACKEND_STATE_ZERO;
      const int32_t slot = forward_->slots[row];
      pages.before[row] = slot < 0 ? KVC_BACKEND_STATE_SKIP : before;
      pages.after[row] = slot < 0 ? KVC_BACKEND_STATE_SKIP : store.list(slot, pages.group).tail_page;
    }
  }
}

}  // namespace kvc
