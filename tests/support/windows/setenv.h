// setenv of POSIX, which the C library of Windows lacks. A compile option includes this header in each file of the
// tests.
#pragma once

#include <stdlib.h>

inline int setenv(const char *name, const char *value, int overwrite) {
  return overwrite != 0 || getenv(name) == nullptr ? _putenv_s(name, value) : 0;
}
