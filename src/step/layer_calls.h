// LayerCalls: which calls a step has run for each layer. A layer is appended once in a step, each part of its attention
// runs once, and a step ends only after every layer was appended and stored its states.
//
// A graph keeps the appends and stored states of all its steps besides. A later step may replay calls that an earlier
// one recorded, and the host does not see these calls.
//
// Thread safety: none. It belongs to the thread that entered the step.
// Invariant: what a step has appended and stored is also recorded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace kvc {

class LayerCalls {
 public:
  // The parts of a layer's attention, as bits: over the keys before the step, and over the step's own keys.
  static constexpr uint8_t kPast = 1;
  static constexpr uint8_t kSelf = 2;

  LayerCalls() = default;
  // Throws std::bad_alloc.
  explicit LayerCalls(size_t num_layers) : step_(num_layers), recorded_(num_layers) {}

  // A new step begins. Recorded calls stay.
  void start() noexcept { std::fill(step_.begin(), step_.end(), Calls()); }

  void note_append(size_t layer) noexcept {
    KVC_ASSERT(!step_[layer].appended, layer, step_.size());
    step_[layer].appended = recorded_[layer].appended = true;
  }
  void note_attend(size_t layer, uint8_t parts) noexcept { step_[layer].attended_parts |= parts; }
  void note_state(size_t layer, int32_t state) noexcept {
    step_[layer].states |= uint32_t{1} << state;
    recorded_[layer].states |= uint32_t{1} << state;
  }

  // In this step.
  bool appended(size_t layer) const noexcept { return step_[layer].appended; }
  bool attended(size_t layer, uint8_t parts) const noexcept { return (step_[layer].attended_parts & parts) != 0; }

  // In this step, or if `replayed` by a recorded call.
  bool has_append(size_t layer, bool replayed) const noexcept { return of(layer, replayed).appended; }
  // The stored states, a bit for each.
  uint32_t states(size_t layer, bool replayed) const noexcept { return of(layer, replayed).states; }

 private:
  struct Calls {
    bool appended = false;
    uint8_t attended_parts = 0;
    uint32_t states = 0;
  };
  const Calls& of(size_t layer, bool replayed) const noexcept { return (replayed ? recorded_ : step_)[layer]; }

  std::vector<Calls> step_;      // [layers]
  std::vector<Calls> recorded_;  // [layers]
};

}  // namespace kvc
