// The calls of kvcache.Cache for token trees: commit, and the number of nodes.
#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

void commit(const Cache& self, nb::handle sequences, nb::handle leaves, nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  const Integers ids = integers_from_python(sequences);
  const Integers given = integers_from_python(leaves);
  check_same_size("Cache.commit", ids, given, "leaves");
  if (ids.size() == 0) return;
  std::vector<int32_t> nodes;
  for (const int64_t leaf : given.values) nodes.push_back(saturate(leaf));
  call_without_gil([&](kvc_error* error) {
    return kvc_seq_commit(handle->cache, ids.size(), ids.sequences(), nodes.data(), work.stream(), error);
  });
}

nb::object tree_nodes(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int32_t> nodes(ids.values.size());
  if (nodes.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_tree_nodes(handle->cache, ids.size(), ids.sequences(), nodes.data(), error);
  });
  return integers_to_python({nodes.begin(), nodes.end()}, ids.is_scalar);
}

}  // namespace

void Cache::bind_trees(nb::class_<Cache>& cls) {
  cls.def(
         "commit", &commit, nb::arg("sequences"), nb::arg("leaves"), nb::kw_only(), nb::arg("stream") = nb::none(),
         R"(Keeps the path from a root to a node of each sequence's token tree as its tokens, and drops its other nodes.

Args:
    sequences: an id, or several of those with uncommitted nodes (distinct, any order).
    leaves: the last node to keep, or one for each; -1 keeps none. Nodes are counted from 0 through all steps since the
        last commit.
    stream: of the moves, as forward().

Raises: StaleId, Busy, Duplicate, Order (no uncommitted nodes), OutOfRange; nothing was committed then.)")
      .def("tree_nodes", &tree_nodes, nb::arg("sequences"),
           "Numbers of uncommitted tree nodes, without open forwards: a list for several ids, an integer for one.");
}

}  // namespace kvcpy
