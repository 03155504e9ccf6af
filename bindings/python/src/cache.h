// kvcache.Cache: page pools and sequences.
//
// Lifetime: a shared handle owns the C cache. The Python object refers to the handle until close() or until it is
// garbage-collected. Each call refers to the handle until the call returns. So the cache is destroyed with the last
// reference, and never while a call runs.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "config.h"
#include "context.h"
#include "integers.h"
#include "kvcache.h"
#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

struct CacheHandle {
  std::shared_ptr<ContextHandle> context;
  kvc_cache* cache = nullptr;

  ~CacheHandle() { kvc_cache_destroy(cache); }
};

class Cache {
 public:
  Cache(nb::handle_t<Context> context, nb::list layers, nb::list groups, nb::tuple sizes);

  // Returns the Work of a call without arrays. `stream` may be None.
  Work work(nb::handle stream) const { return Work::on(device_, stream); }
  DLDevice device() const { return device_; }

  // Returns the handle. Raises kvcache.Closed if the cache is closed.
  std::shared_ptr<CacheHandle> open() const;
  bool closed() const { return handle_ == nullptr; }
  void close();

  // Returns the head dim of V of a layer; -1 for a layer that does not exist.
  int64_t v_head_dim(int64_t layer) const;

  // Returns the element type of a layer that exists; kNoDtype if the config gave none.
  DLDataType dtype(int64_t layer) const { return dtypes_.at(static_cast<size_t>(layer)); }

  nb::object context() const { return context_; }
  int64_t page_size() const { return page_size_; }

  static void bind(nb::module_& module);

 private:
  static void bind_batches(nb::class_<Cache>& cls);
  static void bind_graphs(nb::class_<Cache>& cls);
  static void bind_sequences(nb::class_<Cache>& cls);
  static void bind_settings(nb::class_<Cache>& cls);
  static void bind_trees(nb::class_<Cache>& cls);
  static void bind_groups(nb::class_<Cache>& cls);
  static void bind_prefixes(nb::class_<Cache>& cls);
  static void bind_saves(nb::class_<Cache>& cls);
  static void bind_transfers(nb::class_<Cache>& cls);
  static void bind_events(nb::class_<Cache>& cls);
  static void bind_tensors(nb::class_<Cache>& cls);
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear_references(PyObject* self);
  static const PyType_Slot kSlots[];

  nb::object context_;
  DLDevice device_;
  std::shared_ptr<CacheHandle> handle_;
  int64_t page_size_ = 0;
  std::vector<int32_t> v_head_dims_;
  std::vector<DLDataType> dtypes_;
};

// The batch of forward and can_fit. Borrows nothing from Python; not movable.
struct Batch {
  Batch(const char* function, nb::handle sequences, nb::handle lengths, nb::handle layers, nb::handle parents,
        nb::handle spans, nb::handle encoder_group, nb::handle graph);
  Batch(const Batch&) = delete;

  Integers ids;
  std::vector<int32_t> lengths;
  std::vector<int32_t> parents;  // [tokens], or empty
  std::vector<int32_t> spans;    // [tokens], or empty
  kvc_batch batch;

 private:
  void read_layers(const char* function, nb::handle layers);
  void read_parents(const char* function, nb::handle rows);
  void read_spans(const char* function, nb::handle ids);
  void read_row_parents(const char* function, size_t row, nb::handle row_parents);
};

}  // namespace kvcpy
