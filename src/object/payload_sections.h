// The payload of an object, in sections: each is section_bytes long (the last one may be shorter), and its checksum
// follows it. So a payload of any size is written and read in bounded memory, and no byte is used before its section
// was verified.
//
//   PayloadWriter writer(sink, sizes, seed);  writer.write(bytes) any number of times;  writer.finish()
//   PayloadReader reader(source, sizes, seed);  reader.read(bytes) likewise
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

// Where an object's bytes go, in order.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Status write(std::span<const uint8_t> bytes) = 0;
};

// Where they come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills all of `bytes`. CORRUPT if the source ends before.
  virtual Status read(std::span<uint8_t> bytes) = 0;
  // After the last byte. CORRUPT if the source goes on, and must not.
  virtual Status check_end() { return Status(); }
};

// The checksum of section `index`.
inline Checksum section_checksum(std::span<const uint8_t> section, uint64_t seed, int64_t index) noexcept {
  return checksum_of(section, seed + static_cast<uint64_t>(index));
}

class PayloadWriter {
 public:
  // Throws std::bad_alloc.
  PayloadWriter(ByteSink* sink, const ObjectSizes& sizes, uint64_t seed);
  Status write(std::span<const uint8_t> bytes);
  // Writes what is left. All of sizes.payload_bytes were given to write.
  Status finish();

 private:
  Status write_section();

  ByteSink* const sink_;
  const ObjectSizes sizes_;
  const uint64_t seed_;
  std::vector<uint8_t> section_;  // with room for its checksum
  int64_t filled_ = 0;            // bytes of the section
  int64_t index_ = 0;
  int64_t written_ = 0;
};

class PayloadReader {
 public:
  // Throws std::bad_alloc.
  PayloadReader(ByteSource* source, const ObjectSizes& sizes, uint64_t seed);
  // Fills all of `bytes`; CORRUPT if a section does not have its checksum, or if the payload has fewer bytes left.
  Status read(std::span<uint8_t> bytes);
  // Drops the next bytes, which are verified all the same.
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
  int64_t begin_ = 0, end_ = 0;  // of the section's bytes that were not read yet
  int64_t index_ = 0;
  int64_t read_ = 0;
};

}  // namespace kvc
