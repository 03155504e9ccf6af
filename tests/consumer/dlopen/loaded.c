/* A program that loads the library by path and knows one symbol. */
#include <dlfcn.h>
#define CALL(name) api->name
#define SCENARIO_API const kvc_api *api,
#define SCENARIO_PASS api,
#include "../scenario.h"

int main(int argc, char **argv) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  const kvc_api *api;
  const kvc_api *(*get_api)(uint32_t);
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int result;
  if (!library) {
    fprintf(stderr, "FAILED: dlopen: %s\n", argc == 2 ? dlerror() : "usage: loaded LIBRARY");
    return 1;
  }
  *(void **)&get_api = dlsym(library, "kvc_get_api");
  api = get_api ? get_api(KVC_ABI_VERSION) : NULL;
  if (!api || api->struct_size < sizeof(kvc_api)) {
    fprintf(stderr, "FAILED: kvc_get_api\n");
    return 1;
  }
  if (api->context_create(NULL, &context, &error)) return report("context_create", &error);
  result = scenario(api, context);
  api->context_destroy(context);
  if (!result) printf("kvcache %s: loaded, as computed by hand\n", api->version());
  return dlclose(library) ? 1 : result;
}
