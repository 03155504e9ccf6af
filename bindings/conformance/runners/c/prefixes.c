/* The prefix index. */
#include "runner.h"

kvc_prefix_query read_query(void) {
  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.tokens = integers_32("prompt", &query.num_tokens);
  query.salt = (uint64_t)integer("salt", 0);
  query.salt_begin = integer("salt_begin", 0);
  query.adapter = hex_bytes("adapter", &query.adapter_bytes);
  int64_t n = 0;
  query.media_begins = integers("media_begins", &n);
  query.media_tokens = integers("media_tokens", &query.num_media);
  query.media_hashes = hex_bytes("media_hashes", &n);
  query.flags = flag("allow_all") ? KVC_PREFIX_ALLOW_ALL : 0;
  return query;
}

void result_hit(const kvc_prefix_hit *hit) {
  result_integer("tokens", hit->tokens);
  result_integer("copied", hit->copied_tokens);
  result_integer("known", hit->known_tokens);
  result_integer("limited_by", hit->limited_by);
}

static kvc_status match(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  const kvc_status status = kvc(prefix_match)(cache(), &query, &hit, &error);
  result_hit(&hit);
  return status;
}

static kvc_status attach(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_seq id = 0;
  const kvc_status status = kvc(prefix_attach)(cache(), &query, NULL, &hit, &id, &error);
  if (status == KVC_OK) bind_sequences("seqs", &id);
  result_hit(&hit);
  return status;
}

static kvc_status publish(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_options options;
  kvc_prefix_options_init(&options);
  options.session = (uint64_t)integer("session", 0);
  options.priority = (int32_t)integer("priority", 0);
  options.time_to_live = integer("time_to_live", 0);
  options.flags = flag("keep_private") ? KVC_PREFIX_KEEP_PRIVATE : 0;
  kvc_prefix_published published;
  kvc_prefix_published_init(&published);
  const kvc_status status =
      kvc(prefix_publish)(cache(), sequence(integer("seq", 0)), &query, &options, &published, &error);
  result_integer("known", published.known_tokens);
  result_integer("added", published.pages_added);
  result_integer("freed", published.pages_freed);
  return status;
}

static kvc_status drop(void) {
  const kvc_prefix_query query = read_query();
  int64_t pages = 0;
  const kvc_status status = kvc(prefix_drop)(cache(), &query, &pages, &error);
  result_integer("pages", pages);
  return status;
}

static kvc_status drop_session(void) {
  int64_t pages = 0;
  const kvc_status status = kvc(prefix_drop_session)(cache(), (uint64_t)integer("session", 0), &pages, &error);
  result_integer("pages", pages);
  return status;
}

static kvc_status set_priority(void) {
  const int32_t priority = (int32_t)integer("priority", 0);
  const int64_t time_to_live = integer("time_to_live", 0);
  if (text("session")) {
    return kvc(prefix_set_session_priority)(cache(), (uint64_t)integer("session", 0), priority, time_to_live, &error);
  }
  const kvc_prefix_query query = read_query();
  return kvc(prefix_set_priority)(cache(), &query, priority, time_to_live, &error);
}

static kvc_status pin(void) {
  const kvc_prefix_query query = read_query();
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  uint64_t id = 0;
  const kvc_status status = kvc(prefix_pin)(cache(), &query, &hit, &id, &error);
  result_integer("tokens", hit.tokens);
  result_integer("pin", (int64_t)id);
  return status;
}

static kvc_status unpin(void) { return kvc(prefix_unpin)(cache(), (uint64_t)integer("pin", 0), &error); }

static kvc_status set_time(void) { return kvc(cache_set_time)(cache(), integer("now", 0), &error); }

static kvc_status prefix_stats(void) {
  kvc_stats stats;
  kvc_stats_init(&stats);
  const kvc_status status = kvc(cache_stats)(cache(), (int32_t)integer("group", -1), &stats, &error);
  result_integer("pages_published", stats.pages_published);
  result_integer("pages_idle", stats.pages_idle);
  result_integer("pages_evicted", stats.pages_evicted);
  result_integer("prefix_attaches", stats.prefix_attaches);
  result_integer("prefix_tokens", stats.prefix_tokens);
  return status;
}

const operation prefix_operations[] = {
    {"match_prefix", match},
    {"attach_prefix", attach},
    {"publish_prefix", publish},
    {"drop_prefix", drop},
    {"drop_session", drop_session},
    {"set_prefix_priority", set_priority},
    {"pin_prefix", pin},
    {"unpin_prefix", unpin},
    {"set_time", set_time},
    {"prefix_stats", prefix_stats},
    {NULL, NULL},
};
