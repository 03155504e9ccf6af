// The text of an errno. Thread safety: any thread.
#pragma once

#include <string>

namespace kvc {

std::string error_text(int code);

}  // namespace kvc
