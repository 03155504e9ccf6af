// Fills an error and returns its status. The functions of a backend report failures in this way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "kvcache_backend.h"

namespace kvc::kernels {

[[maybe_unused]] __attribute__((format(printf, 3, 4))) static kvc_status fail(kvc_error* error, kvc_status code,
                                                                              const char* format, ...) {
  error->code = code;
  error->index = -1;
  error->required = 0;
  error->available = 0;
  error->group = -1;
  va_list values;
  va_start(values, format);
  vsnprintf(error->message, sizeof error->message, format, values);
  va_end(values);
  return code;
}

}  // namespace kvc::kernels
