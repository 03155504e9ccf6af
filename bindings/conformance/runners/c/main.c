/* The runner of C: knows the library by kvc_get_api alone.
 *   KVCACHE_LIBRARY=LIBRARY runner SCRIPT...
 * With KVCACHE_CONFORMANCE_CALLS=FILE it appends the offset in kvc_api of each function that it called, one a line. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner.h"

enum { MAX_OBJECTS = 16, MAX_SEQUENCES = 65536, MAX_CALLS = 256 };

const kvc_api *api;
kvc_error error;

static kvc_context *contexts[MAX_OBJECTS];
static kvc_cache *caches[MAX_OBJECTS];
static kvc_plan *plans[MAX_OBJECTS];
static kvc_forward graphs[MAX_OBJECTS];
static struct {
  kvc_forward id;
  kvc_cache *cache; /* NULL: closed */
} steps[MAX_OBJECTS];
static kvc_seq bound[MAX_SEQUENCES]; /* 0: never */
static bool called[MAX_CALLS];

void clear_config(void);

void note_call(size_t offset) { called[offset / sizeof(void *)] = true; }

static int64_t ordinal(const char *key, int64_t limit, int64_t value) {
  if (value < 0 || value >= limit) fail("ordinal out of range", key);
  return value;
}

static int64_t object(const char *key) { return ordinal(key, MAX_OBJECTS, integer(key, 0)); }

kvc_context *context(void) {
  if (!contexts[object("context")]) fail("no such context", "");
  return contexts[object("context")];
}

kvc_cache *cache(void) {
  if (!caches[object("cache")]) fail("no such cache", "");
  return caches[object("cache")];
}

kvc_plan *plan(void) {
  if (!plans[object("plan")]) fail("no such plan", "");
  return plans[object("plan")];
}

kvc_forward graph(void) { return graphs[object("graph")]; }
kvc_forward step(void) { return steps[object("step")].id; }
void bind_context(kvc_context *made) { contexts[object("context")] = made; }
void bind_plan(kvc_plan *made) { plans[object("plan")] = made; }
void bind_graph(kvc_forward made) { graphs[object("graph")] = made; }
void step_closed(void) { steps[object("step")].cache = NULL; }

void bind_cache(kvc_cache *made) {
  for (int i = 0; i < MAX_OBJECTS; i++) /* its steps are gone with it */
    if (steps[i].cache == caches[object("cache")]) steps[i].cache = NULL;
  caches[object("cache")] = made;
}

void bind_step(kvc_forward forward) {
  steps[object("step")].id = forward;
  steps[object("step")].cache = cache();
}

kvc_seq sequence(int64_t value) {
  if (value == -1) return 0;
  const kvc_seq id = bound[ordinal("sequence", MAX_SEQUENCES, value)];
  return id ? id : ((kvc_seq)1 << 60) + (kvc_seq)value;
}

kvc_seq *sequences(const char *key, int64_t *count) {
  const int64_t *ordinals = integers(key, count);
  kvc_seq *ids = ordinals ? take((size_t)*count * sizeof(*ids)) : NULL;
  for (int64_t i = 0; i < *count; i++) ids[i] = sequence(ordinals[i]);
  return ids;
}

void bind_sequences(const char *key, const kvc_seq *ids) {
  int64_t count;
  const int64_t *ordinals = integers(key, &count);
  for (int64_t i = 0; i < count; i++) bound[ordinal(key, MAX_SEQUENCES, ordinals[i])] = ids[i];
}

void close_all(void) {
  for (int i = 0; i < MAX_OBJECTS; i++)
    if (steps[i].cache) api->forward_abort(steps[i].cache, steps[i].id, NULL);
  for (int i = 0; i < MAX_OBJECTS; i++) {
    api->plan_destroy(plans[i]);
    api->cache_destroy(caches[i]);
    api->context_destroy(contexts[i]);
  }
  memset(contexts, 0, sizeof(contexts));
  memset(caches, 0, sizeof(caches));
  memset(plans, 0, sizeof(plans));
  memset(steps, 0, sizeof(steps));
  memset(graphs, 0, sizeof(graphs));
  memset(bound, 0, sizeof(bound));
  clear_config();
  release_all();
}

static jmp_buf at_a_loss;
static int line_number;

static void on_failure(const char *why, const char *value) {
  printf("%d FAILED %s: %s\n", line_number, why, value);
  longjmp(at_a_loss, 1);
}

static operation_fn find(const char *name) {
  const operation *const tables[] = {config_operations, sequence_operations,  step_operations,
                                     tensor_operations, stateless_operations, plan_operations,
                                     prefix_operations, event_operations,     save_operations,
                                     tier_operations,   transfer_operations,  generated_operations};
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
    for (const operation *entry = tables[i]; entry->name; entry++)
      if (strcmp(entry->name, name) == 0) return entry->run;
  fail("unknown operation", name);
  return NULL;
}

static void run_line(char *line) {
  if (setjmp(at_a_loss)) return;
  const char *name = read_line(line);
  if (!name) return;
  const operation_fn run = find(name);
  kvc_error_init(&error);
  const kvc_status status = run();
  if (status == KVC_OK)
    printf("%d OK%s\n", line_number, results());
  else
    printf("%d %s index=%lld required=%lld available=%lld group=%lld\n", line_number, kvc(status_name)(status),
           (long long)error.index, (long long)error.required, (long long)error.available, (long long)error.group);
}

static int run_script(const char *path) {
  FILE *file = fopen(path, "r");
  char *line = NULL;
  size_t capacity = 0;
  if (!file) {
    perror(path);
    return 1;
  }
  printf("script %s\n", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
  for (line_number = 1; getline(&line, &capacity, file) >= 0; line_number++) {
    run_line(line);
    fflush(stdout);
  }
  close_all();
  free(line);
  fclose(file);
  return 0;
}

static void write_calls(const char *path) {
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  for (size_t i = 0; i < MAX_CALLS; i++)
    if (called[i]) fprintf(file, "%zu\n", i * sizeof(void *));
  fclose(file);
}

int main(int argc, char **argv) {
  const char *library = getenv("KVCACHE_LIBRARY");
  const kvc_api *(*get_api)(uint32_t) = NULL;
  int status = 0;
  void *handle = dlopen(library ? library : "libkvcache.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle) *(void **)&get_api = dlsym(handle, "kvc_get_api");
  if (get_api) api = get_api(KVC_ABI_VERSION);
  if (!api || api->struct_size < sizeof(kvc_api)) {
    fprintf(stderr, "runner: no library of ABI %#x: %s\n", (unsigned)KVC_ABI_VERSION, handle ? library : dlerror());
    return 1;
  }
  fail_handler = on_failure;
  for (int i = 1; i < argc; i++) status |= run_script(argv[i]);
  write_calls(getenv("KVCACHE_CONFORMANCE_CALLS"));
  return status;
}
