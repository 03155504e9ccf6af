// MsgpackWriter writes MessagePack into a buffer of fixed size. Bytes that do not fit are counted but not written, so
// the same code can also measure a message.
//
// put_list always writes a header of 5 bytes, so that set_list can change the number of elements later.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace kvc {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::span<uint8_t> out) : out_(out) {}

  size_t size() const noexcept { return size_; }  // number of bytes so far, including bytes that did not fit
  bool fits() const noexcept { return size_ <= out_.size(); }
  // Drops all bytes after the first `size`.
  void go_back(size_t size) noexcept { size_ = size; }

  void put_nil() noexcept { put_byte(0xC0); }
  void put_unsigned(uint64_t value) noexcept {
    if (value < 0x80) return put_byte(static_cast<uint8_t>(value));
    if (value <= UINT8_MAX) return put_big(0xCC, value, 1);
    if (value <= UINT16_MAX) return put_big(0xCD, value, 2);
    if (value <= UINT32_MAX) return put_big(0xCE, value, 4);
    put_big(0xCF, value, 8);
  }
  void put_integer(int32_t value) noexcept {
    if (value >= 0) return put_unsigned(static_cast<uint64_t>(value));
    put_big(0xD2, static_cast<uint32_t>(value), 4);
  }
  void put_float(double value) noexcept { put_big(0xCB, std::bit_cast<uint64_t>(value), 8); }
  void put_text(std::string_view text) noexcept {
    if (text.size() < 32) {
      put_byte(static_cast<uint8_t>(0xA0 | text.size()));
    } else {
      put_big(0xDB, text.size(), 4);
    }
    put_bytes(text.data(), text.size());
  }
  // `bytes` has at most 255 bytes.
  void put_binary(std::span<const uint8_t> bytes) noexcept {
    put_big(0xC4, bytes.size(), 1);
    put_bytes(bytes.data(), bytes.size());
  }
  // Writes the header of a list. The caller writes the elements next.
  void put_list(size_t elements) noexcept { put_big(0xDD, elements, 4); }
  // Writes the header of a list or map with at most 15 elements or entries.
  void put_short_list(size_t elements) noexcept { put_byte(static_cast<uint8_t>(0x90 | elements)); }
  void put_short_map(size_t entries) noexcept { put_byte(static_cast<uint8_t>(0x80 | entries)); }
  // Changes the number of elements of a list whose header begins at byte `place`.
  void set_list(size_t place, size_t elements) noexcept {
    MsgpackWriter header(out_.subspan(std::min(place, out_.size())));
    header.put_list(elements);
  }

 private:
  void put_bytes(const void* bytes, size_t count) noexcept {
    if (size_ + count <= out_.size() && count > 0) std::memcpy(out_.data() + size_, bytes, count);
    size_ += count;
  }
  void put_byte(uint8_t byte) noexcept { put_bytes(&byte, 1); }
  // Writes a type byte, and then the low `count` bytes of `value` in big-endian order.
  void put_big(uint8_t type, uint64_t value, size_t count) noexcept {
    uint8_t bytes[9] = {type};
    for (size_t i = 0; i < count; ++i) bytes[1 + i] = static_cast<uint8_t>(value >> (8 * (count - 1 - i)));
    put_bytes(bytes, 1 + count);
  }

  std::span<uint8_t> out_;
  size_t size_ = 0;
};

}  // namespace kvc
