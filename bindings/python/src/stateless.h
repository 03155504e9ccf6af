// Binds the stateless calls. They take their arrays in the order of the fields in the C structs. kvcache/_stateless.py
// has the public functions, with names and default values.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

void bind_stateless(nb::module_& module);

}  // namespace kvcpy
