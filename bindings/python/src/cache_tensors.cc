// The tensor calls of kvcache.Cache: views of page pools, exports and imports of a sequence's K and V.
#include <algorithm>
#include <cstring>
#include <memory>

#include "array.h"
#include "cache.h"
#include "dtype.h"
#include "error.h"
#include "tensor.h"

namespace kvcpy {

namespace {

// Makes a Tensor of a pool or an export of a layer that exists. The library exports float8 as uint8, and the Tensor
// gets the type of the layer. Packed elements of 4 bits stay bytes, because numpy has no type of 4 bits.
Tensor tensor_of_layer(const Cache& self, int64_t layer, DLManagedTensorVersioned* tensor, const Work& work) {
  const DLDataType dtype = self.dtype(layer);
  if (dtype.bits == 8 && tensor->dl_tensor.dtype == DLDataType{kDLUInt, 8, 1}) tensor->dl_tensor.dtype = dtype;
  return Tensor(tensor, work);
}

nb::object layer_pool(const Cache& self, int64_t layer, const char* which, bool writable, nb::handle stream) {
  auto handle = self.open();
  int32_t pool;
  if (std::strcmp(which, "kv") == 0) {
    pool = KVC_POOL_KV;
  } else if (std::strcmp(which, "k") == 0) {
    pool = KVC_POOL_K;
  } else if (std::strcmp(which, "v") == 0) {
    pool = KVC_POOL_V;
  } else if (std::strcmp(which, "k_scale") == 0) {
    pool = KVC_POOL_K_SCALE;
  } else if (std::strcmp(which, "v_scale") == 0) {
    pool = KVC_POOL_V_SCALE;
  } else {
    raise(KVC_ERROR_INVALID_ARGUMENT, -1,
          "layer_pool: which must be 'kv', 'k', 'v', 'k_scale' or 'v_scale', not '%.40s'", which);
  }
  const Work work = self.work(stream);
  DLManagedTensorVersioned* tensor = nullptr;
  call_quick([&](kvc_error* error) {
    return kvc_cache_export_pool(handle->cache, saturate(layer), pool, writable ? KVC_POOL_WRITABLE : 0, &tensor,
                                 work.stream(), error);
  });
  return nb::cast(tensor_of_layer(self, layer, tensor, work));
}

nb::object export_layer(const Cache& self, nb::handle sequence, int64_t layer, int64_t begin, nb::handle end,
                        bool scales, nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("Cache.export: one sequence id is needed");
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.layer = saturate(layer);
  args.position_begin = begin;
  args.position_end = end.is_none() ? 0 : integer_from_python(end);
  const bool none = !end.is_none() && args.position_end == 0;
  if (none && begin != 0)
    raise(KVC_ERROR_OUT_OF_RANGE, -1, "Cache.export: positions [%lld, 0) are no range", static_cast<long long>(begin));
  // To the library, an end of 0 means the length of the sequence. So the range [0, 0) is passed as [1, 1), or as [0, 0)
  // if the sequence has no tokens.
  if (none) args.position_begin = args.position_end = 1;
  args.parts = KVC_EXPORT_K | (scales ? KVC_EXPORT_K_SCALE : 0);
  const bool keys_only = self.v_head_dim(layer) == 0;
  if (!keys_only) args.parts |= KVC_EXPORT_V | (scales ? KVC_EXPORT_V_SCALE : 0);
  kvc_exported exported;
  kvc_exported_init(&exported);
  call_without_gil([&](kvc_error* error) {
    const auto copy = [&] {
      return kvc_seq_export(handle->cache, id.sequences()[0], &args, &exported, work.stream(), error);
    };
    const kvc_status status = copy();
    if (!none || status != KVC_ERROR_OUT_OF_RANGE) return status;
    args.position_begin = args.position_end = 0;
    return copy();
  });
  const nb::object k = nb::cast(tensor_of_layer(self, layer, exported.k, work));
  const nb::object v = keys_only ? nb::none() : nb::cast(tensor_of_layer(self, layer, exported.v, work));
  if (!scales) return nb::make_tuple(k, v);
  const nb::object k_scale = nb::cast(Tensor(exported.k_scale, work));
  return nb::make_tuple(k, v, k_scale, keys_only ? nb::none() : nb::cast(Tensor(exported.v_scale, work)));
}

// Borrows every array of a list. None counts as an empty list. An element None means no array.
class ArrayList {
 public:
  ArrayList(nb::handle arrays, const char* name, DLDataType integers_as, Work& work) {
    if (arrays.is_none()) return;
    nb::object list = nb::steal(PySequence_Tuple(arrays.ptr()));
    if (!list.is_valid()) throw nb::python_error();
    size_ = PyTuple_Size(list.ptr());
    arrays_ = std::make_unique<ArrayArgument[]>(static_cast<size_t>(size_));
    for (Py_ssize_t i = 0; i < size_; ++i) {
      nb::handle array = PyTuple_GetItem(list.ptr(), i);
      if (!array.is_none()) arrays_[i].read(array, name, integers_as, work);
      tensors_.push_back(arrays_[i].tensor());
    }
    keep_ = std::move(list);
  }
  Py_ssize_t size() const { return size_; }
  const DLTensor* const* tensors() const { return tensors_.data(); }

 private:
  nb::object keep_;
  Py_ssize_t size_ = 0;
  std::unique_ptr<ArrayArgument[]> arrays_;
  std::vector<const DLTensor*> tensors_;
};

void import_layers(const Cache& self, nb::handle sequence, nb::handle ks, nb::handle vs, bool as_stored,
                   nb::handle dtype, nb::handle k_scales, nb::handle v_scales, nb::handle stream) {
  auto handle = self.open();
  Work work = self.work(stream);
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("Cache.import_: one sequence id is needed");
  const DLDataType integers_as = dtype_from_python(dtype);
  const ArrayList k(ks, "k", integers_as, work), v(vs, "v", integers_as, work);
  if (!vs.is_none() && k.size() != v.size())
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "import_: %zd arrays of K but %zd of V", k.size(), v.size());
  const ArrayList k_scale(k_scales, "k_scales", kNoDtype, work), v_scale(v_scales, "v_scales", kNoDtype, work);
  for (const ArrayList* list : {&k_scale, &v_scale})
    if (list->size() != 0 && list->size() != k.size())
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "import_: %zd arrays of scales but %zd of K", list->size(), k.size());
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = as_stored ? KVC_IMPORT_AS_STORED : 0;
  if (k_scale.size() != 0) args.k_scale = k_scale.tensors();
  if (v_scale.size() != 0) args.v_scale = v_scale.tensors();
  args.num_layers = saturate(k.size());
  args.k = k.tensors();
  if (!vs.is_none()) args.v = v.tensors();
  call_without_gil(
      [&](kvc_error* error) { return kvc_seq_import(handle->cache, id.sequences()[0], &args, work.stream(), error); });
  work.hand_back();
}

// Returns an array with a row (group, source_slot, target_slot, count) for each copy.
nb::object take_copies(const Cache& self) {
  auto handle = self.open();
  std::vector<kvc_copy> copies;
  int64_t count = 0;
  for (;;) {  // the first call gets the count; a fork of another thread may add copies between two calls
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_cache_take_copies(handle->cache, copies.data(), sizeof(kvc_copy),
                                                    static_cast<int64_t>(copies.size()), &count, &error);
    if (status != KVC_ERROR_BUFFER_TOO_SMALL) check(status, error);
    if (status == KVC_OK && (count == 0 || !copies.empty())) break;
    copies.resize(static_cast<size_t>(count));
  }
  const auto rows = static_cast<size_t>(count);
  auto values = std::make_unique<int64_t[]>(rows * 4 + 1);
  for (size_t i = 0; i < rows; ++i) {
    const kvc_copy& c = copies[i];
    const int64_t row[4] = {c.group, c.source_slot, c.target_slot, c.count};
    std::copy_n(row, 4, values.get() + i * 4);
  }
  int64_t* data = values.get();
  nb::capsule owner(data, [](void* pointer) noexcept { delete[] static_cast<int64_t*>(pointer); });
  values.release();
  return nb::cast(nb::ndarray<nb::numpy, int64_t, nb::ndim<2>>(data, {rows, 4}, owner));
}

}  // namespace

void Cache::bind_tensors(nb::class_<Cache>& cls) {
  cls.def("layer_pool", &layer_pool, nb::arg("layer"), nb::arg("which") = "kv", nb::arg("writable") = false,
          nb::kw_only(), nb::arg("stream") = nb::none(),
          R"(A layer's page pool as a kvcache.Tensor, no copy.

Args:
    layer: index of the layer.
    which: "kv": [pages, 2, kv_heads, page_size, head_dim], if K and V are stored so; "k" or "v": [pages, kv_heads,
        page_size, head_dim]. "k_scale" or "v_scale" of a quantised layer: [pages, kv_heads, page_size] float32 of
        int8 and uint4, [kv_heads] of float8.
    writable: without it the tensor is read-only.
    stream: on a GPU, as Cache.forward. It waits for what the cache stored before, and so does a reader of the tensor.

The tensor keeps the memory alive, also after close(); what is in it changes as pages are reused.

Raises: OutOfRange, Unsupported ("kv" of pools that are stored apart), InvalidArgument.)")
      .def(
          "export", &export_layer, nb::arg("sequence"), nb::arg("layer"), nb::arg("begin") = 0,
          nb::arg("end") = nb::none(), nb::arg("scales") = false, nb::kw_only(), nb::arg("stream") = nb::none(),
          R"(Copies K and V of one layer of one sequence, as stored (rounded or quantised, and rotated if the layer rotates).

Args:
    sequence: its id.
    layer: index of the layer.
    begin, end: tokens [begin, end); None = the sequence's length.
    scales: of a quantised layer: also what k and v are to be multiplied by.
    stream: of the copy, as forward(). A reader of the tensors (by DLPack) names the stream on which they must be ready.

Returns:
    (k, v): kvcache.Tensor [tokens, kv_heads, head_dim] and [tokens, kv_heads, v_head_dim] of the layer's dtype (uint4:
        bytes of two elements). Of an MLA layer v repeats the latent part of k; of one with keys_only v is None.
    (k, v, k_scale, v_scale) with scales=True: float32, [tokens, kv_heads] of int8 and uint4, [kv_heads] of float8.

Raises: StaleId, Busy, OutOfRange, Evicted, Unsupported (scales of a layer without).)")
      .def("import_", &import_layers, nb::arg("sequence"), nb::arg("ks"), nb::arg("vs") = nb::none(),
           nb::arg("as_stored") = false, nb::arg("dtype") = nb::none(), nb::arg("k_scales") = nb::none(),
           nb::arg("v_scales") = nb::none(), nb::kw_only(), nb::arg("stream") = nb::none(),
           R"(Appends tokens of dense K and V to a sequence in every layer, as attend would.

Args:
    sequence: its id.
    ks, vs: an array for each layer, [T, kv_heads, head_dim] and [T, kv_heads, v_head_dim], T the same in all; of MLA
        layers as for Step.attend (vs None: all are, with whole rows).
    as_stored: the inverse of export: k is rotated already, and of quantised layers k and v may be stored bytes.
    dtype: as for Step.attend.
    k_scales, v_scales: with stored bytes of int8: an array [T, kv_heads] for each layer, None where there are none.
    stream: as forward().

Raises: those of forward and append (.index = the layer).)")
      .def("take_copies", &take_copies,
           R"(Hands over the copies that a cache with storage=None leaves to the caller, and forgets them.

A fork queues one of a partial last page, forward() one of a shared last page, commit() those of kept nodes. They are to
be made in the caller's pools in this order, one after another, in every layer of their group: before the next step that
stores or reads, a step's own before it reads. forward() raises Order while copies of earlier calls wait; so do fork()
and commit() once max_sequences times the number of groups wait. A step that is aborted drops its own.

Returns:
    An int64 numpy array [n, 4] of rows (group, source_slot, target_slot, count): count tokens from a slot on, of one
    page each; slot = page * page_size + offset. Of a commit the two ranges may overlap, the target below the source.)");
}

}  // namespace kvcpy
