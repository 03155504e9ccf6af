#include "context.h"

#include <string>
#include <vector>

#include "array.h"
#include "dtype.h"
#include "error.h"
#include "openmp.h"

namespace kvcpy {

namespace {

// The library calls this function on a thread that called the library. The thread may or may not hold the GIL.
void log_message(void* user, int32_t level, const char* message) {
  if (!Py_IsInitialized()) return;
  nb::gil_scoped_acquire gil;
  PyObject* callable = static_cast<ContextHandle*>(user)->log;
  if (!callable) return;
  nb::object keep = nb::borrow(callable);
  // An exception may be pending in the caller. A log function that fails must not replace it.
  nb::error_scope pending;
  try {
    keep(level, message);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(keep);
  }
}

// Returns the text of a str, or null for None. The text is valid as long as the object in `keep`.
const char* text_or_null(nb::object* keep, const char* message) {
  if (keep->is_none()) return nullptr;
  if (!PyUnicode_Check(keep->ptr())) throw nb::type_error(message);
  return nb::borrow<nb::str>(*keep).c_str();
}

nb::object merge_states(const Context& self, nb::sequence outputs, nb::sequence lses, nb::handle stream) {
  const size_t parts = nb::len(outputs);
  if (parts == 0 || nb::len(lses) != parts)
    raise(KVC_ERROR_INVALID_ARGUMENT, -1,
          "merge_states: %zu outputs and %zu lses: as many of both are needed, at least one", parts, nb::len(lses));
  Work work = Work::on(self.handle()->device, stream, outputs[0]);
  std::vector<ArrayArgument> arrays(2 * parts);  // outputs, then lses
  std::vector<const DLTensor*> tensors(2 * parts);
  for (size_t i = 0; i < parts; i++) {
    arrays[i].read(outputs[i], "outputs", kNoDtype, work);
    arrays[parts + i].read(lses[i], "lses", kNoDtype, work);
    tensors[i] = arrays[i].tensor();
    tensors[parts + i] = arrays[parts + i].tensor();
  }
  const nb::object like = outputs[0];
  const DLTensor& first = *tensors[0];
  if (first.ndim != 3)
    raise(KVC_ERROR_RANK, 0, "merge_states: outputs[0] has %d dimensions, not the three of [T, H, Dv]", first.ndim);
  nb::object out =
      new_output(like, first, {first.shape[0], first.shape[1], first.shape[2]}, OutputType::kFloat32, work);
  nb::object lse = new_output(like, first, {first.shape[0], first.shape[1]}, OutputType::kFloat32, work);
  ArrayArgument out_array, lse_array;
  out_array.write(out, "out", kNoDtype, work);
  lse_array.write(lse, "lse", kNoDtype, work);
  kvc_merge_args args;
  kvc_merge_args_init(&args);
  args.num_parts = saturate(static_cast<int64_t>(parts));
  args.outputs = tensors.data();
  args.lses = tensors.data() + parts;
  args.out = out_array.tensor();
  args.lse = lse_array.tensor();
  kvc_context* context = self.handle()->context;
  call_without_gil([&](kvc_error* error) { return kvc_merge_states(context, &args, work.stream(), error); });
  work.hand_back();
  return nb::make_tuple(finish_output(like, std::move(out)), finish_output(like, std::move(lse)));
}

}  // namespace

ContextHandle::~ContextHandle() {
  kvc_context_destroy(context);
  if (log && Py_IsInitialized()) {
    nb::gil_scoped_acquire gil;
    Py_CLEAR(log);
  }
}

Context::Context(int32_t device_type, int32_t device_id, int64_t threads, nb::object simd, nb::object log,
                 nb::object backend, bool validate, bool openmp)
    : handle_(std::make_shared<ContextHandle>()) {
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.device_type = device_type;
  config.device_id = device_id;
  config.num_threads = saturate(threads);
  config.simd = text_or_null(&simd, "Context: simd must be a name or None");
  config.backend = text_or_null(&backend, "Context: backend must be a path or None");
  if (validate) config.flags |= KVC_CONTEXT_VALIDATE;
  if (openmp) {
    if (!find_openmp())
      raise(KVC_ERROR_UNSUPPORTED, -1, "Context: pool is \"openmp\", and this process has loaded no OpenMP runtime");
    if (threads == 0) config.num_threads = openmp_threads();
    config.parallel_for = openmp_parallel_for;
  }
  handle_->device = {static_cast<DLDeviceType>(device_type), device_id};
  if (!log.is_none()) {
    handle_->log = log.release().ptr();
    config.log = log_message;
    config.log_user = handle_.get();
  }
  call_without_gil([&](kvc_error* error) { return kvc_context_create(&config, &handle_->context, error); });
}

nb::object parse_json(const std::string& text) { return nb::module_::import_("json").attr("loads")(text.c_str()); }

int Context::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& handle = nb::inst_ptr<Context>(self)->handle_;
  if (handle) Py_VISIT(handle->log);
  return 0;
}

int Context::clear(PyObject* self) {
  const auto& handle = nb::inst_ptr<Context>(self)->handle_;
  if (nb::inst_ready(self) && handle) Py_CLEAR(handle->log);
  return 0;
}

const PyType_Slot Context::kSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&Context::traverse)},
                                       {Py_tp_clear, reinterpret_cast<void*>(&Context::clear)},
                                       {0, nullptr}};

void Context::bind(nb::module_& module) {
  nb::class_<Context>(module, "Context", nb::type_slots(kSlots), nb::is_weak_referenceable())
      .def(nb::init<int32_t, int32_t, int64_t, nb::object, nb::object, nb::object, bool, bool>(),
           nb::arg("device_type"), nb::arg("device_id"), nb::arg("threads"), nb::arg("simd").none(),
           nb::arg("log").none(), nb::arg("backend").none() = nb::none(), nb::arg("validate") = false,
           nb::arg("openmp") = false)
      .def(
          "describe",
          [](const Context& self) {
            kvc_context* context = self.handle()->context;
            return parse_json(read_text([&](char* buffer, int64_t capacity, int64_t* length, kvc_error* error) {
              return kvc_context_describe(context, buffer, capacity, length, error);
            }));
          },
          R"(What the context is: a dict with `device`, `threads`, `simd` (in use) and `simd_available`.)")
      .def(
          "check",
          [](const Context& self) {
            call_quick([&](kvc_error* error) { return kvc_context_check(self.handle()->context, error); });
          },
          R"(Raises EarlierCall if the device has met a bad index by now, in a context that validates. It waits for nothing:
synchronise the stream before it to hear of all calls. Each report is raised once.)")
      .def("merge_states", &merge_states, nb::arg("outputs"), nb::arg("lses"), nb::kw_only(),
           nb::arg("stream") = nb::none(),
           R"(Merges results of attention over disjoint sets of keys by their LSE: as one attention over all of them.

Args:
    outputs: a sequence of [T, H, Dv] float32.
    lses: as many [T, H] float32; -inf marks a row that saw nothing, whose output is not read.
    stream: on a GPU, as Cache.forward; None: the current one of the outputs' library.

Returns:
    (out, lse), new arrays of the first output's kind.

Raises:
    DType, Device, Rank, Shape, Stride, with .index = the part; ValueError for unlike or empty sequences.)");
}

}  // namespace kvcpy
