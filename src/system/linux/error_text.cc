#include "system/error_text.h"

#include <cstring>

namespace kvc {

std::string error_text(int code) {
  char text[128];
  return strerror_r(code, text, sizeof text);  // GNU's returns the text. It does not always write it into `text`
}

}  // namespace kvc
