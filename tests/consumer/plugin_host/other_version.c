/* Stands for another release of the library: the real one's functions in a table of another length.
 *   TABLE  0: serves no ABI that this program was built for; 1: ends before kvc_forward_abort; 2: an older release
 * without kvc_merge_states; 3: a newer one with functions that do not exist yet REAL   path of the real library */
#include <dlfcn.h>
#include <kvcache.h>
#include <string.h>

static struct {
  kvc_api known;
  void *later[4];
} table;

static const char *version(void) { return TABLE == 3 ? "0.1.99" : "0.1.0-older"; }

KVC_API const struct kvc_api *kvc_get_api(uint32_t abi_version) {
  const kvc_api *(*real)(uint32_t);
  void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
  if (!library || TABLE == 0) return NULL;
  *(void **)&real = dlsym(library, "kvc_get_api");
  table.known = *real(abi_version);
  table.known.version = version;
  if (TABLE == 1) table.known.struct_size = offsetof(kvc_api, forward_abort);
  if (TABLE == 2) table.known.struct_size = offsetof(kvc_api, merge_states);
  if (TABLE == 3) table.known.struct_size = sizeof(table);
  /* Nothing lies after the end. */
  if (table.known.struct_size < sizeof(kvc_api)) {
    memset((char *)&table + table.known.struct_size, 0, sizeof(table) - table.known.struct_size);
  }
  return &table.known;
}
