// Binds kvc_page_keys. kvcache/_keys.py has the public function, with names and default values.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcpy {

namespace nb = nanobind;

void bind_keys(nb::module_& module);

}  // namespace kvcpy
