/* What the operations share: the library's table and the objects that the script has named. */
#ifndef KVCACHE_CONFORMANCE_RUNNER_H_
#define KVCACHE_CONFORMANCE_RUNNER_H_

#include "script.h"

/* The library's function of that name, noted as called: `kvc(seq_add)(cache, ...)`. */
#define kvc(name) (note_call(offsetof(kvc_api, name)), api->name)

extern const kvc_api *api;
extern kvc_error error; /* of the current operation */
void note_call(size_t offset);

/* Objects by ordinal; fail where nothing is bound. */
kvc_context *context(void);
kvc_cache *cache(void);
kvc_forward step(void);
kvc_plan *plan(void);
kvc_forward graph(void);
kvc_seq sequence(int64_t ordinal);
kvc_seq *sequences(const char *key, int64_t *count); /* NULL if absent */
void bind_sequences(const char *key, const kvc_seq *ids);
void bind_step(kvc_forward forward); /* to step=; it stays bound when it closes, for `?` lines */
void bind_cache(kvc_cache *made);
void bind_context(kvc_context *made);
void bind_plan(kvc_plan *made);
void bind_graph(kvc_forward made); /* it stays bound when it is closed */
void step_closed(void);            /* nothing to abort when the script ends */
void close_all(void);

const char *path_in(const char *variable, const char *key); /* a folder of the driver, and the word of the key */
kvc_prefix_query read_query(void);
void result_hit(const kvc_prefix_hit *hit);
void result_tables(const kvc_tables *tables);
uint32_t table_arrays(void);
int32_t table_part(void);

typedef kvc_status (*operation_fn)(void);
typedef struct operation {
  const char *name;
  operation_fn run;
} operation;

/* One table a file, each closed by {NULL, NULL}. */
extern const operation config_operations[], sequence_operations[], step_operations[], tensor_operations[],
    stateless_operations[], plan_operations[], prefix_operations[], event_operations[], save_operations[],
    tier_operations[], transfer_operations[], generated_operations[];

#endif
