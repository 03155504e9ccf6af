// The folder of the file that this library was loaded from. Plug-ins are looked for there.
//
// Thread safety: any thread. Nothing is allocated or released.
#pragma once

namespace kvc {

// An absolute path that ends with '/', or nullptr if it could not be found when the library was loaded. It is
// found while the library is loaded: the loader may know the file by a path relative to the directory that is current
// then, which means another file after the host has changed its directory.
const char* library_folder() noexcept;

}  // namespace kvc
