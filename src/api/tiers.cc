// Section 16 of the header: tiers, and the jobs that move pages to and from them.
#include <algorithm>
#include <cstring>

#include "api/boundary.h"
#include "tier/disk_tier.h"
#include "tier/host_tier.h"

using namespace kvc;
using namespace kvc::api;

namespace {

constexpr int64_t kNoLimit = INT64_MAX / 2;  // bytes of a disk tier without a limit

// The name of a tier in messages of events.
Status check_medium(const char* medium) {
  constexpr size_t kMost = 32;
  const size_t size = strnlen(medium, kMost + 1);
  const bool printable = std::all_of(medium, medium + size, [](char c) { return c >= ' ' && c <= '~'; });
  if (size > 0 && size <= kMost && printable) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "medium is not 1..%zu printable characters", kMost);
}

Status check_tier_config(const kvc_tier_config& config) {
  constexpr uint32_t kDiskFlags = KVC_TIER_BLOCKING | KVC_TIER_IO_URING;
  if ((config.flags & ~uint32_t{KVC_TIER_HOST | KVC_TIER_PINNED | kDiskFlags}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", config.flags);
  }
  const bool host = (config.flags & KVC_TIER_HOST) != 0;
  if ((config.flags & KVC_TIER_PINNED) != 0 && !host) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: only memory of the process can be pinned",
                         config.flags);
  }
  if (int{config.directory != nullptr} + int{config.tier != nullptr} + int{host} != 1) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "directory is %s, tier is %s and flags is 0x%x: one is needed",
                         config.directory == nullptr ? "NULL" : "set", config.tier == nullptr ? "NULL" : "set",
                         config.flags);
  }
  const bool disk_flags = (config.flags & kDiskFlags) != 0;
  if ((disk_flags && config.directory == nullptr) || (config.flags & kDiskFlags) == kDiskFlags) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: at most one of 0x4 and 0x8, and for a directory",
                         config.flags);
  }
  if (config.sync < KVC_TIER_SYNC_DATA || config.sync > KVC_TIER_SYNC_FULL) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "sync %d is outside %d..%d", config.sync, KVC_TIER_SYNC_DATA,
                         KVC_TIER_SYNC_FULL);
  }
  if (config.store < KVC_TIER_STORE_PUBLISHED || config.store > KVC_TIER_STORE_EVICTED) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "store %d is outside %d..%d", config.store,
                         KVC_TIER_STORE_PUBLISHED, KVC_TIER_STORE_EVICTED);
  }
  if (config.capacity_bytes < 0 || config.min_tokens < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "capacity_bytes %" PRId64 " or min_tokens %" PRId64 " is negative",
                         config.capacity_bytes, config.min_tokens);
  }
  if (config.tier != nullptr && config.capacity_bytes != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity_bytes %" PRId64 " is for a directory or a host tier",
                         config.capacity_bytes);
  }
  if (config.directory == nullptr && config.sync != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "sync %d is for a directory", config.sync);
  }
  return config.medium == nullptr ? Status() : check_medium(config.medium);
}

// Checks that a caller's tier has this version, all functions, and a valid max_job_items.
Status check_table(const kvc_tier& table) {
  if (table.version != KVC_TIER_VERSION || table.struct_size != sizeof(kvc_tier)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the tier has version %u and struct_size %u, not %u and %zu",
                         table.version, table.struct_size, uint32_t{KVC_TIER_VERSION}, sizeof(kvc_tier));
  }
  if (table.lookup == nullptr || table.store == nullptr || table.load == nullptr || table.remove == nullptr ||
      table.poll == nullptr || table.descriptor == nullptr || table.cancel == nullptr || table.stats == nullptr ||
      table.close == nullptr || table.max_job_items < 1) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the tier lacks a function, or has max_job_items %d",
                         table.max_job_items);
  }
  return Status();
}

// context: that of the cache
Status open_tier(const kvc_tier_config& config, const std::shared_ptr<Context>& context, kvc_tier* table) {
  if (config.tier != nullptr) {
    KVC_TRY(check_table(*config.tier));
    *table = *config.tier;
    return Status();
  }
  kvc_tier_init(table);
  if ((config.flags & KVC_TIER_HOST) != 0) {
    const bool pinned = (config.flags & KVC_TIER_PINNED) != 0;
    return open_host_tier(config.capacity_bytes, table, pinned ? context : nullptr);
  }
  DiskTierOptions options;
  options.directory = config.directory;
  options.capacity_bytes = config.capacity_bytes > 0 ? config.capacity_bytes : kNoLimit;
  options.sync = config.sync == KVC_TIER_SYNC_NONE   ? DiskSync::kNever
                 : config.sync == KVC_TIER_SYNC_DATA ? DiskSync::kData
                                                     : DiskSync::kFull;
  options.reads = (config.flags & KVC_TIER_BLOCKING) != 0   ? DiskReads::kBlocking
                  : (config.flags & KVC_TIER_IO_URING) != 0 ? DiskReads::kTogether
                                                            : DiskReads::kAny;
  return open_disk_tier(options, table);
}

}  // namespace

kvc_status kvc_cache_add_tier(kvc_cache* cache, const kvc_tier_config* config, kvc_error* error) {
  return cache_call("kvc_cache_add_tier", cache, error, [&](Cache& c) -> Status {
    kvc_tier_config known;
    KVC_TRY(read_struct(config, "config", &known));
    KVC_TRY(check_tier_config(known));
    KVC_TRY(c.tiers.check_can_have_tiers());
    TierWorker::Tier tier;
    KVC_TRY(open_tier(known, c.tiers.context(), &tier.table));
    if ((known.flags & KVC_TIER_HOST) != 0) tier.host = host_tier_store(tier.table.self);
    tier.stores = static_cast<TierWorker::Stores>(known.store);
    tier.min_tokens = known.min_tokens;
    if (known.medium != nullptr) tier.medium = known.medium;
    Status added = c.tiers.add(tier);
    if (!added.ok() && known.tier == nullptr) tier.table.close(tier.table.self);
    return added;
  });
}

kvc_status kvc_job_poll(kvc_cache* cache, kvc_job job, kvc_job_info* info, kvc_error* error) {
  return cache_call("kvc_job_poll", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(info, "info"));
    kvc_job_info value;
    kvc_job_info_init(&value);
    KVC_TRY(c.tiers.poll(job, &value));
    write_struct(value, info);
    return Status();
  });
}

kvc_status kvc_job_cancel(kvc_cache* cache, kvc_job job, kvc_error* error) {
  return cache_call("kvc_job_cancel", cache, error, [&](Cache& c) { return c.tiers.cancel(job); });
}

kvc_status kvc_prefix_attach_pending(kvc_cache* cache, kvc_job job, const kvc_pending_options* options,
                                     kvc_seq* sequence, int64_t* num_tokens, kvc_error* error) {
  return cache_call("kvc_prefix_attach_pending", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(sequence, "sequence"));
    kvc_pending_options how;
    kvc_pending_options_init(&how);
    if (options != nullptr) KVC_TRY(read_struct(options, "options", &how));
    int64_t tokens = 0;
    KVC_TRY(c.tiers.attach_pending(job, how, sequence, &tokens));
    if (num_tokens != nullptr) *num_tokens = tokens;
    return Status();
  });
}

kvc_status kvc_seq_pending(kvc_cache* cache, kvc_seq sequence, kvc_pending_info* info, kvc_error* error) {
  return cache_call("kvc_seq_pending", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(info, "info"));
    kvc_pending_info value;
    kvc_pending_info_init(&value);
    KVC_TRY(c.tiers.pending(sequence, &value));
    write_struct(value, info);
    return Status();
  });
}

kvc_status kvc_seq_suspend(kvc_cache* cache, kvc_seq sequence, kvc_job* job, kvc_error* error) {
  return cache_call("kvc_seq_suspend", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(job, "job"));
    return c.tiers.suspend(sequence, job);
  });
}

kvc_status kvc_seq_resume(kvc_cache* cache, kvc_seq sequence, kvc_job* job, kvc_error* error) {
  return cache_call("kvc_seq_resume", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(job, "job"));
    return c.tiers.resume(sequence, job);
  });
}

kvc_status kvc_cache_job_descriptor(kvc_cache* cache, int32_t* descriptor, kvc_error* error) {
  return cache_call("kvc_cache_job_descriptor", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_not_null(descriptor, "descriptor"));
    return c.tiers.descriptor(descriptor);
  });
}

kvc_status kvc_cache_tier_traffic(kvc_cache* cache, kvc_tier_traffic* traffic, kvc_error* error) {
  return cache_call("kvc_cache_tier_traffic", cache, error, [&](Cache& c) -> Status {
    KVC_TRY(check_struct_size(traffic, "traffic"));
    kvc_tier_traffic value;
    kvc_tier_traffic_init(&value);
    KVC_TRY(c.tiers.traffic(&value));
    write_struct(value, traffic);
    return Status();
  });
}
