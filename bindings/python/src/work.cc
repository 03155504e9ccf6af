#include "work.h"

#include <algorithm>

#include "array.h"
#include "integers.h"

namespace kvcpy {

namespace {

// Returns a function of kvcache/_streams.py. Looks it up at each use, because a call that uses only one stream needs no
// such function.
nb::object streams(const char* function) { return nb::module_::import_("kvcache._streams").attr(function); }

uintptr_t number_of(void* stream) { return reinterpret_cast<uintptr_t>(stream); }

}  // namespace

Work Work::on(DLDevice device, nb::handle stream, nb::handle array) {
  Work work;
  work.device_ = device;
  if (!stream.is_none()) {
    const nb::object number = PyLong_Check(stream.ptr()) ? nb::borrow(stream) : streams("address")(stream);
    const int64_t value = integer_from_python(number);
    work.stream_ = work.on_host() ? reinterpret_cast<void*>(value) : stream_of(static_cast<uintptr_t>(value));
  } else if (!work.on_host()) {
    work.stream_ = array.is_valid()
                       ? current_stream(array, device)
                       : stream_of(static_cast<uintptr_t>(integer_from_python(streams("current")(device.device_id))));
  }
  return work;
}

nb::object Work::dlpack_stream() const { return nb::int_(stream_ == nullptr ? 1 : number_of(stream_)); }

void Work::make_wait(nb::handle stream) const {
  if (on_host()) return;
  const int64_t number = stream.is_none() ? 1 : integer_from_python(stream);
  if (number == -1) return;  // the consumer takes care of the order itself
  if (number <= 0) throw nb::value_error("__dlpack__: stream must be None, -1, 1, 2 or a CUDA stream's address");
  void* const theirs = stream_of(static_cast<uintptr_t>(number));
  if (theirs != stream_) streams("order")(device_.device_id, number_of(stream_), number_of(theirs));
}

void Work::took_from(void* theirs) {
  if (theirs != stream_ && std::find(behind_.begin(), behind_.end(), theirs) == behind_.end()) {
    behind_.push_back(theirs);
  }
}

void Work::hand_back() {
  for (void* theirs : behind_) streams("order")(device_.device_id, number_of(stream_), number_of(theirs));
  if (finish_) streams("wait")(device_.device_id, number_of(stream_));
  behind_.clear();
  finish_ = false;
}

}  // namespace kvcpy
