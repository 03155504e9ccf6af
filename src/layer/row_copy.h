// RowCopy copies stored rows of a group to contiguous host memory and back. The order of the bytes is the same wherever
// the pools lie.
//
// The rows of a range of tokens are ordered by layer: the layers of the group that store rows, ascending. Each layer
// has its runs one after another: K, V, the scales of K, the scales of V. A run is [tokens, heads, row bytes], as
// stored. An MLA layer has no run of V. The states of a group are the states of its layers, one after another, without
// padding.
//
// To copy a whole sequence, get runs(group), and call read_run for each run with as many tokens at a time as fit.
// PageCopy copies single pages.
//
// The backend copies the bytes, so pools may be adopted, may have any layout, and may lie on a GPU.
//
// Thread safety: one call at a time, and no lock. The caller holds the pages and orders the stream (StreamOrder).
// Ownership: borrows the layers. Memory: on a GPU, a staging buffer of staging_bytes; on the CPU none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "layer/layers.h"

namespace kvc {

enum class RowPart : uint8_t { kK, kV, kKScales, kVScales };

// A run: the rows of one layer that are of one kind (K, V, scales of K, or scales of V).
struct RowRun {
  int32_t layer = 0;
  RowPart part = RowPart::kK;
  int64_t token_bytes = 0;  // bytes of one row of this kind, for all heads of the run
  HeadRange heads;          // of the heads that the layer has in this cache

  // The same run with only some of its heads.
  RowRun of_heads(HeadRange some) const noexcept { return {layer, part, token_bytes / heads.count * some.count, some}; }
};

class RowCopy {
 public:
  static constexpr int64_t kStagingBytes = int64_t{1} << 20;

  // Throws std::bad_alloc.
  static Status create(const Layers& layers, std::unique_ptr<RowCopy>* out, int64_t staging_bytes = kStagingBytes);

  // The runs of a group, in their order. The group must hold tokens or encoder tokens.
  static std::vector<RowRun> runs(const Layers& layers, int32_t group);
  // Bytes of one row in all runs of a group, and bytes of all states in a page of a group of states.
  static int64_t token_bytes(const Layers& layers, int32_t group);
  static int64_t state_bytes(const Layers& layers, int32_t group);

  // Reads the rows in `slots` (page * page_size + offset) to `bytes`, [slots.size() * run.token_bytes]. When the call
  // returns, the bytes are complete.
  Status read_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream);
  // A read of at most staging_bytes, in two parts. begin_run enqueues the copies out of the pools, and end_run waits
  // for them. After begin_run, later work of the stream may write the rows. size: slots.size() * run.token_bytes.
  Status begin_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream);
  Status end_run(uint8_t* bytes, int64_t size, void* stream);
  // Writes `bytes` to the rows in `slots`, in the stream's order. A row with a negative slot is skipped.
  Status write_run(const RowRun& run, std::span<const int64_t> slots, const uint8_t* bytes, void* stream);
  // These methods copy all states in a page, [state_bytes(group)].
  Status read_states(int32_t group, int32_t page, uint8_t* bytes, void* stream);
  Status write_states(int32_t group, int32_t page, const uint8_t* bytes, void* stream);

 private:
  explicit RowCopy(const Layers& layers) : layers_(layers) {}
  Status move(const RowRun& run, std::span<const int64_t> slots, void* rows, bool store, void* stream);
  template <class Visit>
  Status for_each_state(int32_t group, int32_t page, Visit visit);

  const Layers& layers_;
  std::shared_ptr<DeviceMemory> staging_;  // null where the host reads the device's memory
};

}  // namespace kvc
