// The prefix index. The id of a token is its tag, so an attached sequence must hold the values of the query's tokens.
#include <kvcache_tier.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "objects.h"

namespace fuzz {
namespace {

// The tags of a sequence, cut or continued. They live until the call has returned.
kvc_prefix_query draw_query(World &w, const Sequence *s, bool exact) {
  std::vector<int32_t> tags;
  for (size_t i = 0; s != nullptr && i < s->tokens.size(); i++) tags.push_back(s->tokens[i].tag);
  if (!exact && w.in.one_in(2)) tags.resize(static_cast<size_t>(w.in.between(0, std::ssize(tags))));
  if (!exact && w.in.one_in(2)) tags.push_back(static_cast<int32_t>(w.in.between(1, 8)));
  kvc_prefix_query query;
  kvc_prefix_query_init(&query);
  query.num_tokens = w.in.fewer(std::ssize(tags));
  query.tokens = w.in.pointer(w.array(tags));
  query.salt = static_cast<uint64_t>(w.in.below(3));
  query.salt_begin = w.in.one_in(2) ? 0 : w.in.below(9);
  if (w.in.one_in(4)) w.draw_context(&query);
  if (w.in.one_in(2)) query.flags = KVC_PREFIX_ALLOW_ALL;
  w.in.size_of(query);
  w.in.numbers(query.flags, query.salt_begin);
  return query;
}

void attach(World &w, Cache &c, const kvc_prefix_query &query) {
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  w.in.size_of(hit);
  kvc_seq id = 0;
  const bool told = !w.in.one_in(4);
  if (told && CALL(kvc_prefix_match, w.handle(c), w.in.pointer(&query), w.in.pointer(&hit), w.error()) != KVC_OK)
    return;
  const int64_t found = hit.tokens;
  if (CALL(kvc_prefix_attach, w.handle(c), w.in.pointer(&query), w.stream(), told ? &hit : nullptr, w.in.pointer(&id),
           w.error()) != KVC_OK) {
    return;
  }
  int64_t length = 0;
  if (kvc_seq_lengths(c.cache, 1, &id, &length, nullptr) != KVC_OK || length > query.num_tokens ||
      (told && (length != found || length != hit.tokens))) {
    die("attach found %lld tokens", static_cast<long long>(length));
  }
  Sequence s{id, {}, {}, {}};
  for (int64_t i = 0; i < length; i++) s.tokens.push_back({static_cast<uint8_t>(query.tokens[i]), ~0u});
  c.sequences.push_back(s);
}

void publish(World &w, Cache &c, kvc_seq id, const kvc_prefix_query &query) {
  kvc_prefix_options options;
  kvc_prefix_options_init(&options);
  options.session = static_cast<uint64_t>(w.in.below(3));
  options.priority = static_cast<int32_t>(w.in.below(101));
  options.time_to_live = w.in.below(9);
  w.in.size_of(options);
  w.in.numbers(options.priority, options.time_to_live);
  kvc_prefix_published published;
  kvc_prefix_published_init(&published);
  w.in.size_of(published);
  CALL(kvc_prefix_publish, w.handle(c), id, w.in.pointer(&query), w.in.one_in(3) ? nullptr : &options,
       w.in.one_in(3) ? nullptr : &published, w.error());
}

// Reads events, as a router does. This function and those of tiers read no bytes of the input, so inputs that existed
// before them make the same calls as before.
void read_events(World &w, Cache &c) {
  std::vector<kvc_event> events(20);
  kvc_events_args args;
  kvc_events_args_init(&args);
  args.events = events.data();
  args.capacity = std::ssize(events);
  kvc_events_range range;
  kvc_events_range_init(&range);
  CALL(kvc_events_read, c.cache, &args, &range, w.plain_error());
  CALL(kvc_events_snapshot, c.cache, &args, &range, w.plain_error());
  args.capacity = -1;
  CALL(kvc_events_read, c.cache, &args, &range, w.plain_error());
  CALL(kvc_events_snapshot, c.cache, &args, &range, w.plain_error());
}

// A tier within the process, which does all work at once.
struct Store {
  std::map<std::string, std::string> objects;
  std::mutex mutex;
  std::vector<kvc_tier_completion> done;

  static Store &of(void *self) { return *static_cast<Store *>(self); }
  static std::string name(const kvc_tier_key &key) { return {reinterpret_cast<const char *>(key.bytes), 32}; }
  enum class Work { kStore, kLoad, kRemove };
  int32_t work(uint64_t job, int64_t n, const kvc_tier_item *items, Work what) {
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < n; i++) {
      if (what == Work::kRemove) {
        const bool had = objects.erase(name(items[i].key)) > 0;
        done.push_back({job, i, had ? KVC_TIER_OK : KVC_TIER_MISS, 0});
        continue;
      }
      const kvc_tier_buffer &buffer = items[i].buffers[0];
      std::string &object = objects[name(items[i].key)];
      if (what == Work::kStore)
        object.assign(static_cast<const char *>(buffer.data), static_cast<size_t>(buffer.bytes));
      if (what == Work::kLoad) std::memcpy(buffer.data, object.data(), object.size());
      done.push_back({job, i, KVC_TIER_OK, 0});
    }
    return KVC_TIER_OK;
  }
};

kvc_tier table_of(Store *store) {
  kvc_tier t;
  kvc_tier_init(&t);
  t.name = "fuzz";
  t.self = store;
  t.max_object_bytes = 1 << 20;
  t.max_job_items = 1;
  t.lookup = [](void *self, int64_t n, const kvc_tier_key *keys, kvc_tier_found *found) {
    const std::lock_guard lock(Store::of(self).mutex);
    for (int64_t i = 0; i < n; i++) {
      const auto it = Store::of(self).objects.find(Store::name(keys[i]));
      const bool hit = it != Store::of(self).objects.end();
      found[i] = {hit ? KVC_TIER_HIT : KVC_TIER_MISS, 0, hit ? static_cast<int64_t>(it->second.size()) : 0};
    }
  };
  t.store = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
    return Store::of(self).work(job, n, items, Store::Work::kStore);
  };
  t.load = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
    return Store::of(self).work(job, n, items, Store::Work::kLoad);
  };
  t.remove = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
    return Store::of(self).work(job, n, items, Store::Work::kRemove);
  };
  t.poll = [](void *self, kvc_tier_completion *done, int64_t capacity) {
    const std::lock_guard lock(Store::of(self).mutex);
    auto &waiting = Store::of(self).done;
    const auto count = std::min<int64_t>(capacity, std::ssize(waiting));
    std::copy_n(waiting.begin(), count, done);
    waiting.erase(waiting.begin(), waiting.begin() + count);
    return count;
  };
  t.descriptor = [](void *) { return int32_t{-1}; };
  t.cancel = [](void *, uint64_t) {};
  t.stats = [](void *, kvc_tier_stats *) {};
  t.close = [](void *self) { delete &Store::of(self); };
  return t;
}

// Suspends a sequence and resumes it. What it was suspended from has room for it.
void move_out_and_in(World &w, kvc_cache *cache, kvc_seq seq) {
  kvc_job_info info;
  kvc_job_info_init(&info);
  kvc_job job = 0;
  const auto wait = [&] {
    info.done = 0;
    while (kvc_job_poll(cache, job, &info, nullptr) == KVC_OK && info.done == 0) sched_yield();
    return info.done != 0;
  };
  CALL(kvc_seq_resume, cache, seq, &job, w.plain_error());
  CALL(kvc_seq_suspend, cache, kvc_seq{0}, &job, w.plain_error());
  if (CALL(kvc_seq_suspend, cache, seq, &job, w.plain_error()) != KVC_OK || !wait()) return;
  if (CALL(kvc_seq_resume, cache, seq, &job, w.plain_error()) != KVC_OK || !wait()) std::abort();
}

// Attaches a sequence to a load that runs, and uses it. Without KVC_PENDING_WAIT, calls may return PENDING. Takes
// nothing from the input, because that would change what the inputs of the corpus do after it.
void use_pending(World &w, kvc_cache *cache, kvc_job job) {
  kvc_pending_options options;
  kvc_pending_options_init(&options);
  options.flags = job % 2 == 0 ? KVC_PENDING_WAIT : 0;
  options.timeout_ns = static_cast<int64_t>(job % 3 * 1000);
  kvc_seq seq = 0;
  int64_t tokens = 0;
  CALL(kvc_prefix_attach_pending, cache, kvc_job{0}, &options, &seq, &tokens, w.plain_error());
  if (CALL(kvc_prefix_attach_pending, cache, job, &options, &seq, &tokens, w.plain_error()) != KVC_OK) return;
  kvc_pending_info info;
  kvc_pending_info_init(&info);
  CALL(kvc_seq_pending, cache, seq, &info, w.plain_error());
  CALL(kvc_seq_pending, cache, kvc_seq{0}, &info, w.plain_error());
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  kvc_forward forward = 0;
  if (kvc_forward_begin(cache, &batch, nullptr, &forward, nullptr) == KVC_OK) {
    kvc_tables tables;
    kvc_tables_init(&tables);
    CALL(kvc_forward_tables, cache, forward, 0, &tables, w.plain_error());
    CALL(kvc_forward_abort, cache, forward, w.plain_error());
  }
  CALL(kvc_seq_remove, cache, 1, &seq, w.plain_error());
}

// Stores the tokens of each sequence, removes them from the pools, and loads them again.
void use_tier(World &w, Cache &c) {
  auto *store = new Store;
  const kvc_tier table = table_of(store);
  kvc_tier_config config;
  kvc_tier_config_init(&config);
  CALL(kvc_cache_add_tier, c.cache, &config, w.plain_error());
  config.tier = &table;
  if (CALL(kvc_cache_add_tier, c.cache, &config, w.plain_error()) != KVC_OK) delete store;
  kvc_tier_traffic traffic;
  kvc_tier_traffic_init(&traffic);
  CALL(kvc_cache_tier_traffic, c.cache, &traffic, w.plain_error());
  CALL(kvc_cache_tier_traffic, static_cast<kvc_cache *>(nullptr), &traffic, w.plain_error());
  int32_t descriptor = -1;
  CALL(kvc_cache_job_descriptor, c.cache, &descriptor, w.plain_error());
  CALL(kvc_cache_job_descriptor, c.cache, static_cast<int32_t *>(nullptr), w.plain_error());
  kvc_job_info info;
  kvc_job_info_init(&info);
  CALL(kvc_job_poll, c.cache, 0, &info, w.plain_error());
  CALL(kvc_job_cancel, c.cache, 0, w.plain_error());
  kvc_job job = 0;
  CALL(kvc_prefix_load, c.cache, static_cast<const kvc_prefix_query *>(nullptr), nullptr, nullptr, &job,
       w.plain_error());
  for (const Sequence &s : c.sequences) {
    std::vector<int32_t> tags;
    for (const Token &token : s.tokens) tags.push_back(token.tag);
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    query.tokens = tags.data();
    query.num_tokens = std::ssize(tags);
    (void)kvc_prefix_publish(c.cache, s.id, &query, nullptr, nullptr, nullptr);
    while (kvc_cache_tier_traffic(c.cache, &traffic, nullptr) == KVC_OK && traffic.pages_waiting > 0) sched_yield();
    (void)kvc_prefix_drop(c.cache, &query, nullptr, nullptr);
    if (CALL(kvc_prefix_load, c.cache, &query, nullptr, nullptr, &job, w.plain_error()) != KVC_OK || job == 0) continue;
    use_pending(w, c.cache, job);
    CALL(kvc_job_cancel, c.cache, job, w.plain_error());
    info.done = 0;
    while (info.done == 0 && CALL(kvc_job_poll, c.cache, job, &info, w.plain_error()) == KVC_OK) sched_yield();
  }
  for (const Sequence &s : c.sequences) move_out_and_in(w, c.cache, s.id);
}

// A job that loads pages. It has a cache of its own, because the caches of inputs seldom have a prefix that every group
// can load.
void run_job(World &w) {
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = 4;
  const uint8_t model[32] = {2};
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.page_size = 4;
  config.max_sequences = 3;
  config.capacity_tokens = 16;
  config.flags = KVC_CACHE_PREFIX_INDEX;
  config.fingerprint = model;
  Cache c;
  if (kvc_cache_create(w.context, &config, &c.cache, nullptr) != KVC_OK) return;
  float rows[8 * 4] = {};
  int64_t shape[3] = {8, 1, 4};
  const DLTensor kv = {rows, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = append.v = &kv;
  const int32_t length = 8;
  kvc_seq seq = 0;
  kvc_forward forward = 0;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  if (kvc_seq_add(c.cache, 1, &seq, nullptr) == KVC_OK &&
      kvc_forward_begin(c.cache, &batch, nullptr, &forward, nullptr) == KVC_OK &&
      kvc_forward_append(c.cache, forward, 0, &append, nullptr) == KVC_OK &&
      kvc_forward_end(c.cache, forward, nullptr) == KVC_OK) {
    Sequence s{seq, {}, {}, {}};
    for (uint8_t tag = 1; tag <= 8; tag++) s.tokens.push_back({tag, ~0u});
    c.sequences.push_back(s);
    use_tier(w, c);
  }
  kvc_cache_destroy(c.cache);
}

}  // namespace

void call_prefix(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  const kvc_seq id = w.some_sequence(c);
  const Sequence *s = c.find(id);
  const int64_t choice = w.in.below(12);
  const kvc_prefix_query query = draw_query(w, s, choice < 4);
  const auto session = static_cast<uint64_t>(w.in.below(3));
  const int32_t priority = w.in.number(static_cast<int32_t>(w.in.below(101)));
  const int64_t time = w.in.number(w.in.below(9));
  int64_t pages = 0;
  uint64_t pin = 0;
  switch (choice) {
    case 0:
    case 1:
    case 2:
    case 3:
      return publish(w, c, id, query);
    case 4:
      CALL(kvc_prefix_drop, w.handle(c), w.in.pointer(&query), w.in.one_in(2) ? nullptr : &pages, w.error());
      break;
    case 5:
      CALL(kvc_prefix_drop_session, w.handle(c), session, w.in.one_in(2) ? nullptr : &pages, w.error());
      break;
    case 6:
      CALL(kvc_prefix_set_priority, w.handle(c), w.in.pointer(&query), priority, time, w.error());
      CALL(kvc_prefix_set_session_priority, w.handle(c), session, priority, time, w.error());
      break;
    case 7:
      if (CALL(kvc_prefix_pin, w.handle(c), w.in.pointer(&query), nullptr, w.in.pointer(&pin), w.error()) == KVC_OK) {
        CALL(kvc_prefix_unpin, w.handle(c), pin + (w.in.one_in(2) ? 1 : 0), w.error());
      }
      break;
    case 8:
      CALL(kvc_cache_set_time, w.handle(c), time, w.error());
      read_events(w, c);
      use_tier(w, c);
      run_job(w);
      call_transfers(w);
      break;
    default:
      attach(w, c, query);
  }
}

}  // namespace fuzz
