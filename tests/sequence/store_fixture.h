// A sequence store, and the steps that a cache runs on it.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "sequence/sequence_store.h"

namespace kvc {

using Ids = std::vector<uint64_t>;

inline SequenceStoreConfig config_of(int64_t page_size, int64_t pages, int64_t window = 0, int64_t window_pages = 0,
                                     int64_t rollback = 0) {
  SequenceStoreConfig config;
  config.groups.push_back({{{}, 0, page_size}, pages});
  if (window > 0)
    config.groups.push_back({{kernels::see_window(static_cast<int32_t>(window)), rollback, page_size}, window_pages});
  config.max_sequences = 16;
  config.max_snapshots = 2;
  config.cache_tag = 7;
  config.max_length = 1 << 30;
  return config;
}

// A store with the steps that a cache runs on it.
struct Fixture {
  explicit Fixture(const SequenceStoreConfig& config) : store(config) {}

  struct Step {
    std::vector<int32_t> slots, lengths;
    std::vector<Reservation> reservations;
    std::vector<SlotCopy> copies;
    StepKind kind;
  };

  Status begin(const Ids& ids, const std::vector<int32_t>& lengths, Step* step) {
    step->slots.resize(ids.size());
    step->lengths = lengths;
    step->reservations.resize(ids.size() * static_cast<size_t>(store.num_groups()));
    step->copies.reserve(step->reservations.size());
    KVC_TRY(store.check_step(ids, lengths, step->slots, step->kind));
    store.reserve(step->slots, step->lengths, step->reservations, &step->copies, step->kind);
    open = {step->reservations};
    return store.check_invariants(open);
  }
  // The same for a batch with trees.
  Status begin(const Ids& ids, const std::vector<int32_t>& lengths, const std::vector<int32_t>& parents, Step* step) {
    KVC_TRY(store.check_trees(ids, lengths, parents));
    step->kind.with_trees = true;
    KVC_TRY(begin(ids, lengths, step));
    store.add_nodes(step->slots, step->lengths, parents);
    return store.check_invariants(open);
  }
  Status commit(const Step& step) {
    if (step.kind.with_trees) store.close_nodes(step.slots, step.lengths, true);
    store.commit(step.slots, step.lengths, step.reservations, step.kind);
    open.clear();
    return store.check_invariants(open);
  }
  Status rollback(const Step& step) {
    if (step.kind.with_trees) store.close_nodes(step.slots, step.lengths, false);
    store.rollback(step.slots, step.reservations);
    open.clear();
    return store.check_invariants(open);
  }
  void append(const Ids& ids, const std::vector<int32_t>& lengths) {
    Step step;
    ASSERT_TRUE(begin(ids, lengths, &step).ok());
    ASSERT_TRUE(commit(step).ok());
  }
  Ids add(size_t n) {
    Ids ids(n);
    EXPECT_TRUE(store.add(ids).ok());
    return ids;
  }
  uint64_t fork(uint64_t parent, int64_t position, std::vector<SlotCopy>* copies = nullptr) {
    std::vector<SlotCopy> ignored;
    const Ids parents = {parent};
    const std::vector<int64_t> positions = {position};
    Ids child(1);
    EXPECT_TRUE(store.fork(parents, positions, child, copies == nullptr ? &ignored : copies).ok());
    return child[0];
  }
  std::vector<int32_t> pages(uint64_t id, int32_t group = 0) {
    const int32_t slot = store.slot_of(id);
    std::vector<int32_t> out;
    for (int32_t i = 0; i < store.list(slot, group).size; ++i)
      out.push_back(store.table(group).at(store.list(slot, group), i));
    return out;
  }

  SequenceStore store;
  std::vector<std::span<const Reservation>> open;
};

}  // namespace kvc
