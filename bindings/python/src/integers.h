// Converts sequence ids, lengths and positions from and to Python integers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// The value of an argument that is one integer, or a list, tuple, array or other iterable of integers.
struct Integers {
  std::vector<int64_t> values;
  bool is_scalar = false;  // whether the argument was one integer

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  // Returns the values as sequence ids. A value that is no id (negative or too large) becomes an id that the library
  // refuses as stale.
  const kvc_seq* sequences() const { return reinterpret_cast<const kvc_seq*>(values.data()); }
};

// Returns one integer. An integer beyond 64 bits saturates. Raises TypeError if the object is no integer.
int64_t integer_from_python(nb::handle object);

// Returns all integers of an argument. Integers beyond 64 bits saturate, because the library refuses the extreme
// values. Raises TypeError if an element is no integer.
Integers integers_from_python(nb::handle object);

// Returns values[0] if `scalar`, else a list of all values.
nb::object integers_to_python(const std::vector<int64_t>& values, bool scalar);

// Returns a new int32 numpy array with a copy of values[0..count).
nb::object int32_array(const int32_t* values, int64_t count);

// Raises kvcache.InvalidArgument unless `sequences` and `values` have the same number of elements.
void check_same_size(const char* function, const Integers& sequences, const Integers& values, const char* what);

}  // namespace kvcpy
