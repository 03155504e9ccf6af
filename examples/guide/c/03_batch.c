/* All users in one batch: prompts in chunks, decode beside them, and a user who leaves in the middle of a step.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

enum {
  USERS = 3,
  ANSWER = 8, /* tokens of an answer */
  CHUNK = 16, /* most tokens that one row appends in a step, so that a long prompt does not hold up the others */
  LEAVES_IN_STEP = 5
};
static const char *const kSystem = "You are a terse assistant. Answer in one short word. ";
static const char *const kNames[USERS] = {"Ada", "Bob", "Cy"};
static const char *const kQuestions[USERS] = {"What is a page?", "What does a fork share, and what does it copy?",
                                              "Why?"};
static const char *const kLeaves = "Ada"; /* who closes the connection */

typedef struct user {
  const char *name;
  kvc_seq sequence;
  int32_t tokens[MAX_TOKENS]; /* the question, then also the answer */
  int32_t num_tokens, question;
  int32_t cached; /* how many of the tokens are in the cache */
} user;

static int32_t pending(const user *u) {
  int32_t n = u->num_tokens - u->cached;
  return n < CHUNK ? n : CHUNK;
}

static kvc_status read_system_prompt(kvc_cache *cache, kvc_seq *system, kvc_error *error) {
  int32_t tokens[MAX_TOKENS], predicted[MAX_TOKENS];
  int32_t n = encode(kSystem, tokens), count;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = system;
  batch.append_lengths = &count;
  batch.num_sequences = 1;
  kvc_status status = kvc_seq_add(cache, 1, system, error);
  for (int32_t begin = 0; begin < n && !status; begin += CHUNK) {
    count = n - begin < CHUNK ? n - begin : CHUNK;
    kvc_forward step;
    status = kvc_forward_begin(cache, &batch, NULL, &step, error);
    if (!status) status = run(cache, step, tokens + begin, count, predicted, error);
    if (!status) status = kvc_forward_end(cache, step, error);
  }
  return status;
}

/* One step of all users. Gives the letter that comes next in each row, and the user who left, or -1. */
static kvc_status step_of(kvc_cache *cache, int32_t number, const user *users, int32_t num_users, int32_t *next,
                          int32_t *gone, kvc_error *error) {
  kvc_seq sequences[USERS];
  int32_t counts[USERS], tokens[MAX_TOKENS], predicted[MAX_TOKENS], n = 0;
  for (int32_t i = 0; i < num_users; i++) {
    sequences[i] = users[i].sequence;
    counts[i] = pending(&users[i]);
    memcpy(tokens + n, users[i].tokens + users[i].cached, sizeof(int32_t) * (size_t)counts[i]);
    n += counts[i];
  }
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = sequences;
  batch.append_lengths = counts;
  batch.num_sequences = num_users;
  kvc_forward step;
  kvc_status status = kvc_forward_begin(cache, &batch, NULL, &step, error);
  if (status) return status;
  *gone = -1;
  for (int32_t i = 0; i < num_users && !status; i++)
    if (number == LEAVES_IN_STEP && !strcmp(users[i].name, kLeaves)) {
      *gone = i;
      status = kvc_seq_remove(cache, 1, &users[i].sequence, error); /* its pages become free when the step ends */
    }
  if (!status) status = run(cache, step, tokens, n, predicted, error);
  if (!status) status = kvc_forward_end(cache, step, error);
  if (status) return status;

  printf("step %d:", number);
  for (int32_t i = 0, end = 0; i < num_users; i++) {
    printf("%s %s %d", i ? "," : "", users[i].name, counts[i]);
    end += counts[i]; /* the rows of a batch come one after another */
    next[i] = predicted[end - 1];
  }
  printf("\n");
  return KVC_OK;
}

/* Takes what a step predicted for a user. Says whether the user stays. */
static bool take(kvc_cache *cache, user *u, int32_t next, bool gone, kvc_status *status, kvc_error *error) {
  char text[ANSWER + 1];
  if (gone) {
    printf("%s left after %s\n", u->name, decode(u->tokens + u->question, u->num_tokens - u->question, text));
    return false;
  }
  u->cached += pending(u);
  if (u->cached == u->num_tokens) u->tokens[u->num_tokens++] = next; /* the whole prompt is read */
  if (u->num_tokens < u->question + ANSWER) return true;
  printf("%s: %s\n", u->name, decode(u->tokens + u->question, ANSWER, text));
  *status = kvc_seq_remove(cache, 1, &u->sequence, error);
  return false;
}

static kvc_status serve(kvc_cache *cache, kvc_error *error) {
  user users[USERS];
  kvc_seq system, parents[USERS], sequences[USERS];
  kvc_status status = read_system_prompt(cache, &system, error);
  for (int32_t i = 0; i < USERS; i++) parents[i] = system;
  if (!status) status = kvc_seq_fork(cache, USERS, parents, NULL, sequences, NULL, error);
  if (!status) status = kvc_seq_remove(cache, 1, &system, error);
  for (int32_t i = 0; i < USERS && !status; i++) {
    users[i].name = kNames[i];
    users[i].sequence = sequences[i];
    users[i].question = users[i].num_tokens = encode(kQuestions[i], users[i].tokens);
    users[i].cached = 0;
  }

  int32_t num_users = USERS;
  for (int32_t number = 1; num_users > 0 && !status; number++) {
    int32_t next[USERS], gone, staying = 0;
    status = step_of(cache, number, users, num_users, next, &gone, error);
    for (int32_t i = 0; i < num_users && !status; i++)
      if (take(cache, &users[i], next[i], i == gone, &status, error)) users[staying++] = users[i];
    num_users = staying;
  }

  kvc_stats stats;
  kvc_stats_init(&stats);
  if (!status) status = kvc_cache_stats(cache, -1, &stats, error);
  if (!status) printf("%lld pages in use\n", (long long)stats.pages_used);
  return status;
}

int main(void) {
  kvc_cache_config config;
  model_config(&config);
  config.capacity_tokens = 1024;
  config.rollback_tokens = 8;
  config.flags = KVC_CACHE_DETERMINISTIC;
  return with_cache(&config, serve);
}
