// The calls of kvcache.Cache for sequences. Ids are plain integers. A call with a list of ids returns a list, and a
// call with one id returns one value.
#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

nb::object add(const Cache& self, nb::handle n) {
  auto handle = self.open();
  const int64_t count = n.is_none() ? 1 : integer_from_python(n);
  if (count == 0) return nb::list();
  // The library refuses a count above 2^20 for every cache, so no memory for such a count is allocated.
  std::vector<int64_t> ids(static_cast<size_t>(count > 0 && count <= (1 << 20) ? count : 1));
  call_quick([&](kvc_error* error) {
    return kvc_seq_add(handle->cache, count, reinterpret_cast<kvc_seq*>(ids.data()), error);
  });
  return integers_to_python(ids, n.is_none());
}

void remove(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  if (ids.size() == 0) return;
  call_quick([&](kvc_error* error) { return kvc_seq_remove(handle->cache, ids.size(), ids.sequences(), error); });
}

nb::object fork(const Cache& self, nb::handle parents, nb::handle positions, nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  const Integers ids = integers_from_python(parents);
  Integers at;
  if (!positions.is_none()) {
    at = integers_from_python(positions);
    if (at.is_scalar) at.values.assign(ids.values.size(), at.values[0]);
    check_same_size("Cache.fork", ids, at, "positions");
  }
  std::vector<int64_t> children(ids.values.size());
  if (children.empty()) return nb::list();
  call_without_gil([&](kvc_error* error) {
    return kvc_seq_fork(handle->cache, ids.size(), ids.sequences(), positions.is_none() ? nullptr : at.values.data(),
                        reinterpret_cast<kvc_seq*>(children.data()), work.stream(), error);
  });
  return integers_to_python(children, ids.is_scalar);
}

void truncate(const Cache& self, nb::handle sequences, nb::handle lengths) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  const Integers to = integers_from_python(lengths);
  check_same_size("Cache.truncate", ids, to, "lengths");
  if (ids.size() == 0) return;
  call_quick([&](kvc_error* error) {
    return kvc_seq_truncate(handle->cache, ids.size(), ids.sequences(), to.values.data(), error);
  });
}

nb::object lengths(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int64_t> result(ids.values.size());
  if (result.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_lengths(handle->cache, ids.size(), ids.sequences(), result.data(), error);
  });
  return integers_to_python(result, ids.is_scalar);
}

nb::object max_append(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int64_t> result(ids.values.size());
  if (result.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_max_append(handle->cache, ids.size(), ids.sequences(), result.data(), error);
  });
  return integers_to_python(result, ids.is_scalar);
}

nb::object exclusive_pages(const Cache& self, nb::handle sequences, int64_t group) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int64_t> result(ids.values.size());
  if (result.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_exclusive_pages(handle->cache, saturate(group), ids.size(), ids.sequences(), result.data(), error);
  });
  return integers_to_python(result, ids.is_scalar);
}

nb::object pages(const Cache& self, nb::handle sequence, int64_t group) {
  auto handle = self.open();
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("Cache.pages: one sequence id is needed");
  std::vector<int32_t> entries;
  int64_t count = 0;
  for (;;) {  // the first call gets the count; another thread may make the sequence longer between two calls
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_pages(handle->cache, id.sequences()[0], saturate(group), entries.data(),
                                            static_cast<int64_t>(entries.size()), &count, &error);
    if (status != KVC_ERROR_BUFFER_TOO_SMALL) check(status, error);
    if (status == KVC_OK && count <= static_cast<int64_t>(entries.size())) break;
    entries.resize(static_cast<size_t>(count));
  }
  return int32_array(entries.data(), count);
}

nb::object nearest_position(const Cache& self, nb::handle sequence, int64_t position) {
  auto handle = self.open();
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("Cache.nearest_position: one sequence id is needed");
  int64_t before = 0, after = 0;
  call_quick([&](kvc_error* error) {
    return kvc_seq_nearest_position(handle->cache, id.sequences()[0], position, &before, &after, error);
  });
  return nb::make_tuple(before, after < 0 ? nb::object(nb::none()) : nb::object(nb::int_(after)));
}

}  // namespace

void Cache::bind_sequences(nb::class_<Cache>& cls) {
  cls.def("add", &add, nb::arg("n") = nb::none(), R"(Adds empty sequences; takes no page.

Args:
    n: None for one, else how many.

Returns:
    The id, or a list of n ids. Ids are opaque positive integers.

Raises: TooManySequences, InvalidArgument.)")
      .def("remove", &remove, nb::arg("sequences"), R"(Removes sequences and frees the pages that no other one shares.

Args:
    sequences: an id, or several (distinct, any order). One in an open forward goes when that closes.

Raises: StaleId, Duplicate with .index; nothing was removed then.)")
      .def("fork", &fork, nb::arg("parents"), nb::arg("positions") = nb::none(), nb::kw_only(),
           nb::arg("stream") = nb::none(),
           R"(New sequences that share a prefix with their parents, page by page; only a partial last page is copied.

Args:
    parents: an id, or several; one parent may occur often.
    positions: tokens that each child keeps. None: all of its parent's; an integer: the same for all; else one for each
        parent. -1 = the parent's length, 0 = empty.
    stream: of the copies, as forward().

Returns:
    The child's id for one id, else a list of ids.

Raises: OutOfPages, TooManySequences, StaleId, Busy, Uncommitted, OutOfRange, Evicted (see nearest_position); nothing
changed then.)")
      .def("truncate", &truncate, nb::arg("sequences"), nb::arg("lengths"),
           R"(Drops the tokens from the new lengths on, across shared pages too, and uncommitted nodes. Needs no page.

Args:
    sequences: an id, or several (distinct).
    lengths: the new length in tokens, or one for each, 0 to the sequence's length.

Raises: StaleId, Busy, Duplicate, OutOfRange, Evicted; nothing was truncated then.)")
      .def(
          "lengths", &lengths, nb::arg("sequences"),
          "Lengths in tokens, without open forwards and uncommitted nodes: a list for several ids, an integer for one.")
      .def("length", &lengths, nb::arg("sequence"), "Length of one sequence in tokens, without those of open forwards.")
      .def(
          "max_append", &max_append, nb::arg("sequences"),
          R"(Tokens that each sequence, alone, could append in one forward now (0 if it is in an open forward); tree nodes,
if it has uncommitted ones.

A list for several ids, an integer for one. Raises StaleId.)")
      .def("exclusive_pages", &exclusive_pages, nb::arg("sequences"), nb::arg("group") = 0,
           R"(Pages of a group that the removal of each sequence, alone, would make available.

No other sequence, pin, save or load holds them. A page that the prefix index holds too counts, because it can be evicted
then. Short of pages, an engine compares sequences by this number to choose which one to remove.

A list for several ids, an integer for one. Raises StaleId, OutOfRange (group).)")
      .def("pages", &pages, nb::arg("sequence"), nb::arg("group") = 0,
           R"(Page ids of a sequence in one group, a new int32 numpy array.

Entry i holds positions [i * page_size, (i + 1) * page_size); -1 where the page left a window and was freed. Pages of an
open forward and of uncommitted nodes are not included. Raises StaleId, OutOfRange.)")
      .def("nearest_position", &nearest_position, nb::arg("sequence"), nb::arg("position"),
           R"(The positions nearest to `position` at which fork and truncate work in every group.

Returns:
    (before, after): the largest such position <= it, and the smallest >= it or None.

Raises: StaleId, OutOfRange.)");
  bind_settings(cls);
}

}  // namespace kvcpy
