#include "system/error_text.h"

#include <cstring>

namespace kvc {

std::string error_text(int code) {
  char text[128];
  return strerror_r(code, text, sizeof text);  // GNU's strerror_r returns a text, which is not always in `text`
}

}  // namespace kvc
