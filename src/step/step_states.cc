// States of recurrent layers, copied out of the cache and into it for the rows of a step.
#include <algorithm>
#include <cinttypes>

#include "step/step.h"

namespace kvc {

Status Step::copy_state(int32_t layer, int32_t state, int32_t token, const DLTensor* tensor, bool store) {
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
  if (token < -1 || token >= limits().draft_states) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "token %d is outside [-1, %d), the end of which is max_draft_states",
                         token, static_cast<int>(limits().draft_states))
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
  args.fill = shape.fill;
  for (const Forward::StatePages& pages : forward_->state_pages) {
    if (pages.group != layers_[layer].group) continue;
    args.pages = (store ? pages.after : pages.before).for_backend() + forward_->state_begin(token);
  }
  args.step = forward_->step();
  args.num_rows = forward_->num_rows;
  args.store = store ? 1 : 0;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status copied = context().backend().states(context().device(), &args, forward_->stream, &error);
  if (store && copied == KVC_OK) forward_->calls.note_state(index, state, token);
  return run(Status::from(copied, error));
}

// Returns which tokens are the last of a row, as bits of LayerCalls: bit i stands for token i of a row. kLast stands
// for a token after which no draft state is kept. Padding rows have no bit.
uint64_t Step::last_tokens() const noexcept {
  uint64_t tokens = 0;
  for (int32_t row = 0; row < forward_->num_rows; ++row) {
    if (forward_->slots[row] < 0) continue;
    const int64_t last = forward_->append_lengths[row] - 1;
    tokens |= last < limits().draft_states ? uint64_t{1} << last : LayerCalls::kLast;
  }
  return tokens;
}

uint64_t Step::stored_states() const noexcept {
  uint64_t tokens = UINT64_MAX;
  for (int32_t layer = forward_->kind.layers.begin; layer < forward_->kind.layers.end; ++layer) {
    const auto index = static_cast<size_t>(layer);
    for (int32_t state = 0; state < forward_->calls.num_states(index); ++state) {
      tokens &= forward_->calls.stored_state(index, state, forward_->replayed());
    }
  }
  return tokens;
}

// Finds the pages of each row's states before and after the step, and before and after each of its first draft_states
// tokens. Must be called before the nodes of the step are added to the store. parents: kvc_batch.tree_parents, or
// empty.
void Step::find_state_pages(const SequenceStore& store, std::span<const int32_t> parents) noexcept {
  const std::span<const Reservation> reservations = forward_->row_reservations(layers_.num_groups());
  const auto or_fill = [](int32_t page) { return page >= 0 ? page : KVC_BACKEND_STATE_FILL; };
  const auto or_skip = [](int32_t page) { return page >= 0 ? page : KVC_BACKEND_STATE_SKIP; };
  for (size_t ordinal = 0; ordinal < forward_->state_pages.size(); ++ordinal) {
    Forward::StatePages& pages = forward_->state_pages[ordinal];
    size_t token = 0;
    for (int32_t row = 0; row < forward_->num_rows; token += static_cast<size_t>(forward_->append_lengths[row++])) {
      const Reservation& r = reservations[static_cast<size_t>(int64_t{row} * layers_.num_groups() + pages.group)];
      const int32_t slot = forward_->slots[row], length = forward_->append_lengths[row];
      const int32_t tail = slot < 0 ? -1 : store.list(slot, pages.group).tail_page;
      const bool tree = slot >= 0 && !parents.empty() && parents[token] != KVC_TREE_NONE;
      const int32_t nodes = tree ? store.nodes(slot) : 0;
      // The page of the state after a node. Node -1: the state before all nodes.
      const auto after = [&](int32_t node) {
        if (node == nodes + length - 1) return tail;
        if (node == nodes - 1) return r.copied_from;
        return store.keeps_state_of(node) ? store.tree_state(slot, static_cast<int32_t>(ordinal), node) : -1;
      };
      for (int32_t i = 0; i < limits().draft_states; ++i) {
        int32_t page_before = KVC_BACKEND_STATE_SKIP, page_after = KVC_BACKEND_STATE_SKIP;
        if (slot >= 0 && i < length) {
          const int32_t parent = tree ? parents[token + static_cast<size_t>(i)] : i - 1;
          if (parent < 0) {
            page_before = or_fill(after(-1));
          } else if (tree) {
            page_before = or_skip(after(parent));
          }
          if (tree || i == length - 1) page_after = or_skip(after(nodes + i));
        }
        pages.before[forward_->state_begin(i) + row] = page_before;
        pages.after[forward_->state_begin(i) + row] = page_after;
      }
      const int32_t first = tree ? parents[token] : -1;
      pages.before[row] = slot < 0 ? KVC_BACKEND_STATE_SKIP : or_fill(after(first));
      pages.after[row] = or_skip(tail);
    }
  }
}

}  // namespace kvc
