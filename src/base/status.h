// Status: the result of a core function that can fail. Only src/api translates it to kvc_error. A failure has a code,
// some numbers, and a message without the name of the public function. A success allocates nothing.
// Thread safety: as for std::unique_ptr. Building a failure never throws.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <memory>
#include <utility>

#include "kvcache.h"

namespace kvc {

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;

  // A failure with a printf-style message.
  [[gnu::format(printf, 2, 3)]] static Status error(kvc_status code, const char* format, ...) noexcept;
  // Converts the result of a backend call to a Status: success, or a failure with `status` and the values of `error`.
  static Status from(kvc_status status, const kvc_error& error) noexcept;

  bool ok() const noexcept { return code_ == KVC_OK; }
  kvc_status code() const noexcept { return code_; }
  const char* message() const noexcept;

  // Builder style: `return Status::error(...).at(row).missing(required, available).in_group(g);`
  Status&& at(int64_t index) && noexcept;
  Status&& missing(int64_t required, int64_t available) && noexcept;
  Status&& in_group(int64_t group) && noexcept;
  // Puts "layer N: " before a message that does not name the layer. If at() was not called, N also becomes the index.
  Status&& in_layer(int64_t layer) && noexcept;

  // Fills all fields except struct_size. The message begins with "function: ".
  void write_to(const char* function, kvc_error* error) const noexcept;

 private:
  struct Detail {
    int64_t index = -1, required = 0, available = 0, group = -1;
    char message[400] = {};
  };
  kvc_status code_ = KVC_OK;
  std::unique_ptr<Detail> detail_;  // null on success, or if there was no memory for it
};

// Returns from the enclosing function when `expression` is a failure.
#define KVC_TRY(expression)                                                  \
  do {                                                                       \
    if (::kvc::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)

}  // namespace kvc
