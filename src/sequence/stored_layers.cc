#include "sequence/stored_layers.h"

#include <algorithm>

namespace kvc {

StoredLayers::StoredLayers(int64_t max_sequences, std::span<const int32_t> list_of_layer, int32_t num_lists)
    : num_lists_(num_lists),
      lists_(static_cast<size_t>(num_lists)),
      places_(list_of_layer.size()),
      complete_(max_sequences * num_lists) {
  for (size_t layer = 0; layer < list_of_layer.size(); ++layer) {
    const int32_t list = list_of_layer[layer];
    if (list < 0) continue;
    places_[layer] = {list, size_of(list)};
    lists_[static_cast<size_t>(list)].layers.push_back(static_cast<int32_t>(layer));
  }
  for (List& list : lists_) {
    list.first = stored_layers_;
    stored_layers_ += static_cast<int64_t>(list.layers.size());
  }
  held_ = LazyArray<int32_t>(max_sequences * stored_layers_);
}

int64_t StoredLayers::bytes_needed(int64_t max_sequences, int64_t num_layers, int64_t num_lists) noexcept {
  return max_sequences *
         (num_lists * static_cast<int64_t>(sizeof(LayerSet)) + num_layers * static_cast<int64_t>(sizeof(int32_t)));
}

StoredLayers::LayerSet StoredLayers::layers_of(int32_t list, LayerRange range) const noexcept {
  const std::vector<int32_t>& layers = lists_[static_cast<size_t>(list)].layers;
  const auto number = [&](int32_t layer) {
    return static_cast<int16_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
  };
  return {number(range.begin), number(range.end)};
}

int32_t StoredLayers::first_incomplete(int32_t slot, int32_t list, LayerSet layers) const noexcept {
  const LayerSet& all = complete_[at(slot, list)];
  const int16_t number = layers.begin < all.begin ? layers.begin : std::max(layers.begin, all.end);
  return lists_[static_cast<size_t>(list)].layers[static_cast<size_t>(number)];
}

int64_t StoredLayers::held(int32_t slot, int32_t layer, int64_t tokens) const noexcept {
  const Place& place = places_[static_cast<size_t>(layer)];
  const LayerSet& all = complete_[at(slot, place.list)];
  if (place.number >= all.begin && place.number < all.end) return tokens;
  return std::min<int64_t>(tokens, held_of(slot, place.list)[place.number]);
}

void StoredLayers::clear(int32_t slot) noexcept {
  for (int32_t list = 0; list < num_lists(); ++list) {
    complete_[at(slot, list)] = {0, static_cast<int16_t>(size_of(list))};
  }
}

void StoredLayers::narrow(int32_t slot, int32_t list, LayerSet layers, int64_t before) noexcept {
  LayerSet& all = complete_[at(slot, list)];
  if (layers.empty()) layers = {all.begin, all.begin};
  int32_t* const held = held_of(slot, list);
  std::fill(held + all.begin, held + layers.begin, static_cast<int32_t>(before));
  std::fill(held + layers.end, held + all.end, static_cast<int32_t>(before));
  all = layers;
}

void StoredLayers::truncate(int32_t slot, int32_t list, int64_t tokens) noexcept {
  LayerSet& all = complete_[at(slot, list)];
  const int32_t* const held = held_of(slot, list);
  while (all.begin > 0 && held[all.begin - 1] >= tokens) --all.begin;
  while (all.end < size_of(list) && held[all.end] >= tokens) ++all.end;
}

void StoredLayers::keep_path(int32_t slot, int32_t list, int64_t first, std::span<const int32_t> path) noexcept {
  const LayerSet& all = complete_[at(slot, list)];
  int32_t* const held = held_of(slot, list);
  for (int32_t number = 0; number < size_of(list); ++number) {
    if ((number >= all.begin && number < all.end) || held[number] <= first) continue;
    const auto kept = std::lower_bound(path.begin(), path.end(), held[number] - first) - path.begin();
    held[number] = static_cast<int32_t>(first + kept);
  }
  truncate(slot, list, first + static_cast<int64_t>(path.size()));
}

void StoredLayers::copy(int32_t from, int32_t to, int32_t list, int64_t tokens) noexcept {
  const LayerSet all = complete_[at(from, list)];
  complete_[at(to, list)] = all;
  const int32_t* const source = held_of(from, list);
  std::copy(source, source + all.begin, held_of(to, list));
  std::copy(source + all.end, source + size_of(list), held_of(to, list) + all.end);
  truncate(to, list, tokens);
}

bool StoredLayers::sound(int32_t slot, int32_t list, int64_t tokens) const noexcept {
  const LayerSet& all = complete_[at(slot, list)];
  const int32_t* const held = held_of(slot, list);
  bool sound = 0 <= all.begin && all.begin <= all.end && all.end <= size_of(list);
  for (int32_t number = 0; sound && number < size_of(list); ++number) {
    if (number >= all.begin && number < all.end) continue;
    const bool left = number < all.begin;
    const int32_t nearer = left ? number + 1 : number - 1;
    const bool at_edge = left ? nearer == all.begin : nearer < all.end;
    sound = held[number] >= 0 && held[number] < tokens && (at_edge || held[number] <= held[nearer]);
  }
  return sound;
}

}  // namespace kvc
