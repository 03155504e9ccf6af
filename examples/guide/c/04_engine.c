/* A small scheduler: admission, preemption when pages run out, rejected drafts, and prompts that reuse a conversation.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "model.h"

enum {
  USERS = 3,
  ANSWER = 24, /* tokens of an answer */
  PAGES = 11,  /* of the full layer: too few for three users */
  MAX_DRAFTS = 8
};
static const char *const kSystem = "You are a terse assistant. Answer in one short word. ";
static const char *const kNames[USERS] = {"Ada", "Bob", "Cy"};
static const char *const kQuestions[USERS] = {"What is a page?", "What does a fork share, and what does it copy?",
                                              "Why?"};

typedef struct request {
  const char *name;
  int32_t tokens[MAX_TOKENS]; /* the prompt, then also the answer */
  int32_t num_tokens, prompt;
  int32_t drafts[MAX_DRAFTS]; /* a guess at what follows the first token of the answer */
  int32_t num_drafts;
  kvc_seq sequence; /* 0: none, because the request waits */
  int32_t cached;   /* how many of the tokens are in the cache */
} request;

typedef struct engine {
  kvc_cache *cache;
  request *waiting[USERS], *running[USERS];
  int32_t num_waiting, num_running, number; /* number: of the step */
} engine;

typedef struct rows {
  kvc_seq sequences[USERS];
  int32_t counts[USERS];
  kvc_batch batch;
} rows;

/* What a row appends in the next step: all that is not in the cache, and the drafts when the prompt is read. */
static int32_t next_tokens(const request *r, int32_t *tokens) {
  int32_t n = r->num_tokens - r->cached;
  memcpy(tokens, r->tokens + r->cached, sizeof(int32_t) * (size_t)n);
  if (r->num_tokens == r->prompt) return n;
  memcpy(tokens + n, r->drafts, sizeof(int32_t) * (size_t)r->num_drafts);
  return n + r->num_drafts;
}

/* Makes the batch of n requests. Its arrays are in *b. */
static const kvc_batch *batch_of(rows *b, request *const *requests, int32_t n) {
  int32_t tokens[MAX_TOKENS];
  for (int32_t i = 0; i < n; i++) {
    b->sequences[i] = requests[i]->sequence;
    b->counts[i] = next_tokens(requests[i], tokens);
  }
  kvc_batch_init(&b->batch);
  b->batch.sequences = b->sequences;
  b->batch.append_lengths = b->counts;
  b->batch.num_sequences = n;
  return &b->batch;
}

/* Gives up the sequence. Its tokens stay findable, until their pages are needed. */
static kvc_status release(engine *e, request *r, kvc_error *error) {
  kvc_status status = KVC_OK;
  if (r->sequence) {
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = r->tokens;
    query.num_tokens = r->cached;
    status = kvc_prefix_publish(e->cache, r->sequence, &query, NULL, NULL, error);
    if (!status) status = kvc_seq_remove(e->cache, 1, &r->sequence, error);
  }
  r->sequence = 0;
  r->cached = 0;
  return status;
}

/* Attaches what the prefix index has of a request, and checks that the next step has room for it. */
static kvc_status try_to_start(engine *e, request *r, kvc_error *error) {
  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.tokens = r->tokens;
  query.num_tokens = r->num_tokens;
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_status status = kvc_prefix_attach(e->cache, &query, NULL, &hit, &r->sequence, error);
  if (status) return status;
  r->cached = (int32_t)hit.tokens;
  e->running[e->num_running] = r;
  rows b;
  return kvc_cache_can_fit(e->cache, batch_of(&b, e->running, e->num_running + 1), error);
}

/* Starts requests, the one that waits longest first, as long as the next step has room for them. */
static kvc_status admit(engine *e, kvc_error *error) {
  while (e->num_waiting > 0) {
    request *r = e->waiting[0];
    kvc_status status = try_to_start(e, r, error);
    if (status) {
      kvc_error ignored = KVC_ERROR_INIT;
      release(e, r, &ignored);
      int capacity = status >= 100 && status <= 199;           /* the band of statuses that mean "not now" */
      return capacity && e->num_running > 0 ? KVC_OK : status; /* alone: it never fits */
    }
    printf("step %d: %s starts, %d of %d tokens are cached\n", e->number, r->name, r->cached, r->num_tokens);
    e->num_running++;
    e->num_waiting--;
    memmove(e->waiting, e->waiting + 1, sizeof(request *) * (size_t)e->num_waiting);
  }
  return KVC_OK;
}

/* Begins a step for all who run. While pages are missing, the one who started last has to wait again. */
static kvc_status begin(engine *e, rows *b, kvc_forward *step, kvc_error *error) {
  for (;;) {
    kvc_status status = kvc_forward_begin(e->cache, batch_of(b, e->running, e->num_running), NULL, step, error);
    if (status != KVC_ERROR_OUT_OF_PAGES || e->num_running == 1) return status;
    request *r = e->running[--e->num_running];
    printf("step %d: pages needed %lld, free %lld: %s waits\n", e->number, (long long)error->required,
           (long long)error->available, r->name);
    status = release(e, r, error);
    if (status) return status;
    memmove(e->waiting + 1, e->waiting, sizeof(request *) * (size_t)e->num_waiting++);
    e->waiting[0] = r;
  }
}

/* Takes what the model predicted after each token of a row. Drafts stay as far as they agree with it. */
static kvc_status take(engine *e, request *r, const int32_t *predicted, int32_t count, kvc_error *error) {
  int32_t plain = r->num_tokens - r->cached, drafts = count - plain, accepted = 0;
  while (accepted < drafts && r->drafts[accepted] == predicted[plain - 1 + accepted]) accepted++;
  r->cached += plain + accepted;
  if (drafts > 0) {
    int64_t length = r->cached;
    kvc_status status = kvc_seq_truncate(e->cache, 1, &r->sequence, &length, error); /* the rejected drafts go */
    if (status) return status;
    char text[MAX_DRAFTS + 1];
    printf("step %d: %d of the drafts %s are right\n", e->number, accepted, decode(r->drafts, drafts, text));
    r->num_drafts = 0;
  }
  for (int32_t i = plain - 1; i < plain + accepted; i++) r->tokens[r->num_tokens++] = predicted[i];
  return KVC_OK;
}

/* Answers all requests that wait. */
static kvc_status serve(engine *e, kvc_error *error) {
  kvc_status status = KVC_OK;
  while (e->num_waiting + e->num_running > 0 && !status) {
    e->number++;
    status = admit(e, error);
    rows b;
    kvc_forward step;
    int32_t tokens[MAX_TOKENS], predicted[MAX_TOKENS], n = 0;
    if (!status) status = begin(e, &b, &step, error);
    if (status) return status;
    for (int32_t i = 0; i < e->num_running; i++) n += next_tokens(e->running[i], tokens + n);
    status = run(e->cache, step, tokens, n, predicted, error);
    if (!status) status = kvc_forward_end(e->cache, step, error);

    int32_t staying = 0, row = 0;
    for (int32_t i = 0; i < b.batch.num_sequences && !status; row += b.counts[i++]) {
      request *r = e->running[i];
      status = take(e, r, predicted + row, b.counts[i], error);
      if (r->num_tokens - r->prompt < ANSWER) {
        e->running[staying++] = r;
      } else if (!status) {
        char text[ANSWER + 1];
        printf("step %d: %s has %s\n", e->number, r->name, decode(r->tokens + r->prompt, ANSWER, text));
        status = release(e, r, error);
      }
    }
    e->num_running = staying;
  }
  return status;
}

/* A request whose prompt is that of another, with its answer, and a text. */
static request request_of(const char *name, const request *before, const char *text, const char *drafts) {
  request r = *before;
  r.name = name;
  r.num_tokens += encode(text, r.tokens + r.num_tokens);
  r.prompt = r.num_tokens;
  r.num_drafts = encode(drafts, r.drafts);
  return r;
}

/* The system prompt is read before the first request comes. The pin keeps it from being evicted. */
static kvc_status read_system_prompt(engine *e, request *system, uint64_t *pin, kvc_error *error) {
  request *only[1] = {system};
  int32_t predicted[MAX_TOKENS];
  rows b;
  kvc_forward step;
  kvc_status status = kvc_seq_add(e->cache, 1, &system->sequence, error);
  if (!status) status = kvc_forward_begin(e->cache, batch_of(&b, only, 1), NULL, &step, error);
  if (!status) status = run(e->cache, step, system->tokens, system->num_tokens, predicted, error);
  if (!status) status = kvc_forward_end(e->cache, step, error);
  system->cached = system->num_tokens;
  if (!status) status = release(e, system, error);

  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.tokens = system->tokens;
  query.num_tokens = system->num_tokens;
  if (!status) status = kvc_prefix_pin(e->cache, &query, NULL, pin, error);
  return status;
}

static kvc_status program(kvc_cache *cache, kvc_error *error) {
  static const request kNone;
  engine e = {.cache = cache};
  request system = request_of("system", &kNone, kSystem, ""), users[USERS];
  uint64_t pin = 0;
  kvc_status status = read_system_prompt(&e, &system, &pin, error);
  for (int32_t i = 0; i < USERS; i++) {
    users[i] = request_of(kNames[i], &system, kQuestions[i], "");
    e.waiting[e.num_waiting++] = &users[i];
  }
  if (!status) status = serve(&e, error);

  /* Cy goes on: the second prompt begins with the first conversation. */
  request again = request_of("Cy", &users[2], " And then?", "mhnqq");
  e.waiting[e.num_waiting++] = &again;
  if (!status) status = serve(&e, error);

  if (!status) status = kvc_prefix_unpin(cache, pin, error);
  kvc_stats stats;
  kvc_stats_init(&stats);
  if (!status) status = kvc_cache_stats(cache, -1, &stats, error);
  if (!status)
    printf("pages used %lld, of them only remembered %lld, evicted %lld\n", (long long)stats.pages_used,
           (long long)stats.pages_idle, (long long)stats.pages_evicted);
  return status;
}

int main(void) {
  kvc_cache_config config;
  model_config(&config);
  config.capacity_pages = PAGES;
  config.rollback_tokens = 8;
  config.flags = KVC_CACHE_DETERMINISTIC | KVC_CACHE_PREFIX_INDEX;
  return with_cache(&config, program);
}
