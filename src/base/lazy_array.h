// A fixed-size array of zero-initialised trivial elements. The system provides memory for a part of the array when
// that part is first used. So in a table that is sized for the largest load, unused parts cost address space only.
// Ownership: the array owns its memory, and can be moved but not copied.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace kvc {

template <class T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  LazyArray() = default;
  // Throws std::bad_alloc.
  explicit LazyArray(int64_t size) : size_(size) {
    if (size > 0) {
      data_.reset(static_cast<T*>(std::calloc(static_cast<size_t>(size), sizeof(T))));
      if (!data_) throw std::bad_alloc();
    }
  }

  T& operator[](int64_t i) noexcept { return data_.get()[i]; }
  const T& operator[](int64_t i) const noexcept { return data_.get()[i]; }
  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  int64_t size() const noexcept { return size_; }
  int64_t bytes() const noexcept { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  struct Free {
    void operator()(T* pointer) const noexcept { std::free(pointer); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace kvc
