#include "array.h"

#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "dtype.h"
#include "error.h"
#include "integers.h"
#include "tensor.h"

namespace kvcpy {

namespace {

PyObject* interned(const char* text) {
  PyObject* string = PyUnicode_InternFromString(text);
  if (!string) throw nb::python_error();
  return string;  // never freed, like all objects that this file looks up once
}

// Returns an attribute of numpy. The caller looks it up once, and it is never freed.
PyObject* numpy_attribute(const char* name) {
  nb::object attribute = nb::module_::import_("numpy").attr(name);
  return attribute.release().ptr();
}

struct TypeInfo {
  ArrayKind kind = ArrayKind::kOther;
  const DLPackExchangeAPI* exchange = nullptr;
  bool has_dlpack = false;
};

const DLPackExchangeAPI* exchange_api(nb::handle type) {
  nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none() || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  auto* api = static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return api->header.version.major == DLPACK_MAJOR_VERSION && api->dltensor_from_py_object_no_sync ? api : nullptr;
}

TypeInfo inspect_type(nb::handle type) {
  TypeInfo info;
  info.exchange = exchange_api(type);
  info.has_dlpack = nb::hasattr(type, "__dlpack__");
  for (nb::handle base : type.attr("__mro__")) {
    nb::object module = nb::getattr(base, "__module__", nb::none());
    const char* name = PyUnicode_Check(module.ptr()) ? nb::borrow<nb::str>(module).c_str() : "";
    const auto is_from = [name](const char* package) {
      const size_t length = std::strlen(package);
      return std::strncmp(name, package, length) == 0 && (name[length] == '\0' || name[length] == '.');
    };
    if (is_from("numpy")) info.kind = ArrayKind::kNumpy;
    if (is_from("torch")) info.kind = ArrayKind::kTorch;
    if (is_from("cupy")) info.kind = ArrayKind::kCupy;
    if (is_from("jax") || is_from("jaxlib")) info.kind = ArrayKind::kJax;
    if (info.kind != ArrayKind::kOther) break;
  }
  return info;
}

// Returns the TypeInfo of an array. Every type that was seen is kept alive, so that no other type gets its address.
const TypeInfo& array_type(nb::handle array) {
  static auto& known = *new std::unordered_map<PyTypeObject*, TypeInfo>();
  PyTypeObject* type = Py_TYPE(array.ptr());
  static PyTypeObject* last_type = nullptr;
  static const TypeInfo* last_info = nullptr;
  if (type == last_type) return *last_info;
  auto found = known.find(type);
  if (found == known.end()) {
    const nb::handle handle(reinterpret_cast<PyObject*>(type));
    const TypeInfo info = inspect_type(handle);
    handle.inc_ref();
    found = known.emplace(type, info).first;
  }
  last_type = type;
  last_info = &found->second;  // addresses in an unordered_map are stable
  return *last_info;
}

// The extension dtypes of numpy that were seen so far (ml_dtypes has about ten). They are compared by identity.
struct ExtensionDtype {
  PyObject* numpy_dtype;
  DLDataType dtype;
};
std::vector<ExtensionDtype>& extension_dtypes() {
  static auto& known = *new std::vector<ExtensionDtype>();
  return known;
}

// Returns the type of a numpy array if it is an extension type, for which numpy has no DLPack type. Otherwise returns
// kNoDtype. search: true to check also dtypes that were not seen before.
DLDataType extension_dtype(nb::handle array, bool search) {
  auto& known = extension_dtypes();
  if (known.empty() && !search) return kNoDtype;
  static PyObject* const dtype_name_string = interned("dtype");
  nb::object dtype = nb::steal(PyObject_GetAttr(array.ptr(), dtype_name_string));
  if (!dtype.is_valid()) {  // an object of numpy that is no array: the import reports it
    PyErr_Clear();
    return kNoDtype;
  }
  for (const ExtensionDtype& entry : known)
    if (entry.numpy_dtype == dtype.ptr()) return entry.dtype;
  if (!search) return kNoDtype;
  const DLDataType found = dtype_from_name(nb::str(dtype.attr("name")).c_str());
  if (found.code != kDLBfloat && found.code < kDLFloat8_e3m4) return kNoDtype;
  known.push_back({dtype.inc_ref().ptr(), found});
  return found;
}

// Returns a view of the same memory as unsigned integers, which numpy can export.
nb::object integer_view(nb::handle array, DLDataType dtype) {
  static PyObject* const uint16 = numpy_attribute("uint16");
  static PyObject* const uint8 = numpy_attribute("uint8");
  return array.attr("view")(nb::handle(dtype.bits == 16 ? uint16 : uint8));
}

// Returns whether PyTorch records operations for gradients on this thread, as it does outside of torch.no_grad().
bool records_gradients() {
  static PyObject* const is_enabled = nb::object(nb::module_::import_("torch").attr("is_grad_enabled")).release().ptr();
  return nb::handle(is_enabled)().ptr() == Py_True;
}

[[noreturn]] void raise_not_an_array(nb::handle array, const char* name) {
  // The exception of the producer says why it does not export the array (requires_grad, a foreign byte order, a
  // tracer).
  nb::object exporter = nb::getattr(array, "__dlpack__", nb::none());
  if (!exporter.is_none()) exporter();
  PyErr_Format(PyExc_TypeError, "%s: an array with __dlpack__ is needed, not %R", name, Py_TYPE(array.ptr()));
  throw nb::python_error();
}

DLDevice device_of(nb::handle array) {
  const nb::object pair = array.attr("__dlpack_device__")();
  return {static_cast<DLDeviceType>(nb::cast<int>(pair[0])), nb::cast<int32_t>(pair[1])};
}

std::string device_text(DLDevice device) {
  if (device.device_type == kDLCPU) return "the CPU";
  const std::string id = std::to_string(device.device_id);
  if (device.device_type == kDLCUDA) return "cuda:" + id;
  return "device (" + std::to_string(static_cast<int>(device.device_type)) + ", " + id + ")";
}

// Refuses an array on another device than that of the call. For a call on the CPU, the library itself decides about
// devices other than CUDA.
void check_device(DLDevice device, const char* name, const Work& work) {
  const DLDevice wanted = work.device();
  if (device.device_type == wanted.device_type && device.device_id == wanted.device_id) return;
  if (work.on_host() && device.device_type != kDLCUDA) return;
  raise(KVC_ERROR_DEVICE, -1, "%s: the array is on %s, and the call computes on %s", name, device_text(device).c_str(),
        device_text(wanted).c_str());
}

// Returns a capsule of the exporter. On a GPU, the array is then ready on the stream of the call.
nb::object capsule_of(nb::handle exporter, const Work& work) {
  const nb::object method = exporter.attr("__dlpack__");
  nb::dict arguments;
  if (!work.on_host()) arguments["stream"] = work.dlpack_stream();
  nb::dict versioned;
  versioned.update(arguments);
  versioned["max_version"] = nb::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  try {
    return method(**versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // a producer of DLPack before 1.0 has no argument max_version
  }
  return method(**arguments);
}

// Wraps a DLManagedTensor of DLPack before 1.0 in a DLManagedTensorVersioned.
DLManagedTensorVersioned* wrap_legacy(DLManagedTensor* legacy) {
  auto managed = std::make_unique<DLManagedTensorVersioned>();
  managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->manager_ctx = legacy;
  managed->flags = 0;
  managed->dl_tensor = legacy->dl_tensor;
  managed->deleter = [](DLManagedTensorVersioned* self) {
    auto* inner = static_cast<DLManagedTensor*>(self->manager_ctx);
    if (inner->deleter) inner->deleter(inner);
    delete self;
  };
  return managed.release();
}

// Takes the memory of an exporter from its capsule. Records in `work` on which stream the exporter's library works.
DLManagedTensorVersioned* take_managed(nb::handle exporter, const char* name, Work& work) {
  nb::object capsule = capsule_of(exporter, work);
  DLManagedTensorVersioned* managed;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    managed = wrap_legacy(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor")));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  } else {
    raise_not_an_array(exporter, name);
  }
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    release_managed(managed);
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: exported by an unknown major version of DLPack", name);
  }
  if (!work.on_host()) {
    const ArrayKind kind = array_kind(exporter);
    if (kind == ArrayKind::kTorch || kind == ArrayKind::kCupy) work.took_from(current_stream(exporter, work.device()));
    if (kind == ArrayKind::kJax) work.took_from_unknown();
  }
  return managed;
}

}  // namespace

bool lies_on(nb::handle array, DLDevice device) {
  if (!nb::hasattr(array, "__dlpack_device__")) return false;
  const DLDevice its = device_of(array);
  return its.device_type == device.device_type && its.device_id == device.device_id;
}

DLDevice compute_device(nb::handle array) {
  if (!nb::hasattr(array, "__dlpack_device__")) return {kDLCPU, 0};
  const DLDevice its = device_of(array);
  return its.device_type == kDLCUDA ? its : DLDevice{kDLCPU, 0};
}

ArrayKind array_kind(nb::handle array) { return array_type(array).kind; }

void* current_stream(nb::handle array, DLDevice device) {
  const TypeInfo& info = array_type(array);
  if (info.exchange && info.exchange->current_work_stream) {
    void* stream = nullptr;
    if (info.exchange->current_work_stream(device.device_type, device.device_id, &stream) != 0)
      throw nb::python_error();
    return stream_of(reinterpret_cast<uintptr_t>(stream));
  }
  if (info.kind != ArrayKind::kTorch && info.kind != ArrayKind::kCupy) return nullptr;
  const nb::object streams = nb::module_::import_("kvcache._streams");
  const nb::object number =
      streams.attr(info.kind == ArrayKind::kTorch ? "current_of_torch" : "current_of_cupy")(device.device_id);
  return stream_of(static_cast<uintptr_t>(integer_from_python(number)));
}

void ArrayArgument::adopt(const DLTensor& tensor, const char* name, DLDataType integers_as) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxDims)
    raise(KVC_ERROR_RANK, -1, "%s: the array has %d dimensions, and at most %d are known", name, tensor.ndim, kMaxDims);
  tensor_ = tensor;
  std::copy(tensor.shape, tensor.shape + tensor.ndim, shape_);
  tensor_.shape = shape_;
  if (tensor.strides) {
    std::copy(tensor.strides, tensor.strides + tensor.ndim, strides_);
    tensor_.strides = strides_;
  }
  if (integers_as.bits != 0 && tensor_.dtype.code == kDLUInt && tensor_.dtype.bits == integers_as.bits)
    tensor_.dtype = integers_as;
  borrowed_ = true;
}

bool ArrayArgument::import(nb::handle array, bool writable) {
  if (writable ? !nb::try_cast(array, writable_, false) : !nb::try_cast(array, readable_, false)) return false;
  const auto describe = [](const auto& imported) {
    DLTensor tensor;
    tensor.data = const_cast<void*>(static_cast<const void*>(imported.data()));  // data() includes the byte offset
    tensor.byte_offset = 0;
    tensor.device = {static_cast<DLDeviceType>(imported.device_type()), imported.device_id()};
    tensor.ndim = static_cast<int32_t>(imported.ndim());
    tensor.dtype = {imported.dtype().code, imported.dtype().bits, imported.dtype().lanes};
    tensor.shape = const_cast<int64_t*>(imported.shape_ptr());
    tensor.strides = const_cast<int64_t*>(imported.stride_ptr());
    return tensor;
  };
  tensor_ = writable ? describe(writable_) : describe(readable_);
  return true;
}

void ArrayArgument::borrow(nb::handle array, const char* name, DLDataType integers_as, bool writable, Work& work) {
  const TypeInfo& info = array_type(array);
  if (info.kind == ArrayKind::kTorch) {
    static PyObject* const requires_grad = interned("requires_grad");
    nb::object flag = nb::steal(PyObject_GetAttr(array.ptr(), requires_grad));
    if (!flag.is_valid()) throw nb::python_error();
    if (flag.ptr() == Py_True) {
      if (records_gradients())
        raise(KVC_ERROR_INVALID_ARGUMENT, -1,
              "%s: the tensor requires a gradient, and none is computed here: use torch.no_grad() or detach()", name);
      detached_ = array.attr("detach")();  // PyTorch does not export a tensor that requires a gradient
      array = detached_;
    }
  }
  // The exchange table does not say whether memory is read-only. PyTorch has no read-only memory.
  if (info.exchange && (!writable || info.kind == ArrayKind::kTorch)) {
    DLTensor tensor;
    if (info.exchange->dltensor_from_py_object_no_sync(array.ptr(), &tensor) != 0) throw nb::python_error();
    check_device(tensor.device, name, work);
    if (work.on_host() || current_stream(array, work.device()) == work.stream()) {
      return adopt(tensor, name, integers_as);
    }
  }
  if (info.kind == ArrayKind::kJax && writable)
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: JAX arrays are immutable; leave it out to get a new array", name);
  if (!work.on_host()) return borrow_on_device(array, name, integers_as, writable, work);
  if (info.has_dlpack && info.kind != ArrayKind::kNumpy && nb::hasattr(array, "__dlpack_device__"))
    check_device(device_of(array), name, work);
  borrow_on_host(array, name, integers_as, writable);
}

void ArrayArgument::borrow_on_host(nb::handle array, const char* name, DLDataType integers_as, bool writable) {
  const TypeInfo& info = array_type(array);
  if (info.kind == ArrayKind::kJax) {
    static PyObject* const ready = interned("block_until_ready");
    nb::object done = nb::steal(PyObject_CallMethodObjArgs(array.ptr(), ready, nullptr));
    if (!done.is_valid()) throw nb::python_error();
  }
  nb::object view = nb::borrow(array);
  if (info.kind == ArrayKind::kNumpy) {
    const DLDataType extension = extension_dtype(array, false);
    if (extension.bits != 0) {
      integers_as = extension;
      view = integer_view(array, extension);
    }
  }
  if (!info.has_dlpack) {
    // The import needs strides. A memoryview has strides even if its object has none (ctypes).
    if (PyObject* buffer = PyMemoryView_FromObject(array.ptr())) view = nb::steal(buffer);
    PyErr_Clear();
  }
  if (!import(view, writable)) {
    const DLDataType extension =
        info.kind == ArrayKind::kNumpy && view.is(array) ? extension_dtype(array, true) : kNoDtype;
    if (extension.bits != 0) {
      integers_as = extension;
      view = integer_view(array, extension);
    }
    if (extension.bits == 0 || !import(view, writable)) {
      if (writable && import(view, false)) raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: the array is read-only", name);
      raise_not_an_array(array, name);
    }
  }
  adopt(DLTensor(tensor_), name, integers_as);
}

void ArrayArgument::borrow_on_device(nb::handle array, const char* name, DLDataType integers_as, bool writable,
                                     Work& work) {
  const TypeInfo& info = array_type(array);
  if (!info.has_dlpack) raise_not_an_array(array, name);
  check_device(device_of(array), name, work);
  managed_.reset(take_managed(array, name, work));
  if (writable && (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY))
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: the array is read-only", name);
  adopt(managed_->dl_tensor, name, integers_as);
}

void ArrayArgument::read(nb::handle array, const char* name, DLDataType integers_as, Work& work) {
  borrow(array, name, integers_as, false, work);
}

void ArrayArgument::write(nb::handle array, const char* name, DLDataType integers_as, Work& work) {
  borrow(array, name, integers_as, true, work);
}

nb::object new_output(nb::handle like, const DLTensor& like_tensor, const std::vector<int64_t>& shape, OutputType type,
                      Work& work) {
  nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  const bool as_input = type == OutputType::kAsInput;
  const char* const name = type == OutputType::kInt32 ? "int32" : "float32";
  const DLDataType dtype =
      as_input ? like_tensor.dtype : DLDataType{uint8_t(type == OutputType::kInt32 ? kDLInt : kDLFloat), 32, 1};
  if (compact_bytes(dtype, shape) < 0)
    raise(KVC_ERROR_SHAPE, -1,
          "a new output cannot have the shape %s: a size is negative, or there are more than 2^63 bytes",
          nb::str(extents).c_str());
  switch (array_kind(like)) {
    case ArrayKind::kTorch:
      if (as_input) return like.attr("new_zeros")(extents);
      return like.attr("new_zeros")(extents, nb::arg("dtype") = nb::module_::import_("torch").attr(name));
    case ArrayKind::kNumpy: {
      static PyObject* const zeros = numpy_attribute("zeros");
      return nb::handle(zeros)(extents, as_input ? nb::object(like.attr("dtype")) : nb::str(name));
    }
    case ArrayKind::kCupy: {
      const nb::object device = like.attr("device");  // CuPy makes new arrays on the device that was entered last
      device.attr("__enter__")();
      const nb::object zeros = nb::module_::import_("cupy").attr("zeros");
      nb::object output = zeros(extents, as_input ? nb::object(like.attr("dtype")) : nb::str(name));
      device.attr("__exit__")(nb::none(), nb::none(), nb::none());
      return output;
    }
    case ArrayKind::kJax: {
      if (work.on_host()) break;
      // No other code uses the memory of this new array yet, so the call may write to it.
      const nb::object zeros = nb::module_::import_("jax.numpy").attr("zeros");
      const nb::object element = as_input ? nb::object(like.attr("dtype")) : nb::str(name);
      const nb::object fresh = zeros(extents, element, nb::arg("device") = like.attr("device"));
      return nb::cast(Tensor(take_managed(fresh, "out", work), work));
    }
    case ArrayKind::kOther:
      break;
  }
  if (!work.on_host())
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "out and lse are needed: how %.100s makes new arrays is not known",
          nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(like.ptr()))).attr("__name__")).c_str());
  return nb::cast(Tensor::zeros(dtype, shape));
}

nb::object finish_output(nb::handle like, nb::object output) {
  switch (array_kind(like)) {
    case ArrayKind::kNumpy:
    case ArrayKind::kTorch:
    case ArrayKind::kCupy:
      return output;
    case ArrayKind::kJax: {
      static PyObject* const from_dlpack =
          nb::object(nb::module_::import_("jax.dlpack").attr("from_dlpack")).release().ptr();
      return nb::handle(from_dlpack)(output);
    }
    case ArrayKind::kOther:
      break;
  }
  return nb::isinstance<Tensor>(output) ? Tensor::numpy(output) : output;
}

DLManagedTensorVersioned* take_storage(nb::handle exporter, const char* name, DLDataType integers_as, Work& work) {
  nb::object source = nb::borrow(exporter);
  if (array_kind(exporter) == ArrayKind::kJax)
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: JAX arrays are immutable", name);
  if (array_kind(exporter) == ArrayKind::kNumpy) {
    const DLDataType extension = extension_dtype(exporter, true);
    if (extension.bits != 0) {
      integers_as = extension;
      source = integer_view(exporter, extension);
    }
  }
  if (!nb::hasattr(source, "__dlpack__")) raise_not_an_array(exporter, name);
  if (nb::hasattr(source, "__dlpack_device__")) check_device(device_of(source), name, work);
  DLManagedTensorVersioned* const managed = take_managed(source, name, work);
  if (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) {
    release_managed(managed);
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: the array is read-only", name);
  }
  DLDataType& dtype = managed->dl_tensor.dtype;
  if (integers_as.bits != 0 && dtype.code == kDLUInt && dtype.bits == integers_as.bits) dtype = integers_as;
  return managed;
}

}  // namespace kvcpy
