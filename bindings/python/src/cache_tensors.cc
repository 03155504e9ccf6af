// The tensor calls of kvcache.Cache: views of page pools, exports and imports of a sequence's K and V.
#include <cstring>
#include <memory>

#include "array.h"
#include "cache.h"
#include "dtype.h"
#include "error.h"
#include "tensor.h"

namespace kvcpy {

namespace {

nb::object layer_pool(const Cache& self, int64_t layer, const char* which, bool writable) {
  auto handle = self.open();
  int32_t pool;
  if (std::strcmp(which, "kv") == 0) {
    pool = KVC_POOL_KV;
  } else if (std::strcmp(which, "k") == 0) {
    pool = KVC_POOL_K;
  } else if (std::strcmp(which, "v") == 0) {
    pool = KVC_POOL_V;
  } else {
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "layer_pool: which must be 'kv', 'k' or 'v', not '%.40s'", which);
  }
  DLManagedTensorVersioned* tensor = nullptr;
  call_quick([&](kvc_error* error) {
    return kvc_cache_export_pool(handle->cache, saturate(layer), pool, writable ? KVC_POOL_WRITABLE : 0, &tensor,
                                 error);
  });
  return nb::cast(Tensor(tensor));
}

nb::object export_layer(const Cache& self, nb::handle sequence, int64_t layer, int64_t begin, nb::handle end) {
  auto handle = self.open();
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("export: one sequence id is needed");
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = saturate(layer);
  args.position_begin = begin;
  args.position_end = end.is_none() ? 0 : integer_from_python(end);
  if (!end.is_none() && args.position_end == 0)  // to the library: the sequence's length
    raise(KVC_ERROR_OUT_OF_RANGE, -1, "export: positions [%lld, 0) are an empty range", static_cast<long long>(begin));
  DLManagedTensorVersioned *k = nullptr, *v = nullptr;
  call_without_gil([&](kvc_error* error) {
    return kvc_seq_export(handle->cache, id.sequences()[0], &args, &k, &v, nullptr, error);
  });
  const Tensor k_tensor(k), v_tensor(v);
  return nb::make_tuple(nb::cast(k_tensor), nb::cast(v_tensor));
}

// Borrows every array of a list.
class ArrayList {
 public:
  ArrayList(nb::handle arrays, const char* name, DLDataType integers_as) {
    nb::object list = nb::steal(PySequence_Tuple(arrays.ptr()));
    if (!list.is_valid()) throw nb::python_error();
    size_ = PyTuple_Size(list.ptr());
    arrays_ = std::make_unique<ArrayArgument[]>(static_cast<size_t>(size_));
    for (Py_ssize_t i = 0; i < size_; ++i) {
      arrays_[i].read(PyTuple_GetItem(list.ptr(), i), name, integers_as);
      tensors_.push_back(arrays_[i].tensor());
    }
    keep_ = std::move(list);
  }
  Py_ssize_t size() const { return size_; }
  const DLTensor* const* tensors() const { return tensors_.data(); }

 private:
  nb::object keep_;
  Py_ssize_t size_;
  std::unique_ptr<ArrayArgument[]> arrays_;
  std::vector<const DLTensor*> tensors_;
};

void import_layers(const Cache& self, nb::handle sequence, nb::handle ks, nb::handle vs, bool rotate,
                   nb::handle dtype) {
  auto handle = self.open();
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("import_: one sequence id is needed");
  const DLDataType integers_as = dtype_from_python(dtype);
  const ArrayList k(ks, "k", integers_as), v(vs, "v", integers_as);
  if (k.size() != v.size())
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "import_: %zd arrays of K but %zd of V", k.size(), v.size());
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = rotate ? KVC_IMPORT_ROTATE : 0;
  args.num_layers = saturate(k.size());
  args.k = k.tensors();
  args.v = v.tensors();
  call_without_gil(
      [&](kvc_error* error) { return kvc_seq_import(handle->cache, id.sequences()[0], &args, nullptr, error); });
}

}  // namespace

void Cache::bind_tensors(nb::class_<Cache>& cls) {
  cls.def("layer_pool", &layer_pool, nb::arg("layer"), nb::arg("which") = "kv", nb::arg("writable") = false,
          R"(A layer's page pool as a kvcache.Tensor, no copy.

Args:
    layer: index of the layer.
    which: "kv": [pages, 2, kv_heads, page_size, head_dim], if K and V are stored so; "k" or "v": [pages, kv_heads,
        page_size, head_dim].
    writable: without it the tensor is read-only.

The tensor keeps the memory alive, also after close(); what is in it changes as pages are reused.

Raises: OutOfRange, Unsupported ("kv" of pools that are stored apart), InvalidArgument.)")
      .def("export", &export_layer, nb::arg("sequence"), nb::arg("layer"), nb::arg("begin") = 0,
           nb::arg("end") = nb::none(),
           R"(Copies K and V of one layer of one sequence, as stored (rounded, and rotated if the layer rotates).

Args:
    sequence: its id.
    layer: index of the layer.
    begin, end: tokens [begin, end); None = the sequence's length.

Returns:
    (k, v): kvcache.Tensor [tokens, kv_heads, head_dim] and [tokens, kv_heads, v_head_dim] of the layer's dtype.

Raises: StaleId, Busy, OutOfRange, Evicted.)")
      .def("import_", &import_layers, nb::arg("sequence"), nb::arg("ks"), nb::arg("vs"), nb::arg("rotate") = false,
           nb::arg("dtype") = nb::none(),
           R"(Appends tokens of dense K and V to a sequence in every layer: the inverse of export.

Args:
    sequence: its id.
    ks, vs: an array for each layer, [T, kv_heads, head_dim] and [T, kv_heads, v_head_dim], T the same in all.
    rotate: k is raw: rotate it as attend would. Without it: k is as exported.
    dtype: as for Step.attend.

Raises: those of forward and append (.index = the layer).)");
}

}  // namespace kvcpy
