// The calls of kvcache.Cache for some kinds of groups: checkpoints of recurrent states, lengths of encoder sequences.
#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

void checkpoint(const Cache& self, nb::handle sequences) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  if (ids.size() == 0) return;
  call_quick([&](kvc_error* error) { return kvc_seq_checkpoint(handle->cache, ids.size(), ids.sequences(), error); });
}

nb::object encoder_lengths(const Cache& self, nb::handle sequences, int64_t group) {
  auto handle = self.open();
  const Integers ids = integers_from_python(sequences);
  std::vector<int64_t> lengths(ids.values.size());
  if (lengths.empty()) return nb::list();
  call_quick([&](kvc_error* error) {
    return kvc_seq_encoder_lengths(handle->cache, saturate(group), ids.size(), ids.sequences(), lengths.data(), error);
  });
  return integers_to_python(lengths, ids.is_scalar);
}

}  // namespace

void Cache::bind_groups(nb::class_<Cache>& cls) {
  cls.def("checkpoint", &checkpoint, nb::arg("sequences"),
          R"(Keeps the recurrent states that sequences (an id, or several) have now: fork and truncate work there later.

No copy is made. Of more than max_checkpoints the oldest is dropped; children inherit those up to their position.

Raises: Unsupported (no Recurrent group), StaleId, Duplicate, Busy, Uncommitted; nothing was kept then.)")
      .def("encoder_lengths", &encoder_lengths, nb::arg("sequences"), nb::arg("group"),
           R"(Lengths of the encoder sequences in a Cross group: a list for several ids, an integer for one.

Raises: StaleId, OutOfRange, InvalidArgument (another kind of group).)");
}

}  // namespace kvcpy
