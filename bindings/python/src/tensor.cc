#include "tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "dtype.h"
#include "error.h"

namespace kvcpy {

namespace {

// What a capsule owns: a managed tensor, and a share of the memory that the tensor views. It contains no Python object.
template <typename Managed>
struct Shared {
  Managed managed;
  std::shared_ptr<DLManagedTensorVersioned> owner;
};

template <typename Managed>
constexpr const char* kCapsuleName = "dltensor_versioned";
template <>
constexpr const char* kCapsuleName<DLManagedTensor> = "dltensor";

// The destructor of a capsule. It deletes the tensor only if no consumer took it: a consumer renames the capsule.
template <typename Managed>
void delete_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsuleName<Managed>)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, kCapsuleName<Managed>));
  managed->deleter(managed);
}

// A tensor that owns its shape, its strides and its data.
struct OwnedTensor {
  DLManagedTensorVersioned managed;
  std::vector<int64_t> shape_and_strides;
  void* data = nullptr;
  ~OwnedTensor() { std::free(data); }
};

int64_t count_elements(const DLTensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  return count;
}

int64_t element_bytes(const DLTensor& tensor) { return (tensor.dtype.bits * tensor.dtype.lanes + 7) / 8; }

// Returns the strides in elements. If the producer gave none, returns those of a compact array.
std::vector<int64_t> strides_of(const DLTensor& tensor) {
  std::vector<int64_t> strides(static_cast<size_t>(tensor.ndim), 1);
  if (tensor.strides) {
    strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  } else {
    for (int32_t i = tensor.ndim - 2; i >= 0; --i) strides[i] = strides[i + 1] * tensor.shape[i + 1];
  }
  return strides;
}

nb::object tuple_of(const int64_t* values, int32_t count, int64_t factor = 1) {
  nb::object tuple = nb::steal(PyTuple_New(count));
  for (int32_t i = 0; i < count; ++i) PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(values[i] * factor));
  return tuple;
}

nb::object device_tuple(const DLTensor& tensor) {
  return nb::make_tuple(static_cast<int>(tensor.device.device_type), tensor.device.device_id);
}

void* data_of(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

[[noreturn]] void raise_buffer_error(const char* message) {
  PyErr_SetString(PyExc_BufferError, message);
  throw nb::python_error();
}

}  // namespace

int64_t compact_bytes(DLDataType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = (dtype.bits * dtype.lanes + 7) / 8;
  for (const int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  return bytes;
}

Tensor Tensor::zeros(DLDataType dtype, const std::vector<int64_t>& shape) {
  const int64_t bytes = compact_bytes(dtype, shape);
  if (bytes < 0 || bytes > INT64_MAX - 511) throw std::bad_alloc();
  auto owned = std::make_unique<OwnedTensor>();
  const auto ndim = static_cast<int32_t>(shape.size());
  owned->shape_and_strides.assign(2 * shape.size(), 1);
  int64_t* strides = owned->shape_and_strides.data() + ndim;
  std::copy(shape.begin(), shape.end(), owned->shape_and_strides.begin());
  for (int32_t i = ndim - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];

  DLManagedTensorVersioned& managed = owned->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.manager_ctx = owned.get();
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<OwnedTensor*>(self->manager_ctx); };
  managed.flags = 0;
  managed.dl_tensor = {nullptr, {kDLCPU, 0}, ndim, dtype, owned->shape_and_strides.data(), strides, 0};
  owned->data = std::aligned_alloc(256, (static_cast<size_t>(bytes) + 511) / 256 * 256);
  if (!owned->data) throw std::bad_alloc();
  std::memset(owned->data, 0, static_cast<size_t>(bytes));
  managed.dl_tensor.data = owned->data;
  return Tensor(&owned.release()->managed, Work());
}

Tensor Tensor::view_of(const DLTensor& tensor, std::shared_ptr<void> owner, const Work& work) {
  struct View {
    DLManagedTensorVersioned managed;
    std::vector<int64_t> shape, strides;
    std::shared_ptr<void> owner;
  };
  auto view = std::make_unique<View>();
  view->shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  view->strides = strides_of(tensor);
  view->owner = std::move(owner);
  view->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  view->managed.manager_ctx = view.get();
  view->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<View*>(self->manager_ctx); };
  view->managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  view->managed.dl_tensor = tensor;
  view->managed.dl_tensor.shape = view->shape.data();
  view->managed.dl_tensor.strides = view->strides.data();
  return Tensor(&view.release()->managed, work);
}

template <typename Managed>
nb::object Tensor::make_capsule() const {
  auto shared = std::make_unique<Shared<Managed>>();
  shared->owner = managed_;
  shared->managed.dl_tensor = view();
  shared->managed.manager_ctx = shared.get();
  shared->managed.deleter = [](Managed* self) { delete static_cast<Shared<Managed>*>(self->manager_ctx); };
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    shared->managed.version = managed_->version;
    shared->managed.flags = managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
  }
  nb::object capsule = nb::steal(PyCapsule_New(&shared->managed, kCapsuleName<Managed>, delete_capsule<Managed>));
  if (!capsule.is_valid()) throw nb::python_error();
  shared.release();
  return capsule;
}

nb::object Tensor::dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) const {
  if (copy.ptr() == Py_True) raise_buffer_error("kvcache.Tensor makes no copies: use copy=None or False");
  if (!dl_device.is_none() && !device_tuple(view()).equal(dl_device))
    raise_buffer_error("kvcache.Tensor stays on its device: dl_device must be None or its own");
  work_.make_wait(stream);
  const bool versioned = !max_version.is_none() && nb::cast<long>(max_version[0]) >= 1;
  if (versioned) return make_capsule<DLManagedTensorVersioned>();
  if (readonly())
    raise_buffer_error(
        "this kvcache.Tensor is read-only, which DLPack before 1.0 cannot express: ask for writable=True");
  return make_capsule<DLManagedTensor>();
}

nb::object Tensor::numpy(nb::handle self) {
  const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  const DLTensor& view = tensor.view();
  if (view.device.device_type != kDLCPU) raise_buffer_error("kvcache.Tensor: the memory is not on the CPU");
  const char* name = dtype_numpy_name(view.dtype);
  const bool is_ieee = view.dtype.code == kDLFloat || view.dtype.code == kDLInt || view.dtype.code == kDLUInt;
  const int64_t itemsize = element_bytes(view);
  const std::string type = std::string("<") +
                           (view.dtype.code == kDLFloat ? "f"
                            : view.dtype.code == kDLInt ? "i"
                                                        : "u") +
                           std::to_string(itemsize);

  nb::dict interface;
  interface["version"] = 3;
  interface["typestr"] = nb::str(type.c_str());
  interface["shape"] = tuple_of(view.shape, view.ndim);
  interface["strides"] = tuple_of(strides_of(view).data(), view.ndim, itemsize);
  interface["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(data_of(view)), tensor.readonly());
  // The array keeps `owner` alive, from which numpy gets the address. `owner` keeps the memory alive.
  nb::object owner = nb::module_::import_("types").attr("SimpleNamespace")();
  owner.attr("__array_interface__") = interface;
  owner.attr("owner") = self;
  nb::object array = nb::module_::import_("numpy").attr("asarray")(owner);
  if (is_ieee || !name) return array;
  try {
    return array.attr("view")(nb::module_::import_("ml_dtypes").attr(name));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    return array;  // without ml_dtypes, the elements are unsigned integers with the same bits
  }
}

void Tensor::bind(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::is_weak_referenceable(), R"(Memory of the library as an array.

A DLPack exporter: give it to numpy.asarray, torch.from_dlpack, jax.dlpack.from_dlpack, or to any kvcache call. No
copy is made. It keeps the memory alive (also after Cache.close()), and a pool's contents change as pages are reused.)")
      .def("__dlpack__", &Tensor::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           R"(Exports a DLPack capsule; no copy. On a GPU `stream` waits for what wrote the tensor; the host does not.

Raises BufferError for copy=True, for another device, and for a read-only tensor if `max_version` is below (1, 0).)")
      .def(
          "__dlpack_device__", [](const Tensor& self) { return device_tuple(self.view()); },
          "The DLPack device: (device_type, device_id).")
      .def(
          "numpy", [](nb::handle_t<Tensor> self) { return numpy(self); },
          R"(A numpy array over the same memory, no copy.

bfloat16 and float8 come as ml_dtypes' types if that package is installed, else as the unsigned integers of their bits.
Raises BufferError if the memory is not on the CPU.)")
      .def(
          "__array__",
          [](nb::handle_t<Tensor> self, nb::handle dtype, nb::handle copy) -> nb::object {
            nb::object array = numpy(self);
            if (!dtype.is_none() && !array.attr("dtype").equal(dtype)) return array.attr("astype")(dtype);
            return copy.ptr() == Py_True ? nb::object(array.attr("copy")()) : array;
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(), "numpy.asarray(tensor): see numpy().")
      .def_prop_ro(
          "shape", [](const Tensor& self) { return tuple_of(self.view().shape, self.view().ndim); },
          "Extents of the dimensions.")
      .def_prop_ro(
          "strides", [](const Tensor& self) { return tuple_of(strides_of(self.view()).data(), self.view().ndim); },
          "Strides in elements.")
      .def_prop_ro(
          "dtype", [](const Tensor& self) { return dtype_name(self.view().dtype); },
          "Short name of the element type: \"f32\", \"f16\", \"bf16\", ...")
      .def_prop_ro(
          "device", [](const Tensor& self) { return device_tuple(self.view()); },
          "The DLPack device: (device_type, device_id).")
      .def_prop_ro("readonly", &Tensor::readonly, "True if the memory must not be written through this tensor.")
      .def_prop_ro(
          "data_ptr", [](const Tensor& self) { return reinterpret_cast<uintptr_t>(data_of(self.view())); },
          "Address of the first element.")
      .def_prop_ro(
          "nbytes", [](const Tensor& self) { return count_elements(self.view()) * element_bytes(self.view()); },
          "Bytes of all elements.")
      .def("__len__",
           [](const Tensor& self) -> size_t {
             if (self.view().ndim == 0) throw nb::type_error("len() of a tensor without dimensions");
             return static_cast<size_t>(self.view().shape[0]);
           })
      .def("__repr__", [](const Tensor& self) {
        const nb::object shape = tuple_of(self.view().shape, self.view().ndim);
        return nb::str("kvcache.Tensor(shape={}, dtype={}{})")
            .format(shape, dtype_name(self.view().dtype), self.readonly() ? ", readonly" : "");
      });
}

}  // namespace kvcpy
