/* Sequences. */
#include "runner.h"

static kvc_status add(void) {
  int64_t n;
  integers("seqs", &n);
  kvc_seq *ids = take((size_t)n * sizeof(*ids));
  const kvc_status status = kvc(seq_add)(cache(), n, ids, &error);
  if (status == KVC_OK) bind_sequences("seqs", ids);
  return status;
}

static kvc_status fork_sequences(void) {
  int64_t n, ignored;
  const kvc_seq *parents = sequences("parents", &n);
  const int64_t *positions = integers("positions", &ignored);
  kvc_seq *children = take((size_t)n * sizeof(*children));
  const kvc_status status = kvc(seq_fork)(cache(), n, parents, positions, children, NULL, &error);
  if (status == KVC_OK) bind_sequences("seqs", children);
  return status;
}

static kvc_status commit(void) {
  int64_t n, ignored;
  const kvc_seq *ids = sequences("seqs", &n);
  return kvc(seq_commit)(cache(), n, ids, integers_32("leaves", &ignored), NULL, &error);
}

static kvc_status set_rope(void) {
  static const char *const sets[] = {"short", "long", NULL};
  int64_t n;
  const kvc_seq *ids = sequences("seqs", &n);
  return kvc(seq_set_rope)(cache(), n, ids, choice("set", sets), &error);
}

static kvc_status set_streaming(void) {
  int64_t n;
  const kvc_seq *ids = sequences("seqs", &n);
  int64_t *sinks = take((size_t)n * sizeof(*sinks)), *windows = take((size_t)n * sizeof(*windows));
  for (int64_t i = 0; i < n; i++) {
    sinks[i] = integer("sinks", 0);
    windows[i] = integer("window", 0);
  }
  return kvc(seq_set_streaming)(cache(), n, ids, sinks, windows,
                                flag("prefix_is_sink") ? KVC_STREAMING_PREFIX_IS_SINK : 0, &error);
}

static kvc_status streaming(void) {
  const kvc_seq id = sequence(integer("seq", 0));
  int64_t sinks = 0, window = 0;
  const kvc_status status = kvc(seq_get_streaming)(cache(), 1, &id, &sinks, &window, &error);
  result_integer("sinks", sinks);
  result_integer("window", window);
  return status;
}

static kvc_status pages(void) {
  const kvc_seq id = sequence(integer("seq", 0));
  const int32_t group = (int32_t)integer("group", 0);
  int64_t count = 0;
  kvc_status status = kvc(seq_pages)(cache(), id, group, NULL, 0, &count, &error);
  if (status != KVC_OK) return status;
  int32_t *values = take((size_t)count * sizeof(*values));
  status = kvc(seq_pages)(cache(), id, group, values, count, &count, &error);
  result_integers_32("pages", count, values);
  return status;
}

static kvc_status nearest(void) {
  const kvc_seq id = sequence(integer("seq", 0));
  int64_t before = 0, after = 0;
  const kvc_status status = kvc(seq_nearest_position)(cache(), id, integer("position", 0), &before, &after, &error);
  result_integer("before", before);
  result_integer("after", after);
  return status;
}

const operation sequence_operations[] = {
    {"add", add},
    {"fork", fork_sequences},
    {"commit", commit},
    {"set_rope", set_rope},
    {"set_streaming", set_streaming},
    {"streaming", streaming},
    {"pages", pages},
    {"nearest", nearest},
    {NULL, NULL},
};
