#include "error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>

namespace kvcpy {

namespace {

// These references are never dropped, because exceptions may be raised until the process ends.
PyObject* make_error_factory = nullptr;
PyObject* make_closed_factory = nullptr;

[[noreturn]] void raise_object(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace

void set_error_factories(nb::object make_error, nb::object make_closed) {
  make_error_factory = make_error.release().ptr();
  make_closed_factory = make_closed.release().ptr();
}

void raise(kvc_status status, const kvc_error& error) {
  // The message may be cut in the middle of a UTF-8 sequence. This must not hide the failure.
  nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      error.message, static_cast<Py_ssize_t>(strnlen(error.message, sizeof(error.message))), "replace"));
  if (!message.is_valid()) throw nb::python_error();
  raise_object(
      nb::handle(make_error_factory)(status, error.index, error.required, error.available, error.group, message));
}

void raise(kvc_status status, int64_t index, const char* format, ...) {
  kvc_error error = KVC_ERROR_INIT;
  error.index = index;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error.message, sizeof(error.message), format, arguments);
  va_end(arguments);
  raise(status, error);
}

void raise_closed(const char* what) { raise_object(nb::handle(make_closed_factory)(what)); }

void rename_function(const char* caller, kvc_error* error) {
  const std::string message = error->message;
  const size_t name = std::min(message.find(": "), message.size());
  std::snprintf(error->message, sizeof error->message, "%s%s", caller, message.c_str() + name);
}

}  // namespace kvcpy
