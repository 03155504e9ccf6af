/* Saved sequences, in files of the folders that the driver names. */
#include <stdio.h>
#include <stdlib.h>

#include "runner.h"

const char *path_in(const char *variable, const char *key) {
  static char path[4096];
  const char *folder = getenv(variable);
  snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", text(key));
  return path;
}

static kvc_status save(void) {
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.path = path_in("KVCACHE_CONFORMANCE_SAVE", "file");
  args.tokens = integers_32("tokens", &args.num_tokens);
  args.section_bytes = integer("section_bytes", 0);
  return kvc(seq_save)(cache(), sequence(integer("seq", 0)), &args, NULL, &error);
}

static kvc_status load(void) {
  int32_t tokens[256];
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.path = path_in("KVCACHE_CONFORMANCE_LOAD", "file");
  args.tokens = tokens;
  args.capacity = 256;
  kvc_seq id = 0;
  int64_t count = 0;
  const kvc_status status = kvc(seq_load)(cache(), &args, NULL, &id, &count, &error);
  if (status == KVC_OK) bind_sequences("seqs", &id);
  result_integers_32("tokens", count, tokens);
  return status;
}

const operation save_operations[] = {{"save", save}, {"load", load}, {NULL, NULL}};
