// The stateless calls: arrays in the order of the C structs. Names and defaults are kvcache/_stateless.py's.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

void bind_stateless(nb::module_& module);

}  // namespace kvcpy
