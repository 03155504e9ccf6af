#include "cache/sent_marks.h"

#include <algorithm>

namespace kvc {

// Visits the marks of the sequences to which a step appends tokens. Does nothing if the step appends tree nodes or
// encoder tokens.
template <class Visit>
void SentMarks::for_each_in(const Step& step, Visit visit) noexcept {
  if (step.kind().encoder_group >= 0 || step.kind().with_trees) return;
  const std::span<const int32_t> slots = step.slots();
  for (auto& [transfer, mark] : marks_) {
    int32_t slot = -1;
    if (!store_.resolve(mark.sequence, 0, &slot).ok()) continue;
    const auto row = std::find(slots.begin(), slots.end(), slot);
    if (row != slots.end()) visit(mark, slot, step.lengths()[static_cast<size_t>(row - slots.begin())]);
  }
}

bool SentMarks::note_call(const Step& step) noexcept {
  if (marks_.empty() || step.broken() || step.is_graph()) return false;
  bool any = false;
  for_each_in(step, [&](Mark& mark, int32_t, int32_t tokens) {
    any = true;
    mark.in_step = tokens;
    for (size_t layer = 0; layer < mark.appended.size(); ++layer) mark.appended[layer] = step.appended(layer) ? 1 : 0;
  });
  return any;
}

void SentMarks::note_end(const Step& step, bool kept) noexcept {
  if (marks_.empty()) return;
  for_each_in(step, [&](Mark& mark, int32_t slot, int32_t) {
    mark.in_step = 0;
    std::fill(mark.appended.begin(), mark.appended.end(), uint8_t{0});
    if (!kept) mark.restart = std::min(mark.restart, store_.length(slot));
  });
}

void SentMarks::note_cut(uint64_t sequence, int64_t length) noexcept {
  for (auto& [transfer, mark] : marks_) {
    if (mark.sequence == sequence) mark.restart = std::min(mark.restart, length);
  }
}

}  // namespace kvc
