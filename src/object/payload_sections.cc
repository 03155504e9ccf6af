#include "object/payload_sections.h"

#include <cinttypes>
#include <cstring>

#include "base/assert.h"

namespace kvc {
namespace {

// If the payload is smaller than a section, the buffer has only the size of the payload.
size_t buffer_bytes(const ObjectSizes& sizes) {
  return static_cast<size_t>(std::min(sizes.section_bytes, sizes.payload_bytes) + kChecksumBytes);
}

}  // namespace

PayloadWriter::PayloadWriter(ByteSink* sink, const ObjectSizes& sizes, uint64_t seed)
    : sink_(sink), sizes_(sizes), seed_(seed), section_(buffer_bytes(sizes)) {}

Status PayloadWriter::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto count = std::min<size_t>(bytes.size(), static_cast<size_t>(sizes_.section_bytes - filled_));
    KVC_ASSERT(written_ + filled_ + static_cast<int64_t>(count) <= sizes_.payload_bytes, written_, filled_);
    std::memcpy(section_.data() + filled_, bytes.data(), count);
    filled_ += static_cast<int64_t>(count);
    bytes = bytes.subspan(count);
    if (filled_ == sizes_.section_bytes) KVC_TRY(write_section());
  }
  return Status();
}

Status PayloadWriter::write_section() {
  const auto section = std::span(section_).first(static_cast<size_t>(filled_));
  const Checksum checksum = section_checksum(section, seed_, index_++);
  std::copy(checksum.begin(), checksum.end(), section_.begin() + filled_);
  written_ += filled_;
  const auto bytes = std::span(section_).first(static_cast<size_t>(filled_ + kChecksumBytes));
  filled_ = 0;
  return sink_->write(bytes);
}

Status PayloadWriter::finish() {
  if (filled_ > 0) KVC_TRY(write_section());
  KVC_ASSERT(written_ == sizes_.payload_bytes, written_, sizes_.payload_bytes);
  return Status();
}

PayloadReader::PayloadReader(ByteSource* source, const ObjectSizes& sizes, uint64_t seed)
    : source_(source), sizes_(sizes), seed_(seed), section_(buffer_bytes(sizes)) {}

Status PayloadReader::next_section() {
  const int64_t size = std::min(sizes_.section_bytes, left());
  const auto bytes = std::span(section_).first(static_cast<size_t>(size + kChecksumBytes));
  KVC_TRY(source_->read(bytes));
  const Checksum checksum = section_checksum(bytes.first(static_cast<size_t>(size)), seed_, index_);
  if (!std::equal(checksum.begin(), checksum.end(), bytes.begin() + size)) {
    return Status::error(KVC_ERROR_CORRUPT, "section %" PRId64 " of the payload does not have its checksum", index_);
  }
  ++index_;
  begin_ = 0;
  end_ = size;
  return Status();
}

template <class Use>
Status PayloadReader::take(int64_t bytes, Use use) {
  if (bytes > left()) {
    return Status::error(KVC_ERROR_CORRUPT, "%" PRId64 " bytes of the payload are needed, and %" PRId64 " are left",
                         bytes, left());
  }
  while (bytes > 0) {
    if (begin_ == end_) KVC_TRY(next_section());
    const int64_t count = std::min(bytes, end_ - begin_);
    use(section_.data() + begin_, count);
    begin_ += count;
    read_ += count;
    bytes -= count;
  }
  return Status();
}

Status PayloadReader::read(std::span<uint8_t> bytes) {
  uint8_t* next = bytes.data();
  return take(static_cast<int64_t>(bytes.size()), [&](const uint8_t* data, int64_t count) {
    std::memcpy(next, data, static_cast<size_t>(count));
    next += count;
  });
}

Status PayloadReader::skip(int64_t bytes) {
  return take(bytes, [](const uint8_t*, int64_t) {});
}

}  // namespace kvc
