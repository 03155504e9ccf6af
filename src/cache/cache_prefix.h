// CachePrefix: the calls on the prefix index: publish, match, attach, load, drop, pins, priorities and time.
#pragma once

#include "cache/cache_core.h"
#include "cache/cache_tiers.h"
#include "cache/prefix_query.h"

namespace kvc {

class CachePrefix {
 public:
  CachePrefix(CacheCore* core, CacheTiers* tiers) : core_(*core), tiers_(*tiers) {}

  Status match(const PrefixQuery& query, kvc_prefix_hit* hit);
  Status attach(const PrefixQuery& query, void* stream, kvc_prefix_hit* hit, kvc_seq* out);
  Status publish(kvc_seq id, const PrefixQuery& query, const kvc_prefix_options& options, kvc_prefix_published* out);
  Status load(const PrefixQuery& query, const kvc_prefix_load_options& options, kvc_prefix_hit* hit, kvc_job* job);
  Status drop(const PrefixQuery& query, int64_t* pages);
  Status drop_session(uint64_t session, int64_t* pages);
  Status set_priority(const PrefixQuery& query, int32_t priority, int64_t time_to_live);
  Status set_session_priority(uint64_t session, int32_t priority, int64_t time_to_live);
  Status pin(const PrefixQuery& query, kvc_prefix_hit* hit, uint64_t* pin);
  Status unpin(uint64_t pin);
  Status set_time(int64_t now);

 private:
  void write_hit(const PrefixIndex::Match& match, kvc_prefix_hit* hit) const KVC_REQUIRES(core_.mutex);
  TierJobs::Gate gate_of(const PrefixQuery& query, int64_t token_ns) const KVC_REQUIRES(core_.mutex);
  Status check_index() const KVC_REQUIRES(core_.mutex);
  Status check_session(uint64_t session) const KVC_REQUIRES(core_.mutex);
  Status check_terms(int32_t priority, int64_t time_to_live, int64_t* expires) const KVC_REQUIRES(core_.mutex);

  CacheCore& core_;
  CacheTiers& tiers_;
};

}  // namespace kvc
