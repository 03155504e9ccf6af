// The prefix index: publish, match, attach, load, drop, pins, priorities and time.
#include "cache/cache_prefix.h"

#include <algorithm>
#include <cinttypes>

namespace kvc {
namespace {

// Adds to a hit what the tiers have, what attach would find after the load that `plan` describes, and the estimated
// time of this load. most: the largest number of tokens that attach may find.
void write_load(const TierJobs::Plan& plan, int32_t num_tiers, int64_t most, kvc_prefix_hit* hit) {
  static_assert(sizeof(plan.tier_tokens) == sizeof(hit->tier_tokens));
  hit->num_tiers = num_tiers;
  std::copy(plan.tier_tokens.begin(), plan.tier_tokens.end(), hit->tier_tokens);
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

Status CachePrefix::check_index() const {
  if (core_.prefixes) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "the cache was created without KVC_CACHE_PREFIX_INDEX");
}

Status CachePrefix::check_session(uint64_t session) const {
  KVC_TRY(check_index());
  return session != 0 ? Status() : Status::error(KVC_ERROR_INVALID_ARGUMENT, "session is 0");
}

Status CachePrefix::check_terms(int32_t priority, int64_t time_to_live, int64_t* expires) const {
  KVC_TRY(check_index());
  if (priority < 0 || priority > PrefixIndex::kMaxPriority) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "priority %d is outside 0..%d", priority, PrefixIndex::kMaxPriority);
  }
  if (time_to_live < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "time_to_live %" PRId64 " is negative", time_to_live);
  }
  *expires = time_to_live == 0 ? 0 : core_.prefixes->now() + std::min(time_to_live, INT64_MAX - core_.prefixes->now());
  return Status();
}

void CachePrefix::write_hit(const PrefixIndex::Match& match, kvc_prefix_hit* hit) const {
  hit->limited_by = match.limited_by;
  hit->tokens = match.tokens;
  hit->copied_tokens = match.tokens % core_.geometry.page_size;
  hit->known_tokens = match.known;
  hit->load_tokens = match.tokens;
  hit->token_ns = core_.token_meter.token_ns();
}

// token_ns: as in kvc_prefix_load_options. A time that was neither given nor measured ends no load.
TierJobs::Gate CachePrefix::gate_of(const PrefixQuery& query, int64_t token_ns) const {
  if (token_ns == 0) token_ns = core_.token_meter.token_ns();
  return {token_ns > 0 ? token_ns : INT64_MAX, most_tokens(query)};
}

Status CachePrefix::match(const PrefixQuery& query, kvc_prefix_hit* hit) {
  TierJobs* const jobs = tiers_.jobs();
  KeyedQuery keyed;
  if (jobs != nullptr) keyed = jobs->keyed(query);
  MutexLock lock(core_.mutex);
  KVC_TRY(check_index());
  const TierJobs::Gate gate = gate_of(query, 0);
  const PrefixIndex::Match match = core_.prefixes->match(query.key, gate.most_tokens);
  write_hit(match, hit);
  if (jobs != nullptr) write_load(jobs->plan(keyed, match, gate), jobs->num_tiers(), gate.most_tokens, hit);
  return Status();
}

Status CachePrefix::load(const PrefixQuery& query, const kvc_prefix_load_options& options, kvc_prefix_hit* hit,
                         kvc_job* job) {
  TierJobs* jobs = nullptr;
  KVC_TRY(tiers_.find_jobs(&jobs));
  if (options.token_ns < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "token_ns %" PRId64 " is negative", options.token_ns);
  }
  TierJobs::Request request;
  request.query = jobs->keyed(query);
  MutexLock lock(core_.mutex);
  request.gate = gate_of(query, options.token_ns);
  KVC_TRY(check_terms(options.priority, options.time_to_live, &request.terms.expires));
  request.terms.session = options.session;
  request.terms.priority = options.priority;
  const PrefixIndex::Match match = core_.prefixes->match(query.key, request.gate.most_tokens);
  write_hit(match, hit);
  TierJobs::Plan plan = jobs->plan(request.query, match, request.gate);
  write_load(plan, jobs->num_tiers(), request.gate.most_tokens, hit);
  return jobs->start(std::move(request), std::move(plan), job);
}

Status CachePrefix::attach(const PrefixQuery& query, void* stream, kvc_prefix_hit* hit, kvc_seq* out) {
  KVC_TRY(core_.context->check_stream(stream));
  MutexLock lock(core_.mutex);
  KVC_TRY(check_index());
  KVC_TRY(core_.copies.make_room(core_.num_groups()));
  core_.copies.reserve(size_t{2} * core_.num_groups());  // each group may need a copy and a clear in the last page
  PrefixIndex::Match match;
  kvc_seq id = 0;
  KVC_TRY(core_.prefixes->attach(query.key, most_tokens(query), &match, &id, core_.copies.plan()));
  if (Status copied = core_.copies.make(stream); !copied.ok()) {
    Status undone = core_.store.remove({&id, 1});
    return undone.ok() ? std::move(copied) : std::move(undone);
  }
  write_hit(match, hit);
  *out = id;
  return Status();
}

Status CachePrefix::publish(kvc_seq id, const PrefixQuery& query, const kvc_prefix_options& options,
                            kvc_prefix_published* out) {
  if ((options.flags & ~uint32_t{KVC_PREFIX_KEEP_PRIVATE}) != 0 || options.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x or reserved 0x%x has unknown bits", options.flags,
                         options.reserved);
  }
  TierJobs* const jobs = (options.flags & KVC_PREFIX_KEEP_PRIVATE) == 0 ? tiers_.jobs() : nullptr;
  KeyedQuery keyed;
  if (jobs != nullptr) keyed = jobs->keyed(query, options.session);
  MutexLock lock(core_.mutex);
  PrefixIndex::Terms terms;
  KVC_TRY(check_terms(options.priority, options.time_to_live, &terms.expires));
  terms.session = options.session;
  terms.priority = options.priority;
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(id, 0, &slot));
  if (core_.rope_sets.of(slot) != KVC_ROPE_SET_SHORT) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "sequence %" PRIu64 " has the long set of longrope", id);
  }
  PrefixStore::Published published;
  const auto tokens = static_cast<int64_t>(query.key.tokens.size());
  const int64_t known = jobs != nullptr && core_.prefixes ? core_.prefixes->match(query.key, tokens).known : 0;
  KVC_TRY(core_.prefixes->publish(id, query.key, terms, &published));
  if (jobs != nullptr) jobs->queue_published(id, keyed, published.known, known);
  out->known_tokens = published.known;
  out->pages_added = published.added;
  out->pages_freed = published.freed;
  return Status();
}

Status CachePrefix::drop(const PrefixQuery& query, int64_t* pages) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_index());
  *pages = core_.prefixes->drop(query.key);
  return Status();
}

Status CachePrefix::drop_session(uint64_t session, int64_t* pages) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_session(session));
  *pages = core_.prefixes->drop_session(session);
  return Status();
}

Status CachePrefix::set_priority(const PrefixQuery& query, int32_t priority, int64_t time_to_live) {
  MutexLock lock(core_.mutex);
  int64_t expires = 0;
  KVC_TRY(check_terms(priority, time_to_live, &expires));
  core_.prefixes->set_terms(query.key, priority, expires);
  return Status();
}

Status CachePrefix::set_session_priority(uint64_t session, int32_t priority, int64_t time_to_live) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_session(session));
  int64_t expires = 0;
  KVC_TRY(check_terms(priority, time_to_live, &expires));
  core_.prefixes->set_session_terms(session, priority, expires);
  return Status();
}

Status CachePrefix::pin(const PrefixQuery& query, kvc_prefix_hit* hit, uint64_t* pin) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_index());
  write_hit(core_.prefixes->pin(query.key, pin), hit);
  return Status();
}

Status CachePrefix::unpin(uint64_t pin) {
  MutexLock lock(core_.mutex);
  KVC_TRY(check_index());
  return core_.prefixes->unpin(pin);
}

Status CachePrefix::set_time(int64_t now) {
  if (now < 0) return Status::error(KVC_ERROR_OUT_OF_RANGE, "now %" PRId64 " is negative", now);
  MutexLock lock(core_.mutex);
  if (core_.prefixes) core_.prefixes->set_time(now);
  return Status();
}

}  // namespace kvc
