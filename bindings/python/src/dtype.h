// Element types: names, numpy and torch dtypes on one side, DLDataType on the other.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

inline constexpr DLDataType kNoDtype = {0, 0, 0};

inline bool operator==(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// The type that a Python object names: None (kNoDtype), "f32" or "float32", numpy and ml_dtypes dtypes or scalar types,
// torch and jax dtypes. Raises kvcache.DType for anything else.
DLDataType dtype_from_python(nb::handle object);

// By name ("bfloat16", "bf16"); kNoDtype if unknown.
DLDataType dtype_from_name(const char* name);

// The short name, "bf16"; "unknown" for types without one.
const char* dtype_name(DLDataType dtype);

// The name that numpy and ml_dtypes use, "bfloat16"; NULL for types without one.
const char* dtype_numpy_name(DLDataType dtype);

}  // namespace kvcpy
