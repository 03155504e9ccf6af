// kvcache._kvcache: the C API of libkvcache for Python. The public names are in kvcache/__init__.py.
#include <nanobind/nanobind.h>

#include "cache.h"
#include "context.h"
#include "error.h"
#include "keys.h"
#include "kvcache.h"
#include "stateless.h"
#include "step.h"
#include "tables.h"
#include "tensor.h"

NB_MODULE(_kvcache, module) {
  using namespace kvcpy;
  nb::set_leak_warnings(false);  // a library must not write to stderr
  if (kvc_abi_version() != KVC_ABI_VERSION)
    throw nb::import_error("kvcache: libkvcache.so.0 has another ABI version than this package was built for");

  Tensor::bind(module);
  Context::bind(module);
  Cache::bind(module);
  Tables::bind(module);
  Step::bind(module);
  bind_stateless(module);
  bind_keys(module);
  Plan::bind(module);
  module.def("set_error_factories", &set_error_factories, nb::arg("make_error"), nb::arg("make_closed"));
  module.def("status_name", &kvc_status_name, nb::arg("status"));
  module.def("version", &kvc_version);
  module.def("build_info", []() { return parse_json(kvc_build_info()); });
}
