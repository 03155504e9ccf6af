// kvcache.Context: one device, its threads and its scratch memory.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// The C context and the Python callable that it logs to. Shared by the Python object and by every cache, because a
// cache may be destroyed after the Python context was collected.
struct ContextHandle {
  kvc_context* context = nullptr;
  DLDevice device = {kDLCPU, 0};
  PyObject* log = nullptr;  // owned; NULL = silent

  ~ContextHandle();
};

class Context {
 public:
  Context(int32_t device_type, int32_t device_id, int64_t threads, nb::object simd, nb::object log, nb::object backend,
          bool validate, bool openmp);

  const std::shared_ptr<ContextHandle>& handle() const { return handle_; }

  static void bind(nb::module_& module);

 private:
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear(PyObject* self);
  static const PyType_Slot kSlots[];

  std::shared_ptr<ContextHandle> handle_;
};

// Saturates an integer to int32_t. The library refuses the extreme values with its own message.
inline int32_t saturate(int64_t value) {
  return static_cast<int32_t>(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

// Returns the JSON text of a kvc_*_describe function or of kvc_build_info as Python objects.
nb::object parse_json(const std::string& text);

}  // namespace kvcpy
