// select() scores the keys of as many queries as the scratch has room for, and then chooses the entries with the
// highest scores. select() repeats this for the remaining queries. Scoring and choosing run as work items. The result
// does not depend on how the work is cut into items.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/select.h"

#include <algorithm>

#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"

namespace kvc::kernels {
namespace {

constexpr int32_t kItemRows = 512;      // most rows (pairs of query and q head) of an item with several queries
constexpr int32_t kMostQueries = 128;   // largest number of queries of an item for scoring
constexpr int64_t kItemsPerWorker = 4;  // items for scoring that are wanted for each worker
// kTinyOperations multiply-adds take one thread about a microsecond. kSmallOperations take about as long as the wake-up
// of another thread.
constexpr int64_t kTinyOperations = 32 * 1024;
constexpr int64_t kSmallOperations = 512 * 1024;

struct Job {
  kvc_backend_select select;
  kvc_backend_attend attend;  // an attend call with the same rows, for functions that need such a call
  ScoreItem score;
  Scratch* scratch;  // [workers]
  int32_t lists;     // number of lists of a query
  int64_t stride;    // number of scores for which each list has memory
  // The range of queries and lists that the current items compute.
  int32_t token_begin, token_end;
  int32_t list_begin, list_end;
  int32_t item_queries;  // largest number of queries of an item for scoring
  int32_t parts;         // number of ranges into which the keys are cut
  int32_t part_keys;     // keys of a part, a multiple of kScoreAlign
  int32_t skipped;       // atomic: 1 = an item was skipped

  const kvc_backend_rows& rows() const { return attend.plan->arrays.rows; }
  bool has_candidates() const { return attend.lists.block_tokens > 0; }
  float* scores(int32_t token, int32_t list) const {
    const int64_t index = int64_t{token - token_begin} * (list_end - list_begin) + (list - list_begin);
    return static_cast<float*>(select.scratch) + index * stride;
  }
  // Returns the memory for the entries of a list's scores. It is in the second half of the scratch.
  int32_t* units(int32_t token, int32_t list) const {
    const int64_t all = int64_t{token_end - token_begin} * (list_end - list_begin) * stride;
    return reinterpret_cast<int32_t*>(scores(token, list)) + all;
  }
};

int32_t row_of_token(const kvc_backend_rows& rows, int32_t token) {
  return static_cast<int32_t>(std::upper_bound(rows.token_begin, rows.token_begin + rows.num_rows, token) -
                              rows.token_begin) -
         1;
}

// Returns an item with the queries [begin, end) of a row, over all keys.
kvc_backend_item item_of(const Job& job, int32_t row, int32_t begin, int32_t end) {
  kvc_backend_item item = {};
  item.row = row;
  item.q_begin = begin;
  item.q_end = end;
  item.head_end = job.select.layer->num_kv_heads;
  item.key_end = INT32_MAX;
  item.tile = -1;
  item.partial_offset = -1;
  return item;
}

QueryMask mask_of(const Job& job, int32_t row, int32_t query) {
  const kvc_backend_item item = item_of(job, row, query, query + 1);
  return query_mask(&job.attend, &item, row, query);
}

// Scores the keys of part number `part` for the queries [begin, end) of a row.
void score_queries(const Job& job, int32_t row, int32_t begin, int32_t end, int32_t part, Scratch* scratch) {
  const int32_t first_token = job.rows().token_begin[row];
  kvc_backend_item item = item_of(job, row, begin, end);
  ScoreCall call = {&job.select,
                    job.scores(first_token + begin, job.list_begin),
                    job.stride * (job.list_end - job.list_begin),
                    job.stride,
                    job.list_begin,
                    job.list_end};
  if (!job.has_candidates()) {
    int32_t first = INT32_MAX;
    for (int32_t query = begin; query < end; ++query) first = std::min(first, first_scored(mask_of(job, row, query)));
    item.key_begin = first + part * job.part_keys;
    item.key_end = item.key_begin + job.part_keys;
    job.score(&job.attend, &item, nullptr, &call, scratch);
    return;
  }
  item.key_begin = part * job.part_keys;
  item.key_end = item.key_begin + job.part_keys;
  const int32_t lists_each = job.attend.lists.head_stride == 0 ? job.list_end - job.list_begin : 1;
  for (int32_t query = 0; query < end - begin; ++query) {
    for (int32_t list = job.list_begin; list < job.list_end; list += lists_each) {
      ListedQuery listed = {query, list, list + 1, 0, nullptr};
      find_listed_keys(job.attend, item_of(job, row, begin, end), &scratch->list, &listed);
      listed.head_begin = 0;
      listed.head_end = job.select.layer->num_kv_heads;
      ScoreCall of_lists = call;
      of_lists.list_begin = list;
      of_lists.list_end = list + lists_each;
      of_lists.scores += (list - job.list_begin) * job.stride;
      job.score(&job.attend, &item, &listed, &of_lists, scratch);
    }
  }
}

// Returns false if the call was cancelled. Then the function also records that an item was skipped.
bool goes_on(Job& job) {
  const int32_t* const cancel = job.select.cancel_host;
  if (cancel == nullptr || __atomic_load_n(cancel, __ATOMIC_RELAXED) == 0) return true;
  __atomic_store_n(&job.skipped, 1, __ATOMIC_RELAXED);
  return false;
}

void run_score(void* arg, int64_t index, int32_t worker) {
  Job& job = *static_cast<Job*>(arg);
  if (!goes_on(job)) return;
  const DefaultFloatEnvironment environment;
  const auto part = static_cast<int32_t>(index % job.parts);
  int32_t token = job.token_begin + static_cast<int32_t>(index / job.parts) * job.item_queries;
  const int32_t end = std::min(job.token_end, token + job.item_queries);
  while (token < end) {
    const int32_t row = row_of_token(job.rows(), token), first = job.rows().token_begin[row];
    const int32_t row_end = std::min(end, job.rows().token_begin[row + 1]);
    if (job.rows().kv_lengths[row] >= 0) {
      score_queries(job, row, token - first, row_end - first, part, job.scratch + worker);
    }
    token = row_end;
  }
}

// Returns a number for the bits of a score. The numbers have the same order as the scores. The number of NaN is the
// lowest, and both zeros have the same number.
uint32_t order_of(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0;
  if (magnitude == 0) bits = 0;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
constexpr uint32_t kForced = UINT32_MAX;  // greater than the number of every score

// The result of find_highest. All numbers greater than `least` are chosen. Of the numbers equal to `least`, the first
// `ties` are chosen.
struct Highest {
  uint32_t least;
  int32_t ties;
};

// Finds the k-th largest of n numbers, 0 < k < n. The function determines the digits of that number one by one, from
// the highest digit on.
Highest find_highest(const uint32_t* orders, int32_t n, int32_t k) {
  constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
  uint32_t prefix = 0, known = 0;
  for (int shift = 32 - kDigitBits;; shift = shift > kDigitBits ? shift - kDigitBits : 0) {
    int32_t counts[kDigits] = {};
    for (int32_t i = 0; i < n; ++i) {
      counts[(orders[i] >> shift) & (kDigits - 1)] += (orders[i] & known) == prefix ? 1 : 0;
    }
    // In the last round, the digit overlaps with the previous digit. Only digits that agree with `prefix` have a count.
    uint32_t digit = kDigits - 1;
    while (counts[digit] < k) k -= counts[digit--];
    prefix |= digit << shift;
    known |= static_cast<uint32_t>(kDigits - 1) << shift;
    if (shift == 0) return {prefix, k};
  }
}

// The entries that a query sees, in ascending order. orders: the number of each entry's score (order_of).
struct Entries {
  uint32_t* orders;
  int32_t* units;  // key / block_tokens of each entry; null: first, first + 1, ...
  int32_t first;
  int32_t count;

  int32_t unit(int32_t i) const { return units == nullptr ? first + i : units[i]; }
};

// Replaces the scores of keys by the numbers (order_of) of the entries that the query sees. The number of an entry is
// the highest number of its keys. first: the key to which scores[0] belongs.
Entries entries_of(const Job& job, const QueryMask& mask, const KeyTree& tree, const int32_t* keys, int32_t first,
                   uint32_t* scores, int32_t* units) {
  const int32_t block = job.select.block_tokens;
  Entries entries = {scores, units, mask.keys.begin, 0};
  const int32_t skipped = mask.keys.begin - first;
  if (keys == nullptr && mask.keys.end <= tree.begin && block == 1) {
    entries.units = nullptr;
    entries.count = mask.keys.end - mask.keys.begin;
    for (int32_t i = 0; i < entries.count; ++i) entries.orders[i] = order_of(scores[skipped + i]);
    return entries;
  }
  int32_t unit = -1, unit_end = 0;
  for (int32_t number = mask.keys.begin; number < mask.keys.end; ++number) {
    const int32_t key = keys == nullptr ? number : keys[number];
    if (keys == nullptr && key >= tree.begin && !sees_node(&tree, &mask, key)) continue;
    const uint32_t order = order_of(scores[number - first]);
    if (key < unit_end && unit >= 0) {
      uint32_t& largest = entries.orders[entries.count - 1];
      largest = std::max(largest, order);
      continue;
    }
    unit = key / block;
    unit_end = unit < INT32_MAX / block ? (unit + 1) * block : INT32_MAX;
    entries.orders[entries.count] = order;
    units[entries.count++] = unit;
  }
  return entries;
}

// Marks the entries that are always chosen. own: the entry that contains the query's own key.
void force(const Job& job, int32_t own, const Entries& entries) {
  const kvc_backend_select& select = job.select;
  if (select.first_blocks == 0 && select.last_blocks == 0) return;
  for (int32_t i = 0; i < entries.count; ++i) {
    const int32_t unit = entries.unit(i);
    const bool last = unit <= own && unit > own - select.last_blocks;
    if (unit < select.first_blocks || last) entries.orders[i] = kForced;
  }
}

// Writes the k highest entries in ascending order, and fills the rest of out[0, k) with -1.
void write_highest(const Entries& entries, int32_t k, int32_t* out) {
  Highest highest = {0, 0};
  int32_t written = 0;
  if (entries.count > k) highest = find_highest(entries.orders, entries.count, k);
  const bool all = entries.count <= k;
  for (int32_t i = 0; i < entries.count && written < k; ++i) {
    const uint32_t order = entries.orders[i];
    if (!all && order < highest.least) continue;
    if (!all && order == highest.least && highest.ties-- <= 0) continue;
    out[written++] = entries.unit(i);
  }
  for (; written < k; ++written) out[written] = -1;
}

void run_choice(void* arg, int64_t index, int32_t worker) {
  Job& job = *static_cast<Job*>(arg);
  if (!goes_on(job)) return;
  const DefaultFloatEnvironment environment;
  const kvc_backend_select& select = job.select;
  const int32_t lists = job.list_end - job.list_begin;
  const auto token = job.token_begin + static_cast<int32_t>(index / lists);
  const auto list = job.list_begin + static_cast<int32_t>(index % lists);
  const int32_t row = row_of_token(job.rows(), token), query = token - job.rows().token_begin[row];
  const int32_t length = job.rows().kv_lengths[row];
  if (length < 0) return;
  QueryMask mask = mask_of(job, row, query);
  int32_t first = first_scored(mask);
  const int32_t* keys = nullptr;
  if (job.has_candidates()) {
    ListedQuery listed = {0, list, list + 1, 0, nullptr};
    find_listed_keys(job.attend, item_of(job, row, query, query + 1), &job.scratch[worker].list, &listed);
    mask.keys = {0, listed.num_keys};
    first = 0;
    keys = listed.keys;
  }
  const KeyTree tree = tree_of_row(&job.rows(), row);
  const Entries entries = entries_of(job, mask, tree, keys, first, reinterpret_cast<uint32_t*>(job.scores(token, list)),
                                     job.units(token, list));
  const bool is_node = tree.begin < length;
  const int32_t first_new = length - (job.rows().token_begin[row + 1] - job.rows().token_begin[row]);
  const int32_t own = is_node ? first_new + query : job.rows().positions[token];
  force(job, own / select.block_tokens, entries);
  write_highest(entries, select.num_entries, select.entries + token * select.token_stride + list * select.head_stride);
}

// Returns the largest number of scores of a query. A query has scores for the keys from first_scored to the last key
// that the query sees.
int64_t most_scores(const Job& job) {
  int64_t most = 0;
  for (int32_t row = 0; row < job.rows().num_rows; ++row) {
    if (job.rows().kv_lengths[row] < 0) continue;
    const int32_t queries = job.rows().token_begin[row + 1] - job.rows().token_begin[row];
    for (int32_t query = 0; query < queries; ++query) {
      const QueryMask mask = mask_of(job, row, query);
      most = std::max<int64_t>(most, mask.keys.end - first_scored(mask));
    }
  }
  return most;
}

// Cuts the current queries and their keys into items.
void cut_items(Job* job, int64_t most, int64_t workers) {
  const int32_t queries = job->token_end - job->token_begin;
  const int64_t tiles = (queries + job->item_queries - 1) / job->item_queries;
  const int64_t keys = most + (job->select.layer->window_tokens > 0 || job->select.layer->chunk_tokens > 0
                                   ? int64_t{job->item_queries} + kScoreAlign
                                   : 0);
  const int64_t blocks = (keys + kScoreAlign - 1) / kScoreAlign;
  const int64_t wanted = (kItemsPerWorker * workers + tiles - 1) / tiles;
  const int64_t part = std::max<int64_t>((blocks + wanted - 1) / wanted, 1);
  job->part_keys = static_cast<int32_t>(part) * kScoreAlign;
  job->parts = static_cast<int32_t>(std::max<int64_t>((blocks + part - 1) / part, 1));
}

}  // namespace

kvc_status select(kvc_backend_device* device, const kvc_backend_select* args, void*, kvc_error* error) {
  Job job = {};
  const kvc_backend_layer& layer = *args->layer;
  job.select = *args;
  job.attend.layer = args->layer;
  job.attend.plan = args->plan;
  job.attend.q = args->q;
  job.attend.cos_sin = args->cos_sin;
  job.attend.lists = args->candidates;
  job.score = score_kernel(*device->implementation, type_of(args->q.dtype), stored_type(layer));
  job.scratch = device->scratch;
  job.lists = args->rule == KVC_SELECT_EACH_HEAD ? layer.num_q_heads : 1;
  const int64_t most = most_scores(job);
  job.stride = (most + 2 * kMaxLanes) / kMaxLanes * kMaxLanes;
  const int64_t fitting = args->scratch_bytes / (job.stride * int64_t{2 * sizeof(float)});  // lists that fit; 1 or more
  const auto lists_at_once = static_cast<int32_t>(std::min<int64_t>(job.lists, fitting));
  const int64_t queries_at_once = lists_at_once < job.lists ? 1 : fitting / job.lists;
  job.item_queries = std::clamp(kItemRows / layer.num_q_heads, 1, kMostQueries);
  const int32_t tokens = job.rows().num_tokens;
  for (job.token_begin = 0; job.token_begin < tokens; job.token_begin = job.token_end) {
    job.token_end = static_cast<int32_t>(std::min<int64_t>(tokens, job.token_begin + queries_at_once));
    cut_items(&job, most, device->host->num_workers);
    const int64_t queries = job.token_end - job.token_begin;
    const int64_t operations = queries * most * layer.num_q_heads * layer.head_dim;
    const int32_t effort = operations <= kTinyOperations    ? KVC_EFFORT_TINY
                           : operations <= kSmallOperations ? KVC_EFFORT_SMALL
                                                            : KVC_EFFORT_LARGE;
    for (job.list_begin = 0; job.list_begin < job.lists; job.list_begin = job.list_end) {
      job.list_end = std::min(job.lists, job.list_begin + lists_at_once);
      const int64_t items = (queries + job.item_queries - 1) / job.item_queries * job.parts;
      device->host->run(device->host->self, items, effort, run_score, &job);
      device->host->run(device->host->self, queries * (job.list_end - job.list_begin), effort, run_choice, &job);
    }
  }
  if (__atomic_load_n(&job.skipped, __ATOMIC_RELAXED) == 0) return KVC_OK;
  return fail(error, KVC_ERROR_CANCELLED, "select was cancelled");
}

}  // namespace kvc::kernels
