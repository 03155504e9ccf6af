#include "integers.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cinttypes>
#include <memory>

#include "error.h"

namespace kvcpy {

static_assert(sizeof(kvc_seq) == sizeof(int64_t));

int64_t integer_from_python(nb::handle object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);  // accepts any object with __index__
  if (overflow != 0) return overflow > 0 ? INT64_MAX : INT64_MIN;
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

Integers integers_from_python(nb::handle object) {
  Integers result;
  PyObject* o = object.ptr();
  if (PyLong_Check(o) ||
      (!PyList_Check(o) && !PyTuple_Check(o) && PyIndex_Check(o) && !nb::hasattr(object, "__len__"))) {
    result.is_scalar = true;
    result.values.push_back(integer_from_python(o));
    return result;
  }
  nb::object list = nb::steal(PyTuple_Check(o) ? Py_NewRef(o) : PySequence_Tuple(o));
  if (!list.is_valid()) throw nb::python_error();
  const Py_ssize_t size = PyTuple_Size(list.ptr());
  result.values.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) result.values.push_back(integer_from_python(PyTuple_GetItem(list.ptr(), i)));
  return result;
}

nb::object integers_to_python(const std::vector<int64_t>& values, bool scalar) {
  if (scalar) return nb::int_(values[0]);
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(values.size())));
  if (!list.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < values.size(); ++i)
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  return list;
}

nb::object int32_array(const int32_t* values, int64_t count) {
  auto copy = std::make_unique<int32_t[]>(static_cast<size_t>(count > 0 ? count : 1));
  std::copy(values, values + count, copy.get());
  int32_t* data = copy.get();
  nb::capsule owner(copy.get(), [](void* pointer) noexcept { delete[] static_cast<int32_t*>(pointer); });
  copy.release();
  return nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(data, {static_cast<size_t>(count)}, owner));
}

void check_same_size(const char* function, const Integers& sequences, const Integers& values, const char* what) {
  if (sequences.size() != values.size())
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: %" PRId64 " sequences, but %" PRId64 " %s", function, sequences.size(),
          values.size(), what);
}

}  // namespace kvcpy
