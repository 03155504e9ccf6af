#include "cache.h"

#include <cinttypes>

#include "error.h"
#include "step.h"

namespace kvcpy {

Cache::Cache(nb::handle_t<Context> context, nb::list layers, nb::list groups, nb::tuple sizes)
    : context_(nb::borrow(context)), device_(nb::inst_ptr<Context>(context)->handle()->device) {
  CacheConfig config(layers, groups, sizes, device_);
  auto handle = std::make_shared<CacheHandle>();
  handle->context = nb::inst_ptr<Context>(context)->handle();
  call_without_gil([&](kvc_error* error) {
    return kvc_cache_create(handle->context->context, &config.get(), &handle->cache, error);
  });
  config.release_storages();
  page_size_ = config.get().page_size != 0 ? config.get().page_size : 16;
  v_head_dims_ = config.v_head_dims();
  dtypes_ = config.dtypes();
  handle_ = std::move(handle);
}

std::shared_ptr<CacheHandle> Cache::open() const {
  if (!handle_) raise_closed("the cache is closed");
  return handle_;
}

void Cache::close() {
  std::shared_ptr<CacheHandle> last = std::move(handle_);
  nb::gil_scoped_release
      nogil;  // destroying the cache frees memory; deleters of adopted storages lock the GIL themselves
  last.reset();
}

int64_t Cache::v_head_dim(int64_t layer) const {
  return layer >= 0 && layer < static_cast<int64_t>(v_head_dims_.size()) ? v_head_dims_[static_cast<size_t>(layer)]
                                                                         : -1;
}

int Cache::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Cache>(self)->context_.ptr());
  return 0;
}

int Cache::clear_references(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Cache>(self)->context_.reset();
  return 0;
}

const PyType_Slot Cache::kSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&Cache::traverse)},
                                     {Py_tp_clear, reinterpret_cast<void*>(&Cache::clear_references)},
                                     {0, nullptr}};

Batch::Batch(const char* function, nb::handle sequences, nb::handle append_lengths, nb::handle layers,
             nb::handle row_parents, nb::handle span_ids, nb::handle encoder_group, nb::handle graph)
    : ids(integers_from_python(sequences)) {
  const Integers given = integers_from_python(append_lengths);
  check_same_size(function, ids, given, "lengths");
  lengths.reserve(given.values.size());
  for (int64_t length : given.values) lengths.push_back(saturate(length));
  kvc_batch_init(&batch);
  batch.num_sequences = saturate(ids.size());
  batch.sequences = ids.sequences();
  batch.append_lengths = lengths.data();
  if (!layers.is_none()) read_layers(function, layers);
  if (!row_parents.is_none()) read_parents(function, row_parents);
  if (!span_ids.is_none()) read_spans(function, span_ids);
  if (!graph.is_none()) batch.graph = static_cast<kvc_forward>(integer_from_python(graph));
  if (encoder_group.is_none()) return;
  const int64_t group = integer_from_python(encoder_group);
  if (group < 0) raise(KVC_ERROR_OUT_OF_RANGE, -1, "%s: encoder_group %" PRId64 " is negative", function, group);
  batch.encoder_group = saturate(group < INT32_MAX ? group + 1 : group);
}

// Reads one span id for each token of the whole batch.
void Batch::read_spans(const char* function, nb::handle ids_of_tokens) {
  const Integers given = integers_from_python(ids_of_tokens);
  int64_t tokens = 0;
  for (const int32_t length : lengths) tokens += length > 0 ? length : 0;
  if (given.is_scalar || given.size() != tokens)
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: %" PRId64 " tokens and %" PRId64 " span ids", function, tokens,
          given.size());
  for (const int64_t id : given.values) {
    if (id > INT32_MAX)  // after saturation, two such ids would be equal
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: span id %" PRId64 " is above %d", function, id, INT32_MAX);
    spans.push_back(saturate(id));
  }
  batch.span_ids = spans.data();
}

void Batch::read_layers(const char* function, nb::handle layers) {
  nb::object begin, end;
  if (PyRange_Check(layers.ptr())) {
    if (integer_from_python(layers.attr("step")) != 1)
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: a range of layers has step 1", function);
    begin = layers.attr("start"), end = layers.attr("stop");
  } else {
    begin = layers[0], end = layers[1];
  }
  batch.layer_begin = saturate(integer_from_python(begin));
  batch.layer_end = saturate(integer_from_python(end));
  if (batch.layer_begin == 0 && batch.layer_end == 0)  // to the library, [0, 0) means all layers
    raise(KVC_ERROR_OUT_OF_RANGE, -1, "%s: layers [0, 0) is an empty range", function);
}

// Reads for each row the parents of its tree, or None. For a single sequence, `rows` has the parents of its tree.
void Batch::read_parents(const char* function, nb::handle rows) {
  if (ids.is_scalar) {
    read_row_parents(function, 0, rows);
  } else {
    nb::object list = nb::steal(PySequence_Tuple(rows.ptr()));
    if (!list.is_valid()) throw nb::python_error();
    const size_t count = nb::len(list);
    if (count != lengths.size())
      raise(KVC_ERROR_INVALID_ARGUMENT, -1, "%s: %zu sequences but parents of %zu rows", function, lengths.size(),
            count);
    for (size_t row = 0; row < count; ++row) read_row_parents(function, row, list[row]);
  }
  batch.tree_parents = parents.empty() ? nullptr : parents.data();
}

void Batch::read_row_parents(const char* function, size_t row, nb::handle row_parents) {
  const int32_t length = lengths[row];
  if (row_parents.is_none()) {  // the library refuses a length above 2^20 before it reads parents
    if (length > 0 && length <= (1 << 20)) parents.insert(parents.end(), static_cast<size_t>(length), KVC_TREE_NONE);
    return;
  }
  const Integers given = integers_from_python(row_parents);
  if (given.is_scalar || given.size() != length)
    raise(KVC_ERROR_INVALID_ARGUMENT, static_cast<int64_t>(row), "%s: row %zu has length %d and %" PRId64 " parents",
          function, row, length, given.size());
  for (const int64_t parent : given.values) parents.push_back(saturate(parent));
}

namespace {

nb::tuple stats_tuple(const Cache& self, int64_t group) {
  auto handle = self.open();
  kvc_stats s;
  kvc_stats_init(&s);
  call_quick([&](kvc_error* error) { return kvc_cache_stats(handle->cache, saturate(group), &s, error); });
  return nb::make_tuple(s.num_sequences, s.pages_total, s.pages_used, s.pages_free, s.pages_shared, s.pages_peak,
                        s.tokens_held, s.tokens_shared, s.tokens_logical, s.fragmentation_bytes, s.storage_bytes,
                        s.pages_published, s.pages_idle, s.pages_evicted, s.prefix_attaches, s.prefix_tokens);
}

nb::tuple estimate_tuple(nb::handle_t<Context> context, nb::list layers, nb::list groups, nb::tuple sizes,
                         int64_t group) {
  CacheConfig config(layers, groups, sizes, nb::inst_ptr<Context>(context)->handle()->device);
  kvc_estimate e;
  kvc_estimate_init(&e);
  kvc_context* c = nb::inst_ptr<Context>(context)->handle()->context;
  call_quick([&](kvc_error* error) { return kvc_cache_estimate(c, &config.get(), saturate(group), &e, error); });
  return nb::make_tuple(e.num_pages, e.page_bytes, e.token_bytes, e.storage_bytes, e.bookkeeping_bytes,
                        e.scratch_bytes);
}

// Returns whether the batch fits. A status of 100..299 (about a capacity or a state) gives false. Other errors raise.
bool can_fit(const Cache& self, nb::handle sequences, nb::handle lengths, nb::handle layers, nb::handle parents,
             nb::handle spans, nb::handle encoder_group, nb::handle graph) {
  auto handle = self.open();
  const Batch batch("can_fit", sequences, lengths, layers, parents, spans, encoder_group, graph);
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_cache_can_fit(handle->cache, &batch.batch, &error);
  if (status >= 100 && status < 300) return false;
  check(status, error);
  return true;
}

void check_fit(const Cache& self, nb::handle sequences, nb::handle lengths, nb::handle layers, nb::handle parents,
               nb::handle spans, nb::handle encoder_group, nb::handle graph) {
  auto handle = self.open();
  const Batch batch("Cache.check_fit", sequences, lengths, layers, parents, spans, encoder_group, graph);
  call_quick([&](kvc_error* error) { return kvc_cache_can_fit(handle->cache, &batch.batch, error); });
}

}  // namespace

void Cache::bind_batches(nb::class_<Cache>& cls) {
  cls.def(
         "forward",
         [](nb::handle_t<Cache> self, nb::handle sequences, nb::handle lengths, nb::handle layers, nb::handle parents,
            nb::handle spans, nb::handle encoder_group, nb::handle graph, nb::handle stream) {
           return Step::begin(self, sequences, lengths, layers, parents, spans, encoder_group, graph, stream);
         },
         nb::arg("sequences"), nb::arg("lengths"), nb::arg("layers") = nb::none(), nb::arg("parents") = nb::none(),
         nb::kw_only(), nb::arg("spans") = nb::none(), nb::arg("encoder_group") = nb::none(),
         nb::arg("graph") = nb::none(), nb::arg("stream") = nb::none(),
         R"(Begins a step of the model over a batch: reserves every page for its new tokens, or changes nothing.

Args:
    sequences: ids, one a row of the batch, distinct; 0 marks an inert row (padding).
    lengths: new tokens of each row, >= 1 (an inert row may have 0). Their sum is T.
    layers: None for all, or (begin, end) or range(begin, end): the step covers only those layers.
    parents: None, or for each row None (plain tokens) or the parents of its nodes: its tokens are then a token tree,
        kept uncommitted until commit(). -1 = a root (several are allowed), else an earlier node of the sequence, counted
        from 0 through all steps since its last commit. For a single sequence the parents alone.
    spans: None, or T integers below 2**31: neighbours of one row with the same id > 0 see each other, later ones too
        (an image within a text).
    encoder_group: None, or the index of a Cross group: the tokens are of the encoder sequences there, and only its
        layers are appended.
    graph: None, or what create_graph returned: the step is open in that graph.
    stream: on a GPU what the whole step runs on: a stream of PyTorch or CuPy, or its address. None: the current stream of
        PyTorch where it computes on CUDA, else CuPy's, else the default stream.

Returns:
    A Step, open already. `with` ends it, or aborts it if an exception leaves the block.

Raises:
    OutOfPages (with .row, .missing and .group), BatchTooLarge, TreeTooLarge, TooManyForwards, Busy, Uncommitted (a plain
    row of a sequence with a tree), StaleId, Duplicate, InvalidArgument, OutOfRange. Nothing has changed then.)")
      .def("can_fit", &can_fit, nb::arg("sequences"), nb::arg("lengths"), nb::arg("layers") = nb::none(),
           nb::arg("parents") = nb::none(), nb::kw_only(), nb::arg("spans") = nb::none(),
           nb::arg("encoder_group") = nb::none(), nb::arg("graph") = nb::none(),
           R"(True if forward() with the same arguments would succeed now; no effect.

False for want of room (pages, batch size, open forwards) and for a busy or uncommitted sequence; misuse raises as forward() does.)")
      .def("check_fit", &check_fit, nb::arg("sequences"), nb::arg("lengths"), nb::arg("layers") = nb::none(),
           nb::arg("parents") = nb::none(), nb::kw_only(), nb::arg("spans") = nb::none(),
           nb::arg("encoder_group") = nb::none(), nb::arg("graph") = nb::none(),
           "As can_fit, but raises what forward() would raise (OutOfPages with .row, .missing, ...).");
}

void Cache::bind_graphs(nb::class_<Cache>& cls) {
  cls.def(
         "create_graph",
         [](const Cache& self, int64_t max_sequences, int64_t max_tokens, int64_t max_pages_per_row) {
           auto handle = self.open();
           kvc_graph_config config;
           kvc_graph_config_init(&config);
           config.max_sequences = saturate(max_sequences);
           config.max_tokens = saturate(max_tokens);
           config.max_pages_per_row = saturate(max_pages_per_row);
           kvc_forward graph = 0;
           call_without_gil([&](kvc_error* error) { return kvc_graph_create(handle->cache, &config, &graph, error); });
           return graph;
         },
         nb::kw_only(), nb::arg("max_sequences") = 0, nb::arg("max_tokens") = 0, nb::arg("max_pages_per_row") = 0,
         R"(Makes a graph, for programs that are recorded once and replayed: its steps share one id and their memory.

A call on any Step of a graph, of an earlier step too, is one of the step that is open in it now: so what was recorded with
a Step can be replayed in later steps. While none is open, such calls raise Stale and touch nothing.

Args:
    max_sequences, max_tokens: the largest step; 0 = what the cache allows.
    max_pages_per_row: columns of block tables in the library's memory; 0 = the pages of the group.

Returns:
    Its id, for forward(..., graph=id).

Raises: OutOfRange, OutOfMemory, TooManyForwards (64 graphs exist).)")
      .def(
          "destroy_graph",
          [](const Cache& self, nb::handle graph) {
            auto handle = self.open();
            const auto id = static_cast<kvc_forward>(integer_from_python(graph));
            call_without_gil([&](kvc_error* error) { return kvc_graph_destroy(handle->cache, id, error); });
          },
          nb::arg("graph"), "Frees a graph. Raises StaleId (no graph of this cache), Busy (a step is open in it).");
}

void Cache::bind(nb::module_& module) {
  nb::class_<Cache> cls(module, "Cache", nb::type_slots(kSlots), nb::is_weak_referenceable(), nb::dynamic_attr());
  cls.def(nb::init<nb::handle_t<Context>, nb::list, nb::list, nb::tuple>(), nb::arg("context"), nb::arg("layers"),
          nb::arg("groups"), nb::arg("sizes"))
      .def("close", &Cache::close, R"(Destroys the cache: open forwards are aborted, its memory is given back.

Every later call on it raises kvcache.Closed. Safe at any time: a call that runs in another thread finishes first, and
memory that a kvcache.Tensor or an array made from one still views lives on with it. Closing twice does nothing.)")
      .def_prop_ro("closed", &Cache::closed, "True after close().")
      .def_prop_ro("context", &Cache::context, "The kvcache.Context that the cache computes in.")
      .def("_stats", &stats_tuple, nb::arg("group"))
      .def(
          "_describe",
          [](const Cache& self) {
            auto handle = self.open();
            const std::string text = read_text([&](char* buffer, int64_t capacity, int64_t* length, kvc_error* error) {
              return kvc_cache_describe(handle->cache, buffer, capacity, length, error);
            });
            return nb::str(text.data(), text.size());
          },
          "The text of describe().")
      .def(
          "digest",
          [](const Cache& self) {
            auto handle = self.open();
            uint64_t digest = 0;
            call_without_gil([&](kvc_error* error) { return kvc_cache_digest(handle->cache, &digest, error); });
            return digest;
          },
          "A hash of all bookkeeping (ids, lengths, page tables, free lists): equal after equal calls on equal "
          "configs.")
      .def(
          "check_invariants",
          [](const Cache& self) {
            auto handle = self.open();
            call_without_gil([&](kvc_error* error) { return kvc_cache_check_invariants(handle->cache, error); });
          },
          "Checks the bookkeeping; raises kvcache.Internal with what does not hold.")
      .def(
          "clear",
          [](const Cache& self) {
            auto handle = self.open();
            call_without_gil([&](kvc_error* error) { return kvc_cache_clear(handle->cache, error); });
          },
          "Removes every sequence, and forgets every published prefix. Ids become stale. Raises Busy while a forward "
          "is open.");
  bind_batches(cls);
  bind_graphs(cls);
  bind_sequences(cls);
  bind_trees(cls);
  bind_groups(cls);
  bind_prefixes(cls);
  bind_saves(cls);
  bind_transfers(cls);
  bind_events(cls);
  bind_tensors(cls);
  module.def("estimate", &estimate_tuple, nb::arg("context"), nb::arg("layers"), nb::arg("groups"), nb::arg("sizes"),
             nb::arg("group"));
}

}  // namespace kvcpy
