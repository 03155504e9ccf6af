// Failed C calls become Python exceptions. Every function here needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// Takes the two callables of kvcache/_errors.py that build an exception: one from the fields of a kvc_error, and one
// for a closed cache. They are kept until the process ends.
void set_error_factories(nb::object make_error, nb::object make_closed);

// Raises the exception of a failed call.
[[noreturn]] void raise(kvc_status status, const kvc_error& error);

// Raises a failure that the binding itself found. `format` is as in printf. `index`: -1 = none.
[[noreturn, gnu::format(printf, 3, 4)]] void raise(kvc_status status, int64_t index, const char* format, ...);

// Replaces the text before the first ": " of a message, the name of a C function, with the name of the Python function
// that the program called.
void rename_function(const char* caller, kvc_error* error);

// Raises kvcache.Closed.
[[noreturn]] void raise_closed(const char* what);

inline void check(kvc_status status, const kvc_error& error) {
  if (status != KVC_OK) raise(status, error);
}

// Runs call(&error) without the GIL and raises its failure.
template <typename Call>
void call_without_gil(Call&& call) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_status status;
  {
    nb::gil_scoped_release nogil;
    status = call(&error);
  }
  check(status, error);
}

// Returns the text of a kvc_*_describe function. Calls describe(buffer, capacity, &length, &error) without the GIL, and
// repeats the call while the text does not fit.
template <class Describe>
std::string read_text(Describe describe) {
  int64_t length = 4095;
  std::string text;
  kvc_status status = KVC_ERROR_BUFFER_TOO_SMALL;
  while (status == KVC_ERROR_BUFFER_TOO_SMALL) {
    text.resize(static_cast<size_t>(length) + 1);
    call_without_gil([&](kvc_error* error) {
      status = describe(text.data(), static_cast<int64_t>(text.size()), &length, error);
      return status == KVC_ERROR_BUFFER_TOO_SMALL ? KVC_OK : status;
    });
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

// Runs call(&error) with the GIL held, and raises its failure. For calls that take about a microsecond.
template <typename Call>
void call_quick(Call&& call) {
  kvc_error error = KVC_ERROR_INIT;
  check(call(&error), error);
}

}  // namespace kvcpy
