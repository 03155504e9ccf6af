// Calls of the library, and the expectations of the model. Internal to the harness.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "harness.h"

namespace kvt {

inline uint64_t hash(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The accepted failures, as text.
std::string text(const Faults &faults);

inline bool same(int64_t wanted, int64_t got) { return wanted == Fault::kAny || wanted == got; }

// Calls the library, and compares status, numbers and message with `faults` (none = success). A refused call must not
// change the digest.
template <class Call>
kvc_status Harness::call(const char *function, const Faults &faults, Call &&function_call) {
  last_call_ = function;
  calls_++;
  kvc_error error, untouched;
  std::memset(&untouched, 0x5A, sizeof(untouched));
  untouched.struct_size = sizeof(untouched);
  error = untouched;
  const bool with_error = !chance(0.05);
  const bool check_digest = options_.check_digest && !faults.empty();
  const uint64_t before = check_digest ? digest() : 0;
  const kvc_status status = function_call(with_error ? &error : nullptr);
  mix(static_cast<uint64_t>(status));
  drawn_[std::string(function) + " " + kvc_status_name(status)]++;
  if (status == KVC_OK) {
    if (std::memcmp(&error, &untouched, sizeof(error)) != 0) fail("wrote kvc_error on success");
    for (const Fault &f : faults) {
      if (f.status == KVC_OK) return status;
    }
    if (!faults.empty()) fail("succeeded, expected " + text(faults));
    return status;
  }
  bool accepted = false;
  for (const Fault &f : faults) {
    if (f.status != status) continue;
    if (!with_error || (same(f.index, error.index) && same(f.required, error.required) &&
                        same(f.available, error.available) && same(f.group, error.group))) {
      accepted = true;
    }
  }
  if (!accepted) {
    fail("got " + (with_error ? kvt::describe(error) : std::string(kvc_status_name(status))) + ", expected " +
         (faults.empty() ? "success" : text(faults)));
  }
  if (with_error) {
    if (error.code != status) fail("kvc_error.code is not the returned status");
    if (!std::memchr(error.message, 0, sizeof(error.message))) fail("message without NUL");
    if (std::strncmp(error.message, function, std::strlen(function)) != 0) {
      fail(std::string("message does not start with its function: ") + error.message);
    }
  }
  if (check_digest && digest() != before) fail("a refused call changed the digest: " + text(faults));
  return status;
}

}  // namespace kvt
