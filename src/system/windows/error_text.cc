#include "system/error_text.h"

#include <cstring>

namespace kvc {

std::string error_text(int code) { return std::strerror(code); }  // the C library has a buffer for each thread

}  // namespace kvc
