// The payload of an object, stored in sections. Each section has section_bytes bytes (the last one may be shorter),
// and its checksum follows it. So a payload of any size is written and read in bounded memory. A section is verified
// before any byte of it is used.
//
//   PayloadWriter writer(sink, sizes, seed);  writer.write(bytes) any number of times;  writer.finish()
//   PayloadReader reader(source, sizes, seed);  reader.read(bytes) any number of times
//
// Thread safety: none. Ownership: borrows the sink or source. Memory: one section.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "object/object_header.h"

namespace kvc {

// Receives the bytes of an object, in order.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Status write(std::span<const uint8_t> bytes) = 0;
};

// Provides the bytes of an object, in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills all of `bytes`. Fails with CORRUPT if the source has fewer bytes left.
  virtual Status read(std::span<uint8_t> bytes) = 0;
  // Is called after the last byte of the object. Fails with CORRUPT if the source must end there and does not.
  virtual Status check_end() { return Status(); }
};

// The checksum of section `index`. It depends on the index, so sections in a wrong order fail their check.
inline Checksum section_checksum(std::span<const uint8_t> section, uint64_t seed, int64_t index) noexcept {
  return checksum_of(section, seed + static_cast<uint64_t>(index));
}

class PayloadWriter {
 public:
  // Throws std::bad_alloc.
  PayloadWriter(ByteSink* sink, const ObjectSizes& sizes, uint64_t seed);
  Status write(std::span<const uint8_t> bytes);
  // Writes the last section. Before that, sizes.payload_bytes bytes must have been passed to write.
  Status finish();

 private:
  Status write_section();

  ByteSink* const sink_;
  const ObjectSizes sizes_;
  const uint64_t seed_;
  std::vector<uint8_t> section_;  // with room for its checksum
  int64_t filled_ = 0;            // bytes of section_ that are filled
  int64_t index_ = 0;
  int64_t written_ = 0;
};

class PayloadReader {
 public:
  // Throws std::bad_alloc.
  PayloadReader(ByteSource* source, const ObjectSizes& sizes, uint64_t seed);
  // Fills all of `bytes`. Fails with CORRUPT if the checksum of a section is wrong, or if fewer bytes are left.
  Status read(std::span<uint8_t> bytes);
  // Skips the next bytes. Their sections are verified, too.
  Status skip(int64_t bytes);
  int64_t left() const noexcept { return sizes_.payload_bytes - read_; }

 private:
  Status next_section();
  template <class Use>
  Status take(int64_t bytes, Use use);

  ByteSource* const source_;
  const ObjectSizes sizes_;
  const uint64_t seed_;
  std::vector<uint8_t> section_;
  int64_t begin_ = 0, end_ = 0;  // bytes of section_ that were not read yet
  int64_t index_ = 0;
  int64_t read_ = 0;
};

}  // namespace kvc
