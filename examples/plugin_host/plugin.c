#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>

int plugin_load(const char *path, struct plugin *plugin, char *why, size_t why_size) {
  const kvc_api *(*get_api)(uint32_t abi_version);
  plugin->api = NULL;
  plugin->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!plugin->library) {
    snprintf(why, why_size, "%s", dlerror());
    return -1;
  }
  *(void **)&get_api = dlsym(plugin->library, "kvc_get_api"); /* as POSIX has it */
  if (!get_api) {
    snprintf(why, why_size, "%s is no libkvcache: it has no kvc_get_api", path);
  } else if (!(plugin->api = get_api(KVC_ABI_VERSION))) {
    snprintf(why, why_size, "%s does not serve ABI %d.%d, which this program was built for", path, KVC_VERSION_MAJOR,
             KVC_VERSION_MINOR);
  } else if (!PLUGIN_HAS(plugin, forward_abort)) { /* the last one that this host cannot do without */
    snprintf(why, why_size, "%s is too old: its table ends after %u bytes, before kvc_forward_abort", path,
             (unsigned)plugin->api->struct_size);
  } else {
    return 0;
  }
  plugin_unload(plugin);
  return -1;
}

void plugin_unload(struct plugin *plugin) {
  if (plugin->library) dlclose(plugin->library);
  plugin->library = NULL;
  plugin->api = NULL;
}
