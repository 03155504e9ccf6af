/* Transfers: sequences to caches of this process, or of others over a transport. */
#include <dlfcn.h>
#include <kvcache_transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner.h"

enum { MAX_TRANSFERS = 16, MAX_DESCRIPTION = 1 << 16 };

static kvc_transfer transfers[MAX_TRANSFERS];
static struct {
  int64_t bytes;
  uint8_t data[MAX_DESCRIPTION];
} descriptions[MAX_TRANSFERS];

static int64_t ordinal(const char *key) {
  const int64_t value = integer(key, 0);
  if (value < 0 || value >= MAX_TRANSFERS) fail("ordinal out of range", key);
  return value;
}

static kvc_status set_transport(void) {
  const char *library = getenv("KVCACHE_CONFORMANCE_TRANSPORT"), *options = getenv("KVCACHE_CONFORMANCE_OPTIONS");
  void *plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  kvc_transport_open_fn open = NULL;
  kvc_transport transport;
  if (plugin) *(void **)&open = dlsym(plugin, "kvc_transport_open");
  if (!open) fail("no transport", dlerror());
  kvc_transport_init(&transport);
  kvc_status status = open(KVC_TRANSPORT_VERSION, options, &transport, &error);
  if (status != KVC_OK) return status;
  status = kvc(cache_set_transport)(cache(), &transport, &error);
  if (status != KVC_OK) transport.close(transport.self);
  return status;
}

static kvc_status receive(void) {
  kvc_receive_args args;
  kvc_receive_args_init(&args);
  args.num_tokens = integer("tokens", 0);
  args.timeout_ms = (int32_t)integer("timeout_ms", 0);
  if (flag("prefix")) args.prefix = sequence(integer("prefix", 0));
  return kvc(transfer_receive)(cache(), &args, &transfers[ordinal("transfer")], &error);
}

static kvc_status describe(void) {
  const int64_t at = ordinal("transfer");
  const kvc_status status = kvc(transfer_describe)(cache(), transfers[at], descriptions[at].data, MAX_DESCRIPTION,
                                                   &descriptions[at].bytes, &error);
  if (status != KVC_OK || !text("file")) return status;
  char part[4200];
  const char *path = path_in("KVCACHE_CONFORMANCE_SAVE", "file");
  snprintf(part, sizeof part, "%s.part", path);
  FILE *file = fopen(part, "w");
  if (!file ||
      fwrite(descriptions[at].data, 1, (size_t)descriptions[at].bytes, file) != (size_t)descriptions[at].bytes ||
      fclose(file) != 0 || rename(part, path) != 0) /* the sender finds all of it */
    fail("cannot write", path);
  return status;
}

static kvc_status send(void) {
  const struct timespec pause = {0, 1000000};
  const int64_t of = ordinal("of");
  if (text("file")) {
    const char *path = path_in("KVCACHE_CONFORMANCE_LOAD", "file");
    FILE *file;
    while (!(file = fopen(path, "r"))) nanosleep(&pause, NULL);
    descriptions[of].bytes = (int64_t)fread(descriptions[of].data, 1, MAX_DESCRIPTION, file);
    fclose(file);
  }
  return kvc(transfer_send)(cache(), sequence(integer("seq", 0)), descriptions[of].data,
                            descriptions[of].bytes - integer("cut", 0), &transfers[ordinal("transfer")], &error);
}

static kvc_status poll_transfer(void) {
  kvc_transfer_info info;
  kvc_transfer_info_init(&info);
  kvc_status status;
  do {
    status = kvc(transfer_poll)(cache(), transfers[ordinal("transfer")], &info, &error);
  } while (status == KVC_OK && !info.done && flag("until_done"));
  if (info.done && text("seqs")) bind_sequences("seqs", &info.sequence);
  result_integer("done", info.done);
  result_integer("tokens", info.tokens);
  result_integer("bytes", info.bytes);
  return status;
}

static kvc_status cancel(void) { return kvc(transfer_cancel)(cache(), transfers[ordinal("transfer")], &error); }

const operation transfer_operations[] = {{"set_transport", set_transport},
                                         {"receive", receive},
                                         {"describe_transfer", describe},
                                         {"send", send},
                                         {"poll_transfer", poll_transfer},
                                         {"cancel_transfer", cancel},
                                         {NULL, NULL}};
