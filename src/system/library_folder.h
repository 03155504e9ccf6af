// Finds the folder of this library's file. Plug-ins are loaded from this folder.
//
// Thread safety: any thread. Nothing is allocated or released.
#pragma once

namespace kvc {

// Returns an absolute path that ends with a separator, or nullptr if the path could not be found. The path is computed
// when the library is loaded, because the loader may have only a relative path. After the process changes its
// directory, a relative path would name another file.
const char* library_folder() noexcept;

}  // namespace kvc
