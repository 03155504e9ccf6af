// Converts between DLDataType and the element types of Python: names, and dtypes of numpy, torch and jax.
#pragma once

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

inline constexpr DLDataType kNoDtype = {0, 0, 0};

inline bool operator==(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Returns the type that a Python object names: None (kNoDtype), "f32" or "float32", numpy and ml_dtypes dtypes or
// scalar types, torch and jax dtypes. Raises kvcache.DType for anything else.
DLDataType dtype_from_python(nb::handle object);

// Returns the type with this name ("bfloat16", "bf16"); kNoDtype if the name is unknown.
DLDataType dtype_from_name(const char* name);

// Returns the short name, such as "bf16"; "unknown" for a type without a name.
const char* dtype_name(DLDataType dtype);

// Returns the name that numpy and ml_dtypes use, such as "bfloat16"; NULL for a type without a name.
const char* dtype_numpy_name(DLDataType dtype);

}  // namespace kvcpy
