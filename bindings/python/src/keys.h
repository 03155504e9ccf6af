// Page keys. Names and defaults are kvcache/_keys.py's.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

void bind_keys(nb::module_& module);

}  // namespace kvcpy
