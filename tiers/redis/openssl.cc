#include "openssl.h"

#include <dlfcn.h>

#include <cstdio>

namespace kvc::redis {
namespace {

constexpr const char* kLibrary = "libssl.so.3";

}  // namespace

OpenSsl::OpenSsl() noexcept {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    std::snprintf(problem, sizeof problem, "%s", why != nullptr ? why : kLibrary);
    return;
  }
  // dlsym also finds the functions of libcrypto, because libssl depends on it.
#define KVC_FIND(result, name, arguments)                                    \
  name = reinterpret_cast<result(*) arguments>(::dlsym(library, #name));     \
  if (name == nullptr) {                                                     \
    std::snprintf(problem, sizeof problem, "%s has no %s", kLibrary, #name); \
    return;                                                                  \
  }
  KVC_OPENSSL_FUNCTIONS(KVC_FIND)
#undef KVC_FIND
  // OpenSSL must not clean up when the process exits: threads of a tier that is still open may use it then.
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) {
    std::snprintf(problem, sizeof problem, "OPENSSL_init_ssl fails");
  }
}

const OpenSsl& openssl() noexcept {
  static const OpenSsl functions;
  return functions;
}

}  // namespace kvc::redis
