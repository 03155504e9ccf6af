// StoredLayers records how many tokens of each sequence each layer holds. A forward over a range of layers stores its
// tokens only in these layers. In other layers, the slots of these tokens keep old contents, which may belong to
// another sequence. No call may read such slots, so every reader checks this class first.
//
// Tokens are counted by list. The sequence's own tokens are one list, and its encoder tokens in each encoder group are
// another list. A layer stores the tokens of one list, or none (if it reads the K and V of another layer). The layers
// of a list are numbered in ascending order, and a `LayerSet` is a range of these numbers.
//
// Thread safety: none; calls are made under the cache's lock. For each sequence, it needs 4 bytes for each list and 4
// bytes for each layer.
// Invariants
// 1. `complete_` is a range of layers, and these layers hold every token of the list. A step appends only in layers of
//    `complete_`. Then `complete_` shrinks to the layers of that step. So on each side of `complete_`, a layer that is
//    farther away never holds more tokens than a nearer layer.
// 2. A layer outside of `complete_` holds held(layer) tokens, fewer than the list has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/lazy_array.h"

namespace kvc {

// Layers [begin, end) of the cache.
struct LayerRange {
  int32_t begin = 0;
  int32_t end = 0;
};

class StoredLayers {
 public:
  // The layers [begin, end) of one list, given by their numbers in the list.
  struct LayerSet {
    int16_t begin = 0;
    int16_t end = 0;
    bool empty() const noexcept { return begin == end; }
    bool operator==(const LayerSet&) const = default;
  };

  StoredLayers() = default;
  // list_of_layer: the list whose tokens each layer stores, or -1. Throws std::bad_alloc.
  StoredLayers(int64_t max_sequences, std::span<const int32_t> list_of_layer, int32_t num_lists);

  static int64_t bytes_needed(int64_t max_sequences, int64_t num_layers, int64_t num_lists) noexcept;
  int64_t bytes() const noexcept { return complete_.bytes() + held_.bytes(); }
  int32_t num_lists() const noexcept { return num_lists_; }

  // The layers of a range that store tokens of a list.
  LayerSet layers_of(int32_t list, LayerRange range) const noexcept;
  // Whether each of these layers holds all tokens of a sequence's list.
  bool complete(int32_t slot, int32_t list, LayerSet layers) const noexcept {
    const LayerSet& all = complete_[at(slot, list)];
    return layers.empty() || (layers.begin >= all.begin && layers.end <= all.end);
  }
  // Finds a layer of the set that does not hold all tokens. There must be one.
  int32_t first_incomplete(int32_t slot, int32_t list, LayerSet layers) const noexcept;
  // How many of a list's `tokens` tokens a layer of the cache holds.
  int64_t held(int32_t slot, int32_t layer, int64_t tokens) const noexcept;

  // Records that the sequence is empty. So every layer is complete.
  void clear(int32_t slot) noexcept;
  // Records that tokens from `before` on were appended in `layers`. These layers must already hold all earlier tokens.
  void append(int32_t slot, int32_t list, LayerSet layers, int64_t before) noexcept {
    if (complete_[at(slot, list)] != layers) narrow(slot, list, layers, before);
  }
  // Records that the list was cut to its first `tokens` tokens.
  void truncate(int32_t slot, int32_t list, int64_t tokens) noexcept;
  // Records that, of the tokens from `first` on, only the tokens first + path[i] were kept, in this order. path
  // ascends.
  void keep_path(int32_t slot, int32_t list, int64_t first, std::span<const int32_t> path) noexcept;
  // Records that the list of `to` begins with the first `tokens` tokens of `from`.
  void copy(int32_t from, int32_t to, int32_t list, int64_t tokens) noexcept;

  // Whether the invariants are true for a list of `tokens` tokens.
  bool sound(int32_t slot, int32_t list, int64_t tokens) const noexcept;

 private:
  struct List {
    std::vector<int32_t> layers;  // layers of the cache, ascending
    int64_t first = 0;            // where the entry of its first layer is among the held_ of a sequence
  };
  int64_t at(int32_t slot, int32_t list) const noexcept { return int64_t{slot} * num_lists() + list; }
  int32_t* held_of(int32_t slot, int32_t list) noexcept {
    return held_.data() + slot * stored_layers_ + lists_[static_cast<size_t>(list)].first;
  }
  const int32_t* held_of(int32_t slot, int32_t list) const noexcept {
    return held_.data() + slot * stored_layers_ + lists_[static_cast<size_t>(list)].first;
  }
  int32_t size_of(int32_t list) const noexcept {
    return static_cast<int32_t>(lists_[static_cast<size_t>(list)].layers.size());
  }
  void narrow(int32_t slot, int32_t list, LayerSet layers, int64_t before) noexcept;

  struct Place {
    int32_t list = -1;
    int32_t number = 0;  // the number of the layer in its list, from 0 on
  };
  int32_t num_lists_ = 0;
  std::vector<List> lists_;
  std::vector<Place> places_;     // [layers]
  LazyArray<LayerSet> complete_;  // [sequences, lists]
  LazyArray<int32_t> held_;       // [sequences, stored_layers_]: how many tokens an incomplete layer holds
  int64_t stored_layers_ = 0;     // number of layers that store tokens
};

}  // namespace kvc
