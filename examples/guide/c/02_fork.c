/* A system prompt that is computed once, for three users.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "model.h"

enum { USERS = 3, ANSWER = 8 /* tokens of an answer */ };
static const char *const kSystem = "You are a terse assistant. Answer in one short word. ";
static const char *const kNames[USERS] = {"Ada", "Bob", "Cy"};
static const char *const kQuestions[USERS] = {"What is a page?", "What does a fork share, and what does it copy?",
                                              "Why?"};

/* Appends n tokens to a sequence, and gives the token that comes next. */
static kvc_status forward(kvc_cache *cache, kvc_seq sequence, const int32_t *tokens, int32_t n, int32_t *next,
                          kvc_error *error) {
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &sequence;
  batch.append_lengths = &n;
  batch.num_sequences = 1;
  kvc_forward step;
  int32_t predicted[MAX_TOKENS];
  kvc_status status = kvc_forward_begin(cache, &batch, NULL, &step, error);
  if (!status) status = run(cache, step, tokens, n, predicted, error);
  if (!status) status = kvc_forward_end(cache, step, error);
  if (!status) *next = predicted[n - 1];
  return status;
}

static kvc_status show(kvc_cache *cache, const char *what, kvc_error *error) {
  kvc_stats stats;
  kvc_stats_init(&stats);
  kvc_status status = kvc_cache_stats(cache, -1, &stats, error);
  if (!status)
    printf("%s: %lld pages in use, %lld of them shared, %lld tokens in %d sequences\n", what,
           (long long)stats.pages_used, (long long)stats.pages_shared, (long long)stats.tokens_logical,
           stats.num_sequences);
  return status;
}

static kvc_status reply(kvc_cache *cache, kvc_seq sequence, int32_t user, kvc_error *error) {
  int32_t question[MAX_TOKENS], answer[ANSWER];
  int32_t n = encode(kQuestions[user], question);
  kvc_status status = forward(cache, sequence, question, n, &answer[0], error);
  for (int32_t i = 1; i < ANSWER && !status; i++)
    status = forward(cache, sequence, &answer[i - 1], 1, &answer[i], error);
  char text[ANSWER + 1];
  if (!status) printf("%s: %s\n", kNames[user], decode(answer, ANSWER, text));
  return status;
}

static kvc_status fork_system_prompt(kvc_cache *cache, kvc_error *error) {
  int32_t tokens[MAX_TOKENS], next;
  int32_t n = encode(kSystem, tokens);
  kvc_seq system, parents[USERS], sequences[USERS];
  kvc_status status = kvc_seq_add(cache, 1, &system, error);
  if (!status) status = forward(cache, system, tokens, n, &next, error);
  if (!status) status = show(cache, "system prompt", error);

  for (int32_t i = 0; i < USERS; i++) parents[i] = system;
  /* Whole pages are shared, and the last one is copied. The users keep what they share when the parent goes. */
  if (!status) status = kvc_seq_fork(cache, USERS, parents, NULL, sequences, NULL, error);
  if (!status) status = kvc_seq_remove(cache, 1, &system, error);
  if (!status) status = show(cache, "three forks", error);

  for (int32_t i = 0; i < USERS && !status; i++) status = reply(cache, sequences[i], i, error);
  if (!status) status = show(cache, "three answers", error);
  if (!status) status = kvc_seq_remove(cache, USERS, sequences, error);
  if (!status) status = show(cache, "the end", error);
  return status;
}

int main(void) {
  kvc_cache_config config;
  model_config(&config);
  config.capacity_tokens = 1024;
  config.rollback_tokens = 8;
  config.flags = KVC_CACHE_DETERMINISTIC;
  return with_cache(&config, fork_system_prompt);
}
