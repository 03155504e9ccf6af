/* A program that links the installed library. */
#define CALL(name) kvc_##name
#define SCENARIO_API
#define SCENARIO_PASS
#include "scenario.h"

int main(void) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = NULL;
  int result;
  if (kvc_abi_version() != KVC_ABI_VERSION) {
    fprintf(stderr, "FAILED: abi version %u\n", kvc_abi_version());
    return 1;
  }
  if (kvc_context_create(NULL, &context, &error)) return report("context_create", &error);
  result = scenario(context);
  kvc_context_destroy(context);
  if (!result) printf("kvcache %s: linked, as computed by hand\n", kvc_version());
  return result;
}
