// RowCopy: stored rows of a group to contiguous host memory and back, in one order, wherever the pools lie.
//
// The order of a range of tokens is: the layers of the group that store, ascending; of each its runs, one after
// another: K, V, the scales of K, the scales of V. A run is [tokens, heads, row bytes], as stored. An MLA layer has no
// run of V. States of a group are the layers' states, one after another, without padding.
//
// Whole sequences are copied as runs(group), and then read_run for as many tokens at a time as fit. PageCopy copies
// page by page.
//
// Bytes pass through the backend's copies, so pools may be the caller's, in any layout, or a GPU's.
// Thread safety: one call at a time; it locks nothing. The caller holds the pages and orders the stream (StreamOrder).
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

// One kind of rows of one layer.
struct RowRun {
  int32_t layer = 0;
  RowPart part = RowPart::kK;
  int64_t token_bytes = 0;  // of one token: all heads of the run
  HeadRange heads;          // of the layer's heads in this cache

  // The run of some of its heads.
  RowRun of_heads(HeadRange some) const noexcept { return {layer, part, token_bytes / heads.count * some.count, some}; }
};

class RowCopy {
 public:
  static constexpr int64_t kStagingBytes = int64_t{1} << 20;

  // Throws std::bad_alloc.
  static Status create(const Layers& layers, std::unique_ptr<RowCopy>* out, int64_t staging_bytes = kStagingBytes);

  // Runs of a group that holds tokens, or encoder tokens, in their order.
  static std::vector<RowRun> runs(const Layers& layers, int32_t group);
  // Their bytes for one token, and the bytes of one state of a group with states.
  static int64_t token_bytes(const Layers& layers, int32_t group);
  static int64_t state_bytes(const Layers& layers, int32_t group);

  // Slots are page * page_size + offset. bytes: slots.size() * run.token_bytes; done on return.
  Status read_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream);
  // The same in two parts, of at most staging_bytes: begin_run enqueues the copies out of the pools, and end_run waits
  // for them. In between, later work of the stream may write the rows. size: slots.size() * run.token_bytes.
  Status begin_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream);
  Status end_run(uint8_t* bytes, int64_t size, void* stream);
  // The same the other way, in the stream's order. A negative slot skips its token.
  Status write_run(const RowRun& run, std::span<const int64_t> slots, const uint8_t* bytes, void* stream);
  // The states in a page: state_bytes(group).
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
