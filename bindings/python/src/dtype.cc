#include "dtype.h"

#include <cstring>

#include "error.h"

namespace kvcpy {

namespace {

struct NamedDtype {
  DLDataType dtype;
  const char* short_name;
  const char* numpy_name;  // torch and jax have the same name
};

constexpr NamedDtype kDtypes[] = {
    {{kDLFloat, 32, 1}, "f32", "float32"},
    {{kDLFloat, 16, 1}, "f16", "float16"},
    {{kDLBfloat, 16, 1}, "bf16", "bfloat16"},
    {{kDLFloat, 64, 1}, "f64", "float64"},
    {{kDLFloat8_e4m3fn, 8, 1}, "f8_e4m3fn", "float8_e4m3fn"},
    {{kDLFloat8_e5m2, 8, 1}, "f8_e5m2", "float8_e5m2"},
    {{kDLFloat8_e4m3, 8, 1}, "f8_e4m3", "float8_e4m3"},
    {{kDLFloat8_e3m4, 8, 1}, "f8_e3m4", "float8_e3m4"},
    {{kDLFloat8_e4m3b11fnuz, 8, 1}, "f8_e4m3b11fnuz", "float8_e4m3b11fnuz"},
    {{kDLFloat8_e4m3fnuz, 8, 1}, "f8_e4m3fnuz", "float8_e4m3fnuz"},
    {{kDLFloat8_e5m2fnuz, 8, 1}, "f8_e5m2fnuz", "float8_e5m2fnuz"},
    {{kDLFloat8_e8m0fnu, 8, 1}, "f8_e8m0fnu", "float8_e8m0fnu"},
    {{kDLInt, 8, 1}, "i8", "int8"},
    {{kDLInt, 32, 1}, "i32", "int32"},
    {{kDLInt, 64, 1}, "i64", "int64"},
    {{kDLUInt, 4, 1}, "u4", "uint4"},
    {{kDLFloat4_e2m1fn, 4, 1}, "f4_e2m1fn", "float4_e2m1fn"},
    {{kDLUInt, 8, 1}, "u8", "uint8"},
    {{kDLUInt, 16, 1}, "u16", "uint16"},
};

const NamedDtype* find(DLDataType dtype) {
  for (const NamedDtype& entry : kDtypes)
    if (entry.dtype == dtype) return &entry;
  return nullptr;
}

}  // namespace

DLDataType dtype_from_name(const char* name) {
  for (const NamedDtype& entry : kDtypes)
    if (std::strcmp(name, entry.short_name) == 0 || std::strcmp(name, entry.numpy_name) == 0) return entry.dtype;
  return kNoDtype;
}

DLDataType dtype_from_python(nb::handle object) {
  if (object.is_none()) return kNoDtype;
  nb::object text = nb::borrow(object);
  if (!PyUnicode_Check(object.ptr())) {
    text = nb::str(object);
    const char* name = nb::borrow<nb::str>(text).c_str();
    if (std::strncmp(name, "torch.", 6) == 0) {
      text = nb::str(name + 6);
    } else {
      try {
        text = nb::module_::import_("numpy").attr("dtype")(object).attr("name");
      } catch (nb::python_error& error) {
        if (!error.matches(PyExc_TypeError)) throw;  // not a dtype: the error below reports it
      }
    }
  }
  const char* name = nb::borrow<nb::str>(text).c_str();
  const DLDataType dtype = dtype_from_name(name);
  if (dtype == kNoDtype) raise(KVC_ERROR_DTYPE, -1, "dtype: unknown element type '%.100s'", name);
  return dtype;
}

const char* dtype_name(DLDataType dtype) {
  const NamedDtype* entry = find(dtype);
  return entry ? entry->short_name : "unknown";
}

const char* dtype_numpy_name(DLDataType dtype) {
  const NamedDtype* entry = find(dtype);
  return entry ? entry->numpy_name : nullptr;
}

}  // namespace kvcpy
