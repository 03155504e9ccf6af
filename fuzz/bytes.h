// Bytes: the choices that a fuzzer's input makes. Most calls are valid. In the others, a fault makes one argument
// hostile.
//
// arm() reads the number of the hook that is hostile. Every argument of a call passes one hook (number, count, pointer,
// wrong). A hook returns the value unchanged, but the chosen hook returns a hostile one. So an input spends one byte on
// the choice of an argument, however many arguments the call has. After its end, an input reads as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace fuzz {

class Bytes {
 public:
  Bytes(const uint8_t *data, size_t size) : data_(data), end_(data + size) {}

  bool empty() const { return data_ == end_; }
  uint8_t byte() { return data_ == end_ ? 0 : *data_++; }
  // A number in [0, n).
  int64_t below(int64_t n) {
    if (n <= 1) return 0;
    uint64_t value = byte();
    for (int64_t reach = 256; reach < n && reach < (int64_t{1} << 40); reach *= 256) value = value << 8 | byte();
    return static_cast<int64_t>(value % static_cast<uint64_t>(n));
  }
  // A number in [low, high]; low if a bound is hostile.
  int64_t between(int64_t low, int64_t high) {
    int64_t span;
    return __builtin_sub_overflow(high, low, &span) || span == INT64_MAX ? low : low + below(span + 1);
  }
  bool one_in(int64_t n) { return below(n) == n - 1; }
  bool chance(double p) { return !empty() && byte() < p * 256; }

  // Half of the calls have no fault.
  void arm() {
    const uint8_t choice = byte();
    countdown_ = choice < 128 ? -1 : choice & 63;
    fired_ = false;
  }
  void disarm() { countdown_ = -1; }
  bool fired() const { return fired_; }

  // The hook of an argument: whether it must be hostile.
  bool wrong() {
    if (countdown_ < 0 || countdown_-- > 0) return false;
    fired_ = true;
    return true;
  }
  template <class T>
  T number(T value) {
    return wrong() ? hostile(value) : value;
  }
  template <class... T>
  void numbers(T &...fields) {
    ((fields = number(fields)), ...);
  }
  // A struct_size that is too small or far too large. One that is slightly too large would promise memory that does not
  // exist.
  template <class Struct>
  void size_of(Struct &s) {
    constexpr uint32_t kSizes[] = {0, 4, 8, 65536, UINT32_MAX};
    if (wrong()) s.struct_size = kSizes[below(5)];
  }
  // The number of elements of an array of `value` elements. Hostile numbers are below or above the limit, which the
  // library checks before it reads the array.
  template <class T>
  T count(T value, T limit) {
    if (!wrong()) return value;
    const T choices[] = {T(-1),
                         T(0),
                         static_cast<T>(value / 2),
                         static_cast<T>(limit + 1),
                         std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max()};
    return choices[below(6)];
  }
  // The same for an array of which that many elements are read or filled: hostile numbers are lower, or negative.
  int64_t fewer(int64_t value) {
    const int64_t choices[] = {-1, 0, value / 2, INT64_MIN};
    return wrong() ? choices[below(4)] : value;
  }
  template <class T>
  T *pointer(T *value) {
    return wrong() ? nullptr : value;
  }

  template <class T>
  T hostile(T value) {
    constexpr int64_t kNumbers[] = {-1,
                                    0,
                                    1,
                                    2,
                                    7,
                                    255,
                                    65536,
                                    INT32_MAX,
                                    INT32_MIN,
                                    int64_t{1} << 32,
                                    int64_t{1} << 40,
                                    int64_t{1} << 62,
                                    INT64_MAX,
                                    INT64_MIN};
    const int64_t choice = below(17);
    if (choice < 14) return static_cast<T>(kNumbers[choice]);
    return static_cast<T>(choice == 14 ? value + 1 : choice == 15 ? value - 1 : value * 3);
  }

 private:
  const uint8_t *data_, *end_;
  int countdown_ = -1;
  bool fired_ = false;
};

}  // namespace fuzz
