// Lists of sequence ids, lengths and positions: Python integers in and out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// One integer, or a list, tuple, array or other iterable of them, and which of the two it was.
struct Integers {
  std::vector<int64_t> values;
  bool is_scalar = false;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  // As sequence ids. What is no id at all (negative, too large) becomes an id that the library calls stale.
  const kvc_seq* sequences() const { return reinterpret_cast<const kvc_seq*>(values.data()); }
};

// One integer; beyond 64 bits it saturates. Raises TypeError for anything else.
int64_t integer_from_python(nb::handle object);

// Integers beyond 64 bits saturate: the library refuses the extremes. Raises TypeError for anything but integers.
Integers integers_from_python(nb::handle object);

// The first of them if `scalar`, else a list of all.
nb::object integers_to_python(const std::vector<int64_t>& values, bool scalar);

// A new int32 numpy array with a copy of values[0..count).
nb::object int32_array(const int32_t* values, int64_t count);

// Raises kvcache.InvalidArgument unless both have the same number of elements.
void check_same_size(const char* function, const Integers& sequences, const Integers& values, const char* what);

}  // namespace kvcpy
