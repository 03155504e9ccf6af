#include "nixl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "base/mutex.h"

namespace kvc {
namespace {

constexpr char kVariable[] = "KVCACHE_NIXL_CAPI";
constexpr char kDefaultFile[] = "libnixl_capi.so";

Mutex load_mutex;
const char* loaded_file KVC_GUARDED_BY(load_mutex) = nullptr;
NixlLibrary loaded;  // does not change after loaded_file was set

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Finds all functions. Returns the name of a function that the library lacks, or null.
const char* find_all(void* library, NixlLibrary* out) {
#define KVC_FIND(member, name) \
  if (!find(library, "nixl_capi_" name, &out->member)) return "nixl_capi_" name
  KVC_FIND(create_agent, "create_configured_agent");
  KVC_FIND(destroy_agent, "destroy_agent");
  KVC_FIND(create_params, "create_params");
  KVC_FIND(add_param, "params_add");
  KVC_FIND(destroy_params, "destroy_params");
  KVC_FIND(create_backend, "create_backend");
  KVC_FIND(destroy_backend, "destroy_backend");
  KVC_FIND(get_metadata, "get_local_md");
  KVC_FIND(load_metadata, "load_remote_md");
  KVC_FIND(forget_metadata, "invalidate_remote_md");
  KVC_FIND(notify, "gen_notif");
  KVC_FIND(create_notes, "create_notif_map");
  KVC_FIND(destroy_notes, "destroy_notif_map");
  KVC_FIND(take_notes, "get_notifs");
  KVC_FIND(count_agents, "notif_map_size");
  KVC_FIND(agent_at, "notif_map_get_agent_at");
  KVC_FIND(count_notes, "notif_map_get_notifs_size");
  KVC_FIND(note_at, "notif_map_get_notif");
#undef KVC_FIND
  return nullptr;
}

}  // namespace

Status NixlLibrary::load(const char* file, const NixlLibrary** out) {
  const bool given = file != nullptr && *file != '\0';
  if (!given) file = secure_getenv(kVariable);
  if (file == nullptr || *file == '\0') file = kDefaultFile;
  MutexLock lock(load_mutex);
  *out = &loaded;
  if (loaded_file != nullptr) {
    if (!given || std::strcmp(loaded_file, file) == 0) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "library \"%.200s\": this process has loaded \"%.200s\"", file,
                         loaded_file);
  }
  // NIXL's wheels contain a copy of libnl. Their UCX also loads the libnl of the system, if it finds libefa. The second
  // library would use symbols of the first one, and would crash at exit. So the library of the system is loaded first,
  // and uses its own symbols.
  (void)dlopen("libnl-route-3.so.200", RTLD_NOW | RTLD_LOCAL);
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    return Status::error(KVC_ERROR_IO,
                         "the C API of NIXL cannot be loaded: %.250s. It is in the wheel nixl-cu12; give its file as "
                         "`library`, or in the variable %s",
                         why != nullptr ? why : file, kVariable);
  }
  if (const char* const missing = find_all(library, &loaded); missing != nullptr) {
    return Status::error(KVC_ERROR_IO, "\"%.200s\" has no function %s: NIXL 1.5 or newer is needed", file, missing);
  }
  loaded_file = strdup(file);
  return loaded_file != nullptr ? Status() : Status::error(KVC_ERROR_OUT_OF_MEMORY, "the host is out of memory");
}

const char* nixl_result_name(int result) {
  switch (result) {
    case 0:
      return "success";
    case -1:
      return "invalid parameter";
    case -2:
      return "error of the backend";
    case -3:
      return "invalid state";
    case -4:
      return "exception";
    case -6:
      return "not found";
    default:
      return "unknown error";
  }
}

}  // namespace kvc
