/* Opens the library by a relative path, changes the directory, and creates a context that needs a plug-in. A file with
 * the plug-in's name, at the same relative path below the new directory, must not be loaded.
 *   relative_path FOLDER_OF_THE_LIBRARY NAME_OF_THE_LIBRARY DECOY_FOLDER
 * DECOY_FOLDER has a folder of the same name as the library's, with the decoy in it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kvcache.h"

typedef kvc_status (*create_fn)(const kvc_context_config *, kvc_context **, kvc_error *);
typedef void (*destroy_fn)(kvc_context *);

static int fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return fail("relative_path", "three arguments are needed");
  char above[PATH_MAX], path[PATH_MAX];
  snprintf(above, sizeof above, "%s/..", argv[1]);
  const char *const folder = strrchr(argv[1], '/') + 1;
  if (chdir(above) != 0) return fail(above, "no such directory");
  snprintf(path, sizeof path, "./%s/%s", folder, argv[2]);
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fail(path, dlerror());
  if (chdir(argv[3]) != 0) return fail(argv[3], "no such directory");

  kvc_context_config config;
  kvc_context_config_init(&config);
  config.device_type = kDLCUDA;
  kvc_context *context = NULL;
  kvc_error error = KVC_ERROR_INIT;
  const create_fn create = (create_fn)dlsym(library, "kvc_context_create");
  const destroy_fn destroy = (destroy_fn)dlsym(library, "kvc_context_destroy");
  const kvc_status status = create(&config, &context, &error);
  snprintf(path, sizeof path, "./%s/libkvcache_cuda.so", folder);
  if (access(path, R_OK) != 0) return fail(path, "the decoy is not there");
  if (dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL) return fail(path, "the decoy was loaded");
  if (status == KVC_OK) {
    destroy(context);
  } else if (status != KVC_ERROR_DEVICE_UNAVAILABLE || strstr(error.message, argv[1]) == NULL) {
    return fail("the message does not name the library's folder", error.message);
  }
  return 0;
}
