// The calls of kvcache.Cache for settings of sequences: streaming windows, and the factors of longrope.
#include <nanobind/stl/string.h>

#include <string>

#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

// Returns one integer for each of `ids`. If `values` is one integer, it applies to all ids.
Integers for_each_of(const Integers& ids, nb::handle values, const char* function, const char* name) {
  Integers result = integers_from_python(values);
  if (result.is_scalar) result.values.assign(ids.values.size(), result.values[0]);
  check_same_size(function, ids, result, name);
  return result;
}

void set_streaming(const Cache& self, nb::handle sequences, nb::handle sinks, nb::handle window, bool prefix_is_sink) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  const Integers s = for_each_of(ids, sinks, "set_streaming", "sinks");
  const Integers w = for_each_of(ids, window, "set_streaming", "window");
  const uint32_t flags = prefix_is_sink ? KVC_STREAMING_PREFIX_IS_SINK : 0;
  call_quick([&](kvc_error* error) {
    return kvc_seq_set_streaming(handle->cache, ids.size(), ids.sequences(), s.values.data(), w.values.data(), flags,
                                 error);
  });
}

nb::object streaming(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int64_t> sinks(ids.values.size());
  std::vector<int64_t> windows(ids.values.size());
  if (sinks.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_get_streaming(handle->cache, ids.size(), ids.sequences(), sinks.data(), windows.data(), error);
  });
  if (ids.is_scalar) return nb::make_tuple(sinks[0], windows[0]);
  nb::list result;
  for (size_t i = 0; i < sinks.size(); ++i) result.append(nb::make_tuple(sinks[i], windows[i]));
  return result;
}

void set_rope(const Cache& self, nb::handle sequences, const std::string& factors) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  if (factors != "short" && factors != "long")
    raise(KVC_ERROR_INVALID_ARGUMENT, -1, "set_rope: factors must be \"short\" or \"long\", not \"%s\"",
          factors.c_str());
  const int32_t set = factors == "short" ? KVC_ROPE_SET_SHORT : KVC_ROPE_SET_LONG;
  call_quick(
      [&](kvc_error* error) { return kvc_seq_set_rope(handle->cache, ids.size(), ids.sequences(), set, error); });
}

}  // namespace

void Cache::bind_settings(nb::class_<Cache>& cls) {
  cls.def(
         "set_streaming", &set_streaming, nb::arg("sequences"), nb::kw_only(), nb::arg("sinks"), nb::arg("window"),
         nb::arg("prefix_is_sink") = false,
         R"(Gives sequences streaming windows, so that they go on for ever in bounded memory. Needs Cache(streaming=True).

In full groups a query then sees the first `sinks` tokens and the last ones, `window` in all, itself included, at
positions as if they were contiguous. Pages between the two are freed. Forks have their parent's window.

Args:
    sequences: an id, or several (distinct).
    sinks: first tokens that stay visible; one number for all, or one for each.
    window: more than the sinks; 0 (with sinks 0) = no streaming window any more.
    prefix_is_sink: what a sequence holds now are sinks too, unless its window is 0.

Raises: StaleId, Duplicate, Busy, Uncommitted, InvalidArgument (window <= sinks), Evicted (keys that it needs are
gone), Unsupported; nothing changed then.)")
      .def("streaming", &streaming, nb::arg("sequences"),
           "(sinks, window) of a sequence's streaming window, (0, 0) without: a list for several ids. Raises StaleId.")
      .def("set_rope", &set_rope, nb::arg("sequences"), nb::arg("factors"),
           R"(Chooses which of longrope's factors rotate the keys and queries of sequences that are still empty.

A new sequence has the short ones, a fork its parent's.

Args:
    sequences: an id, or several.
    factors: "short" or "long".

Raises: StaleId, Busy, Order (a sequence is not empty), InvalidArgument, Unsupported (no layer has longrope).)");
}

}  // namespace kvcpy
