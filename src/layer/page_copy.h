// PageCopy copies the contents of a page to contiguous host memory and back, wherever the pools lie.
//
// The contents of a page of tokens are all runs of its group (RowCopy) for the rows of the page. The contents of a
// page of states are its states, one after another, without padding.
//
// A read has two parts: begin_read enqueues the copies out of the pools, and end_read waits for them. After
// begin_read has returned, later work of the stream may write the page. So a caller that orders the stream need not
// hold the page any longer.
//
// On a GPU, the contents pass through a staging buffer on the device. The caller can also move them itself: to pinned
// memory by begin_read, copy_out of each part, and wait; and from memory of the device by write_from.
//
// Thread safety: one call at a time, and no lock. The caller orders the stream (StreamOrder). Ownership: borrows the
// layers. Memory: on a GPU, a staging buffer for one page; on the CPU none.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "layer/layers.h"
#include "layer/row_copy.h"

namespace kvc {

class PageCopy {
 public:
  // Throws std::bad_alloc.
  static Status create(const Layers& layers, std::unique_ptr<PageCopy>* out);

  int64_t bytes_of(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].bytes; }
  // bytes: [bytes_of(group)], filled when end_read returns. end_read must get the arguments of begin_read.
  Status begin_read(int32_t group, int32_t page, uint8_t* bytes, void* stream);
  Status end_read(int32_t group, uint8_t* bytes, void* stream);
  // Calls clear(offset, bytes) for the parts of the contents of a page that a sequence has not stored. They may still
  // have the bytes of an earlier owner of the page. position: the first token of the page or, for a page of states, the
  // number of tokens that the states include. held: [layers], the number of tokens of the sequence that each layer
  // holds.
  void for_each_other(int32_t group, int64_t position, std::span<const int64_t> held,
                      const std::function<void(int64_t, int64_t)>& clear) const;
  // Enqueues a write of the page. The caller may change `bytes` as soon as the call returns.
  Status write(int32_t group, int32_t page, const uint8_t* bytes, void* stream);

  // Whether there is a staging buffer.
  bool is_staged() const noexcept { return staging_ != nullptr; }
  // The size of the contents of the largest page.
  int64_t most_bytes() const noexcept { return most_bytes_; }
  // Enqueues a copy of the staging buffer, from `offset` on, to pinned memory (Context::copy_pinned).
  Status copy_out(int64_t offset, uint8_t* to, int64_t bytes, void* stream) const noexcept;
  // Waits for all work of the stream.
  Status wait(void* stream) const noexcept;
  // Enqueues a write of contents that are in memory of the device.
  Status write_from(int32_t group, int32_t page, const uint8_t* bytes, void* stream);

 private:
  struct Group {
    bool states = false;
    int64_t rows = 0;  // number of rows of a page of tokens
    int64_t bytes = 0;
    std::vector<RowRun> runs;
  };

  explicit PageCopy(const Layers& layers) : layers_(layers) {}
  Status move_rows(const Group& group, int32_t page, uint8_t* rows, bool store, void* stream);
  Status move_states(int32_t group, int32_t page, uint8_t* bytes, bool store, void* stream);
  Status move(int32_t group, int32_t page, uint8_t* bytes, bool store, void* stream);
  uint8_t* staging() const noexcept { return static_cast<uint8_t*>(staging_->data()); }

  const Layers& layers_;
  std::vector<Group> groups_;
  std::vector<int64_t> slots_;             // scratch: the slots of the rows of one page
  std::shared_ptr<DeviceMemory> staging_;  // [contents][slots]; null where the host reads the device's memory
  int64_t most_bytes_ = 0;
  int64_t slots_at_ = 0;  // where the slots are in the staging buffer, in bytes
};

}  // namespace kvc
