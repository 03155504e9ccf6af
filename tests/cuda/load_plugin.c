/* Opens a CUDA context with the plug-in that the environment names, and then a CPU context, which must always work.
 *   load_plugin STATUS WORDS    the first one fails with this status and a message that has these words; 0: it opens,
 * and its description has them
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvcache.h"

static int describe_and_close(kvc_context *context, const char *words) {
  char text[1024] = "";
  kvc_error error = KVC_ERROR_INIT;
  kvc_context_describe(context, text, sizeof text, NULL, &error);
  puts(text);
  kvc_context_destroy(context);
  return strstr(text, words) != NULL ? 0 : 1;
}

int main(int count, char **words) {
  kvc_context_config config;
  kvc_context *context = NULL;
  kvc_error error = KVC_ERROR_INIT;
  kvc_status status;
  int failed = 0;
  if (count != 3) return 2;
  kvc_context_config_init(&config);
  config.device_type = kDLCUDA;
  status = kvc_context_create(&config, &context, &error);
  if (status == KVC_OK) {
    failed = describe_and_close(context, words[2]);
  } else {
    puts(error.message);
    failed = strstr(error.message, words[2]) == NULL;
  }
  failed |= status != atoi(words[1]);
  context = NULL;
  if (kvc_context_create(NULL, &context, &error) != KVC_OK) return 3;
  return failed | describe_and_close(context, "\"device\": \"cpu\"");
}
