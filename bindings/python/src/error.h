// Failed C calls become Python exceptions. Every function here needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// Takes the two callables of kvcache/_errors.py that build an exception: from the fields of a kvc_error, and of a
// closed cache. Kept for the life of the process.
void set_error_factories(nb::object make_error, nb::object make_closed);

// Raises the exception of a failed call.
[[noreturn]] void raise(kvc_status status, const kvc_error& error);

// Raises a failure that the binding itself found; `format` as printf's. `index` -1 = none.
[[noreturn, gnu::format(printf, 3, 4)]] void raise(kvc_status status, int64_t index, const char* format, ...);

// Puts the name of the function that the program called in front of a message.
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

// The text of a kvc_*_describe function, called without the GIL: describe(buffer, capacity, &length, &error). It is
// called again while the text does not fit.
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

// Runs call(&error) with the GIL held: for calls of a microsecond.
template <typename Call>
void call_quick(Call&& call) {
  kvc_error error = KVC_ERROR_INIT;
  check(call(&error), error);
}

}  // namespace kvcpy
