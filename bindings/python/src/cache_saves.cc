// The calls of kvcache.Cache that save sequences to files and file objects, and load them.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "cache.h"
#include "error.h"

namespace kvcpy {

namespace {

// A path, or an object with the method `write` or `read`. The library calls `write` and `read` of this class without
// the GIL, so they lock it. They keep an exception, and raise_kept raises it later.
class Place {
 public:
  Place(nb::handle given, const char* method) {
    if (PyObject_HasAttrString(given.ptr(), method) != 0) {
      file_ = nb::borrow(given);
      return;
    }
    PyObject* bytes = nullptr;
    if (PyUnicode_FSConverter(given.ptr(), &bytes) == 0) throw nb::python_error();
    path_ = nb::steal(bytes);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const char* path() const { return file_.is_valid() ? nullptr : PyBytes_AsString(path_.ptr()); }
  bool is_file() const { return file_.is_valid(); }
  // Raises the exception that `write` or `read` kept. It is raised in place of the status that it has caused.
  void raise_kept() {
    if (kept_) std::rethrow_exception(std::exchange(kept_, nullptr));
  }
  // Call it before a second load. Its first reads then return the remembered bytes once more.
  void rewind() { at_ = 0; }

  static int32_t write(void* user, const void* data, int64_t bytes) noexcept {
    auto& self = *static_cast<Place*>(user);
    nb::gil_scoped_acquire gil;
    try {
      const nb::bytes all(data, static_cast<size_t>(bytes));
      const char* next = all.c_str();
      for (int64_t left = bytes; left > 0;) {  // a raw file may write only a part
        const nb::object written = self.file_.attr("write")(nb::bytes(next, static_cast<size_t>(left)));
        if (written.is_none()) break;
        const int64_t count = nb::cast<int64_t>(written);
        if (count <= 0 || count > left) return 1;
        next += count;
        left -= count;
      }
      return 0;
    } catch (...) {
      self.kept_ = std::current_exception();
      return -1;
    }
  }

  static int64_t read(void* user, void* data, int64_t bytes) noexcept {
    auto& self = *static_cast<Place*>(user);
    nb::gil_scoped_acquire gil;
    try {
      if (self.at_ < self.seen_.size()) {
        const auto count = std::min(static_cast<size_t>(bytes), self.seen_.size() - self.at_);
        std::memcpy(data, self.seen_.data() + self.at_, count);
        self.at_ += count;
        return static_cast<int64_t>(count);
      }
      const nb::object given = self.file_.attr("read")(bytes);
      const nb::object got = nb::steal(PyBytes_FromObject(given.ptr()));
      if (!got.is_valid()) throw nb::python_error();
      const int64_t count = PyBytes_Size(got.ptr());
      const auto* begin = reinterpret_cast<const uint8_t*>(PyBytes_AsString(got.ptr()));
      if (count <= bytes) std::memcpy(data, begin, static_cast<size_t>(count));
      if (count <= bytes && self.remembers) {
        self.seen_.insert(self.seen_.end(), begin, begin + count);
        self.at_ = self.seen_.size();
      }
      return count <= bytes ? count : -1;
    } catch (...) {
      self.kept_ = std::current_exception();
      return -1;
    }
  }

  bool remembers = false;  // whether `read` keeps the bytes, for rewind

 private:
  nb::object file_, path_;
  std::exception_ptr kept_;
  std::vector<uint8_t> seen_;
  size_t at_ = 0;
};

// Runs call(&error) without the GIL. Then raises the exception that a callback kept, if there is one.
template <typename Call>
kvc_status run(Place* place, kvc_error* error, Call&& call) {
  kvc_status status;
  {
    nb::gil_scoped_release nogil;
    status = call(error);
  }
  place->raise_kept();
  return status;
}

void save(const Cache& self, nb::handle sequence, nb::handle file, nb::handle tokens, int64_t section_bytes,
          nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  const Integers id = integers_from_python(sequence);
  if (!id.is_scalar) throw nb::type_error("save: one sequence id is needed");
  std::vector<int32_t> ids;
  if (!tokens.is_none()) {
    for (const int64_t token : integers_from_python(tokens).values) {
      if (token < INT32_MIN || token > INT32_MAX) {
        raise(KVC_ERROR_OUT_OF_RANGE, static_cast<int64_t>(ids.size()), "save: token %" PRId64 " has more than 32 bits",
              token);
      }
      ids.push_back(static_cast<int32_t>(token));
    }
  }
  Place place(file, "write");
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.path = place.path();
  if (place.is_file()) args.write = &Place::write;
  args.write_user = &place;
  args.tokens = ids.data();
  args.num_tokens = static_cast<int64_t>(ids.size());
  args.section_bytes = section_bytes;
  kvc_error error = KVC_ERROR_INIT;
  check(run(&place, &error,
            [&](kvc_error* e) { return kvc_seq_save(handle->cache, id.sequences()[0], &args, work.stream(), e); }),
        error);
}

// The number of token ids in a file is known only after its header was read. So the first call has room for one id. If
// the file has more, a second call has room for all.
nb::tuple load(const Cache& self, nb::handle file, nb::handle stream) {
  auto handle = self.open();
  const Work work = self.work(stream);
  Place place(file, "read");
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.path = place.path();
  if (place.is_file()) args.read = &Place::read;
  args.read_user = &place;
  std::vector<int32_t> ids(1);
  kvc_seq sequence = 0;
  int64_t count = 0;
  for (place.remembers = true;; place.remembers = false) {
    args.tokens = ids.data();
    args.capacity = static_cast<int64_t>(ids.size());
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = run(&place, &error, [&](kvc_error* e) {
      return kvc_seq_load(handle->cache, &args, work.stream(), &sequence, &count, e);
    });
    if (status != KVC_ERROR_BUFFER_TOO_SMALL || count <= static_cast<int64_t>(ids.size())) {
      check(status, error);
      break;
    }
    ids.resize(static_cast<size_t>(count));
    place.rewind();
  }
  const nb::object tokens = count == 0 ? nb::object(nb::none()) : int32_array(ids.data(), count);
  return nb::make_tuple(sequence, tokens);
}

}  // namespace

void Cache::bind_saves(nb::class_<Cache>& cls) {
  cls.def("save", &save, nb::arg("sequence"), nb::arg("file"), nb::arg("tokens") = nb::none(),
          nb::arg("section_bytes") = 0, nb::kw_only(), nb::arg("stream") = nb::none(),
          R"(Saves a sequence: K and V of every group, states with their checkpoints, its settings and its token ids.

Args:
    sequence: its id. Other calls see it as busy meanwhile; to go on with it at once, save a fork.
    file: a path, or an object with write(bytes). A file appears whole or not at all.
    tokens: the ids of its tokens, which load() then returns; None = they are not saved.
    section_bytes: bytes that one checksum covers, and that a load holds at once: a power of two; 0 = 1 MiB.
    stream: as forward(). The call waits for what the device has to do before.

Raises: StaleId, Busy, Uncommitted, InvalidArgument (not as many tokens as the sequence has), Order (a step did not cover
a layer), FileError, Unsupported (storage=None). An exception of file.write comes out as it is.)")
      .def("load", &load, nb::arg("file"), nb::kw_only(), nb::arg("stream") = nb::none(),
           R"(Adds a sequence with the contents of a saved one. It continues with the same bits.

Args:
    file: a path, or an object with read(size) that returns bytes.
    stream: as forward().

Returns:
    (sequence, tokens): its id, and an int32 numpy array of its token ids, or None if they were not saved.

Raises: FileError, Corrupt (damaged bytes), Layout (of another model, dtype or layout), OutOfPages, TooManySequences,
Unsupported. No sequence is added then. An exception of file.read comes out as it is.)");
}

}  // namespace kvcpy
