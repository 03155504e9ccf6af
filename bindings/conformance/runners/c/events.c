/* Events of the prefix index. */
#include <stdio.h>
#include <string.h>

#include "runner.h"

enum { MOST_EVENTS = 256, MOST_TOKENS = 1 << 16, MOST_BYTES = 1 << 20 };

static void result_bytes(const char *name, const uint8_t *bytes, int64_t count) {
  char *digits = take((size_t)count * 2 + 1);
  for (int64_t i = 0; i < count; i++) sprintf(digits + 2 * i, "%02x", bytes[i]);
  result_text(name, digits);
}

static kvc_status fill(kvc_events_args *args, kvc_events_range *range) {
  kvc_events_range_init(range);
  args->next = (uint64_t)integer("next", 0);
  return flag("snapshot") ? kvc(events_snapshot)(cache(), args, range, &error)
                          : kvc(events_read)(cache(), args, range, &error);
}

static void result_range(const kvc_events_range *range) {
  result_integer("begin", (int64_t)range->begin);
  result_integer("end", (int64_t)range->end);
  result_integer("newest", (int64_t)range->newest);
}

static kvc_status events(void) {
  static const int64_t page = MOST_TOKENS / MOST_EVENTS;
  kvc_event *found = take(MOST_EVENTS * sizeof(*found));
  int32_t *tokens = take(MOST_TOKENS * sizeof(*tokens));
  kvc_events_args args;
  kvc_events_range range;
  kvc_events_args_init(&args);
  args.events = found;
  args.tokens = tokens;
  args.capacity = integer("most", MOST_EVENTS);
  const kvc_status status = fill(&args, &range);
  if (status != KVC_OK) return status;
  result_range(&range);
  const int64_t page_size = integer("page_size", 0);
  if (page_size > page) fail("pages are too large", "");
  int64_t *list = take((size_t)range.count * 6 * sizeof(*list) + 1), num_tokens = 0;
  int64_t *kinds = list, *groups = kinds + range.count, *positions = groups + range.count;
  int64_t *sessions = positions + range.count, *salted = sessions + range.count, *tiers = salted + range.count;
  uint8_t *keys = take((size_t)range.count * 64 + 1), *parents = keys + range.count * 32;
  for (int64_t i = 0; i < range.count; i++) {
    kinds[i] = found[i].kind;
    groups[i] = found[i].group;
    tiers[i] = found[i].tier;
    positions[i] = found[i].position;
    sessions[i] = (int64_t)found[i].session;
    salted[i] = (found[i].flags & KVC_EVENT_SALTED) != 0;
    memcpy(keys + 32 * i, found[i].key, 32);
    memcpy(parents + 32 * i, found[i].parent, 32);
    if (found[i].kind != KVC_EVENT_STORED) continue;
    memmove(tokens + num_tokens, tokens + i * page_size, (size_t)page_size * sizeof(*tokens));
    num_tokens += page_size;
  }
  result_integers("kinds", range.count, kinds);
  result_integers("groups", range.count, groups);
  result_integers("tiers", range.count, tiers);
  result_bytes("keys", keys, range.count * 32);
  result_bytes("parents", parents, range.count * 32);
  result_integers("positions", range.count, positions);
  result_integers("sessions", range.count, sessions);
  result_integers("salted", range.count, salted);
  result_integers_32("tokens", num_tokens, tokens);
  return status;
}

static kvc_status event_message(void) {
  uint8_t *bytes = take(MOST_BYTES);
  kvc_events_args args;
  kvc_events_range range;
  kvc_events_args_init(&args);
  args.bytes = bytes;
  args.capacity_bytes = integer("max_bytes", MOST_BYTES);
  args.flags = (flag("arrays") ? KVC_EVENTS_ARRAYS : 0) | (flag("short_hashes") ? KVC_EVENTS_SHORT_HASHES : 0);
  args.timestamp = number("timestamp");
  args.data_parallel_rank = (int32_t)integer("rank", -1);
  const kvc_status status = fill(&args, &range);
  if (status != KVC_OK) return status;
  result_range(&range);
  result_integer("count", range.count);
  result_bytes("payload", bytes, range.num_bytes);
  return status;
}

const operation event_operations[] = {
    {"events", events},
    {"event_message", event_message},
    {NULL, NULL},
};
