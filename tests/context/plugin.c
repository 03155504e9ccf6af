/* Backends that a core must refuse: PLUGIN_VERSION and PLUGIN_DEVICE_TYPE say how; without the first there is no
 * symbol. */
#include "kvcache_backend.h"

int plugin_is_here = 1;

#ifdef PLUGIN_VERSION
const kvc_backend *kvc_backend_get(uint32_t version) {
  static kvc_backend table;
  (void)version;
  table.struct_size = (uint32_t)sizeof(table);
  table.version = PLUGIN_VERSION;
  table.device_type = PLUGIN_DEVICE_TYPE;
  table.name = "plugin";
  return &table;
}
#endif
