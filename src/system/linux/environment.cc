#include "system/environment.h"

#include <stdlib.h>

namespace kvc {

std::string trusted_variable(const char* name) {
  const char* const value = secure_getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace kvc
