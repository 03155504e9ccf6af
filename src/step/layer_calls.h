// LayerCalls records which calls a step has run for each layer. In a step, a layer is appended at most once, and each
// part of its attention runs at most once. A step ends only after all layers in its range have stored their tokens and
// states.
//
// A graph also keeps the appends and stored states of all its earlier steps. A later step may replay calls that an
// earlier step recorded, and the host does not see replayed calls.
//
// Thread safety: none. It belongs to the thread that entered the step.
// Invariant: all appends and stored states of a step are also in recorded_ and recorded_states_.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"

namespace kvc {

class LayerCalls {
 public:
  // The parts of a layer's attention, as bits: over the keys before the step, and over the step's own keys.
  static constexpr uint8_t kPast = 1;
  static constexpr uint8_t kSelf = 2;

  // Bits for the tokens of a row after which a state was stored: bit i for token i, and kLast for the last token.
  static constexpr int32_t kMaxTokens = 63;
  static constexpr uint64_t kLast = uint64_t{1} << kMaxTokens;

  LayerCalls() = default;
  // num_states: the number of states of each layer. Throws std::bad_alloc.
  explicit LayerCalls(std::span<const int32_t> num_states)
      : step_(num_states.size()), recorded_(num_states.size()), first_states_{0} {
    for (const int32_t states : num_states) first_states_.push_back(first_states_.back() + states);
    step_states_.resize(static_cast<size_t>(first_states_.back()));
    recorded_states_.resize(step_states_.size());
  }

  // Begins a new step. Recorded calls stay.
  void start() noexcept {
    std::fill(step_.begin(), step_.end(), Calls());
    std::fill(step_states_.begin(), step_states_.end(), 0);
  }

  void note_append(size_t layer) noexcept {
    KVC_ASSERT(!step_[layer].appended, layer, step_.size());
    step_[layer].appended = recorded_[layer].appended = true;
  }
  void note_attend(size_t layer, uint8_t parts) noexcept { step_[layer].attended_parts |= parts; }
  // token -1 = the last token of each row.
  void note_state(size_t layer, int32_t state, int32_t token) noexcept {
    const size_t index = index_of(layer, state);
    step_states_[index] |= token < 0 ? kLast : uint64_t{1} << token;
    recorded_states_[index] |= step_states_[index];
  }

  // Whether a call of this step has appended the layer, or has computed one of these parts of its attention.
  bool appended(size_t layer) const noexcept { return step_[layer].appended; }
  bool attended(size_t layer, uint8_t parts) const noexcept { return (step_[layer].attended_parts & parts) != 0; }

  // Whether the layer was appended in this step or, if `replayed`, by a recorded call.
  bool has_append(size_t layer, bool replayed) const noexcept { return of(layer, replayed).appended; }
  int32_t num_states(size_t layer) const noexcept { return first_states_[layer + 1] - first_states_[layer]; }
  // The bits of the tokens after which a state was stored, in this step or, if `replayed`, by a recorded call.
  uint64_t stored_state(size_t layer, int32_t state, bool replayed) const noexcept {
    return (replayed ? recorded_states_ : step_states_)[index_of(layer, state)];
  }

 private:
  struct Calls {
    bool appended = false;
    uint8_t attended_parts = 0;
  };
  size_t index_of(size_t layer, int32_t state) const noexcept {
    return static_cast<size_t>(first_states_[layer]) + static_cast<size_t>(state);
  }
  const Calls& of(size_t layer, bool replayed) const noexcept { return (replayed ? recorded_ : step_)[layer]; }

  std::vector<Calls> step_;                // [layers]
  std::vector<Calls> recorded_;            // [layers]
  std::vector<int32_t> first_states_;      // [layers + 1]: index of a layer's first state in the next two arrays
  std::vector<uint64_t> step_states_;      // [states of all layers]
  std::vector<uint64_t> recorded_states_;  // [states of all layers]
};

}  // namespace kvc
