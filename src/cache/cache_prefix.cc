// The prefix index: publish, match, attach, drop, pins, priorities and time.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {
namespace {

void write_hit(const PrefixIndex::Match& match, int64_t page_size, kvc_prefix_hit* hit) {
  hit->limited_by = match.limited_by;
  hit->tokens = match.tokens;
  hit->copied_tokens = match.tokens % page_size;
  hit->known_tokens = match.known;
  hit->load_tokens = match.tokens;
}

// Adds to a hit what attach would find after the load of a plan.
void write_load(const CacheTiers::Plan& plan, int64_t most, kvc_prefix_hit* hit) {
  if (plan.tokens <= hit->tokens) return;
  hit->load_tokens = std::max(hit->tokens, std::min(plan.tokens, most));
  hit->load_ns = plan.ns;
}

// The largest number of tokens that match and attach may find for a query.
int64_t most_tokens(const PrefixQuery& query) {
  const auto tokens = static_cast<int64_t>(query.key.tokens.size());
  return query.allow_all ? tokens : std::max<int64_t>(0, tokens - 1);
}

}  // namespace

Status Cache::check_prefix_index() const {
  if (prefixes_) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "the cache was created without KVC_CACHE_PREFIX_INDEX");
}

Status Cache::check_session(uint64_t session) const {
  KVC_TRY(check_prefix_index());
  return session != 0 ? Status() : Status::error(KVC_ERROR_INVALID_ARGUMENT, "session is 0");
}

Status Cache::check_terms(int32_t priority, int64_t time_to_live, int64_t* expires) const {
  KVC_TRY(check_prefix_index());
  if (priority < 0 || priority > PrefixIndex::kMaxPriority) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "priority %d is outside 0..%d", priority, PrefixIndex::kMaxPriority);
  }
  if (time_to_live < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "time_to_live %" PRId64 " is negative", time_to_live);
  }
  *expires = time_to_live == 0 ? 0 : prefixes_->now() + std::min(time_to_live, INT64_MAX - prefixes_->now());
  return Status();
}

Status Cache::match_prefix(const PrefixQuery& query, kvc_prefix_hit* hit) {
  CacheTiers* const tiers = tiers_;
  KeyedQuery keyed;
  if (tiers != nullptr) keyed = tiers->keyed(query);
  MutexLock lock(mutex_);
  KVC_TRY(check_prefix_index());
  const PrefixIndex::Match match = prefixes_->match(query.key, most_tokens(query));
  write_hit(match, geometry_.page_size, hit);
  if (tiers != nullptr) write_load(tiers->plan(keyed, match), most_tokens(query), hit);
  return Status();
}

Status Cache::load_prefix(const PrefixQuery& query, const kvc_prefix_load_options& options, kvc_prefix_hit* hit,
                          kvc_job* job) {
  CacheTiers* tiers = nullptr;
  KVC_TRY(find_tiers(&tiers));
  if (options.token_ns < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "token_ns %" PRId64 " is negative", options.token_ns);
  }
  CacheTiers::Request request;
  request.query = tiers->keyed(query);
  request.most_tokens = most_tokens(query);
  request.token_ns = options.token_ns;
  MutexLock lock(mutex_);
  KVC_TRY(check_terms(options.priority, options.time_to_live, &request.terms.expires));
  request.terms.session = options.session;
  request.terms.priority = options.priority;
  const PrefixIndex::Match match = prefixes_->match(query.key, request.most_tokens);
  write_hit(match, geometry_.page_size, hit);
  CacheTiers::Plan plan = tiers->plan(request.query, match);
  write_load(plan, request.most_tokens, hit);
  return tiers->start(std::move(request), match, std::move(plan), job);
}

Status Cache::attach_prefix(const PrefixQuery& query, void* stream, kvc_prefix_hit* hit, kvc_seq* out) {
  KVC_TRY(context_->check_stream(stream));
  MutexLock lock(mutex_);
  KVC_TRY(check_prefix_index());
  KVC_TRY(make_room_for_copies(num_groups()));
  copies_.clear();
  PrefixIndex::Match match;
  kvc_seq id = 0;
  KVC_TRY(prefixes_->attach(query.key, most_tokens(query), &match, &id, &copies_));
  if (Status copied = copy_slots(copies_, stream); !copied.ok()) {
    Status undone = store_.remove({&id, 1});
    return undone.ok() ? std::move(copied) : std::move(undone);
  }
  write_hit(match, geometry_.page_size, hit);
  *out = id;
  return Status();
}

Status Cache::publish_prefix(kvc_seq id, const PrefixQuery& query, const kvc_prefix_options& options,
                             kvc_prefix_published* out) {
  if ((options.flags & ~uint32_t{KVC_PREFIX_KEEP_PRIVATE}) != 0 || options.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x or reserved 0x%x has unknown bits", options.flags,
                         options.reserved);
  }
  CacheTiers* const tiers = (options.flags & KVC_PREFIX_KEEP_PRIVATE) == 0 ? tiers_.load() : nullptr;
  KeyedQuery keyed;
  if (tiers != nullptr) keyed = tiers->keyed(query);
  MutexLock lock(mutex_);
  PrefixIndex::Terms terms;
  KVC_TRY(check_terms(options.priority, options.time_to_live, &terms.expires));
  terms.session = options.session;
  terms.priority = options.priority;
  int32_t slot = -1;
  KVC_TRY(store_.resolve(id, 0, &slot));
  if (rope_sets_.of(slot) != KVC_ROPE_SET_SHORT) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "sequence %" PRIu64 " has the long set of longrope", id);
  }
  PrefixStore::Published published;
  const auto tokens = static_cast<int64_t>(query.key.tokens.size());
  const int64_t known = tiers != nullptr && prefixes_ ? prefixes_->match(query.key, tokens).known : 0;
  KVC_TRY(prefixes_->publish(id, query.key, terms, &published));
  if (tiers != nullptr) tiers->queue_published(keyed, published.known, known);
  out->known_tokens = published.known;
  out->pages_added = published.added;
  out->pages_freed = published.freed;
  return Status();
}

Status Cache::drop_prefix(const PrefixQuery& query, int64_t* pages) {
  MutexLock lock(mutex_);
  KVC_TRY(check_prefix_index());
  *pages = prefixes_->drop(query.key);
  return Status();
}

Status Cache::drop_session(uint64_t session, int64_t* pages) {
  MutexLock lock(mutex_);
  KVC_TRY(check_session(session));
  *pages = prefixes_->drop_session(session);
  return Status();
}

Status Cache::set_prefix_priority(const PrefixQuery& query, int32_t priority, int64_t time_to_live) {
  MutexLock lock(mutex_);
  int64_t expires = 0;
  KVC_TRY(check_terms(priority, time_to_live, &expires));
  prefixes_->set_terms(query.key, priority, expires);
  return Status();
}

Status Cache::set_session_priority(uint64_t session, int32_t priority, int64_t time_to_live) {
  MutexLock lock(mutex_);
  KVC_TRY(check_session(session));
  int64_t expires = 0;
  KVC_TRY(check_terms(priority, time_to_live, &expires));
  prefixes_->set_session_terms(session, priority, expires);
  return Status();
}

Status Cache::pin_prefix(const PrefixQuery& query, kvc_prefix_hit* hit, uint64_t* pin) {
  MutexLock lock(mutex_);
  KVC_TRY(check_prefix_index());
  write_hit(prefixes_->pin(query.key, pin), geometry_.page_size, hit);
  return Status();
}

Status Cache::unpin_prefix(uint64_t pin) {
  MutexLock lock(mutex_);
  KVC_TRY(check_prefix_index());
  return prefixes_->unpin(pin);
}

Status Cache::set_time(int64_t now) {
  if (now < 0) return Status::error(KVC_ERROR_OUT_OF_RANGE, "now %" PRId64 " is negative", now);
  MutexLock lock(mutex_);
  if (prefixes_) prefixes_->set_time(now);
  return Status();
}

}  // namespace kvc
