// The folder of this library's file, where plug-ins are searched.
//
// Thread safety: any thread. Nothing is allocated or released.
#pragma once

namespace kvc {

// Returns an absolute path that ends with '/', or nullptr if the path could not be found. It is found when the library
// is loaded: the loader may have a path relative to the directory of that moment. After the host changes its directory,
// that path would name another file.
const char* library_folder() noexcept;

}  // namespace kvc
