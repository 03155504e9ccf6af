/* Tiers: memory, and folders in those that the driver names. */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "runner.h"

static int32_t one_of(const char *key, const char *const *words) {
  const char *word = text(key);
  if (!word) return 0;
  for (int32_t i = 0; words[i]; i++)
    if (strcmp(words[i], word) == 0) return i;
  fail("no such word", word);
  return 0;
}

static kvc_status add(void) {
  static const char *const sync[] = {"data", "none", "full", NULL};
  static const char *const store[] = {"published", "reused", "nothing", "evicted", NULL};
  static const char *const reads[] = {"any", "blocking", "io_uring", NULL};
  static const uint32_t read_flags[] = {0, KVC_TIER_BLOCKING, KVC_TIER_IO_URING};
  kvc_tier_config config;
  kvc_tier_config_init(&config);
  config.flags = read_flags[one_of("reads", reads)];
  if (flag("host"))
    config.flags = flag("pinned") ? KVC_TIER_HOST | KVC_TIER_PINNED : KVC_TIER_HOST;
  else
    config.directory = path_in(flag("of_first") ? "KVCACHE_CONFORMANCE_LOAD" : "KVCACHE_CONFORMANCE_SAVE", "directory");
  config.capacity_bytes = integer("capacity_bytes", 0);
  config.sync = one_of("sync", sync);
  config.store = one_of("store", store);
  config.min_tokens = integer("min_tokens", 0);
  config.medium = text("medium");
  return kvc(cache_add_tier)(cache(), &config, &error);
}

/* Waits for the end of a job. Its descriptor says when to look. */
static kvc_status wait_for(kvc_job job, int64_t *tokens) {
  struct pollfd readable = {-1, POLLIN, 0};
  kvc_status status = kvc(cache_job_descriptor)(cache(), &readable.fd, &error);
  kvc_job_info info;
  kvc_job_info_init(&info);
  while (status == KVC_OK && !info.done) {
    poll(&readable, 1, 60000);
    status = kvc(job_poll)(cache(), job, &info, &error);
  }
  *tokens = info.tokens;
  return status;
}

static kvc_status load(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_load_options options;
  kvc_prefix_load_options_init(&options);
  options.session = (uint64_t)integer("session", 0);
  options.priority = (int32_t)integer("priority", 0);
  options.time_to_live = integer("time_to_live", 0);
  options.token_ns = integer("token_ns", INT64_MAX);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_job job = 0;
  int64_t loaded = 0;
  kvc_status status = kvc(prefix_load)(cache(), &query, &options, &hit, &job, &error);
  if (status == KVC_OK && job && flag("cancel")) status = kvc(job_cancel)(cache(), job, &error);
  if (status == KVC_OK && job) status = wait_for(job, &loaded);
  if (flag("cancel")) return status;
  result_hit(&hit);
  result_integer("load_tokens", hit.load_tokens);
  int32_t tiers = hit.num_tiers;
  while (tiers > 0 && hit.tier_tokens[tiers - 1] == 0) --tiers;
  result_integers("tier_tokens", tiers, hit.tier_tokens);
  result_integer("loaded", loaded);
  return status;
}

static kvc_job pending_job; /* of the last attach_pending */

static kvc_status attach_pending(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_load_options options;
  kvc_prefix_load_options_init(&options);
  options.token_ns = INT64_MAX;
  kvc_status status = kvc(prefix_load)(cache(), &query, &options, NULL, &pending_job, &error);
  if (status != KVC_OK) return status;
  kvc_pending_options how;
  kvc_pending_options_init(&how);
  how.flags = KVC_PENDING_WAIT;
  kvc_seq made = 0;
  int64_t tokens = 0;
  status = kvc(prefix_attach_pending)(cache(), pending_job, &how, &made, &tokens, &error);
  if (status == KVC_OK) bind_sequences("seqs", &made);
  result_integer("tokens", tokens);
  return status;
}

static kvc_status wait_job(void) {
  int64_t loaded = 0;
  kvc_status status = wait_for(pending_job, &loaded);
  kvc_pending_info info;
  kvc_pending_info_init(&info);
  if (status == KVC_OK) status = kvc(seq_pending)(cache(), sequence(integer("seq", 0)), &info, &error);
  result_integer("loaded", loaded);
  result_integer("pending", info.job != 0);
  return status;
}

static kvc_status move(bool resume) {
  kvc_job job = 0;
  int64_t tokens = 0;
  kvc_status status = (resume ? kvc(seq_resume) : kvc(seq_suspend))(cache(), sequence(integer("seq", 0)), &job, &error);
  if (status == KVC_OK) status = wait_for(job, &tokens);
  result_integer("tokens", tokens);
  return status;
}

static kvc_status suspend(void) { return move(false); }
static kvc_status resume(void) { return move(true); }

static kvc_status traffic(void) {
  const struct timespec pause = {0, 1000000};
  kvc_tier_traffic traffic;
  kvc_tier_traffic_init(&traffic);
  kvc_status status;
  while ((status = kvc(cache_tier_traffic)(cache(), &traffic, &error)) == KVC_OK && traffic.pages_waiting > 0)
    nanosleep(&pause, NULL);
  result_integer("num_tiers", traffic.num_tiers);
  result_integer("stored", traffic.pages_stored);
  result_integer("dropped", traffic.pages_dropped);
  result_integer("not_stored", traffic.pages_not_stored);
  result_integer("loading", traffic.pages_loading);
  result_integer("loaded", traffic.pages_loaded);
  result_integer("not_loaded", traffic.pages_not_loaded);
  result_integer("suspended", traffic.sequences_suspended);
  return status;
}

const operation tier_operations[] = {{"add_tier", add},      {"load_prefix", load}, {"tier_traffic", traffic},
                                     {"suspend", suspend},   {"resume", resume},    {"attach_pending", attach_pending},
                                     {"wait_job", wait_job}, {NULL, NULL}};
