// Reads arrays of callers exactly once. Another thread of the caller may write an array while the call runs. A second
// read could then return a value that the call has not checked. A call therefore copies the array first, and checks
// and uses only the copy.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace kvc {

// Reads one element. The compiler may neither repeat this load nor replace it by a later one.
template <class T>
T read_once(const T* from) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  T value;
  __atomic_load(const_cast<T*>(from), &value, __ATOMIC_RELAXED);
  return value;
}

// Copies `count` elements from `from` to `to`.
template <class T>
void read_once(const T* from, int64_t count, T* to) noexcept {
  for (int64_t i = 0; i < count; ++i) to[i] = read_once(from + i);
}

// A copy of an array, for use during one call. It allocates memory only if the array has more than kInline elements.
template <class T>
class CallArray {
 public:
  // `from` has `count` >= 0 elements, or is NULL. The copy of NULL is empty. Throws std::bad_alloc.
  [[gnu::noinline]] CallArray(const T* from, int64_t count) : size_(from == nullptr ? 0 : count), data_(inline_) {
    if (size_ > kInline) {
      if (size_ > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T))) throw std::bad_alloc();
      heap_.reset(new T[static_cast<size_t>(size_)]);
      data_ = heap_.get();
    }
    read_once(from, size_, data_);
  }
  CallArray(const CallArray&) = delete;
  CallArray& operator=(const CallArray&) = delete;

  std::span<const T> span() const noexcept { return {data_, static_cast<size_t>(size_)}; }

 private:
  static constexpr int64_t kInline = 512;
  int64_t size_;
  T* data_;
  std::unique_ptr<T[]> heap_;
  T inline_[kInline];
};

}  // namespace kvc
