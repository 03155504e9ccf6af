// The disk tier: a directory of objects, bounded in size, that several processes may share. It survives kill -9 and a
// loss of power at any point, because every object is checked when it is read. docs/reference/tiers.md says what it
// guarantees.
//
//   kvc_tier tier;
//   kvc_tier_init(&tier);
//   DiskTierOptions options;
//   options.directory = "cache";  options.capacity_bytes = int64_t{100} << 30;
//   if (Status status = open_disk_tier(options, &tier); !status.ok()) return status;
//   ...
//   tier.close(tier.self);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "kvcache_tier.h"
#include "tier/object_folder.h"

namespace kvc {

struct DiskTierOptions {
  std::string directory;       // created if it is missing; its parent must exist
  int64_t capacity_bytes = 0;  // of all files, at least 4096. The objects used longest ago are removed to stay below it
  DiskSync sync = DiskSync::kNever;
  int32_t threads = 4;       // 1..64; they start with the first job
  int32_t max_items = 1024;  // 1..1048576 items that are open at once, in all jobs
  // Scanning the directory continues on a thread after this many objects.
  int64_t scan_at_open = 10000;
  int64_t rescan_ms = 1000;  // how often, at most, lookups that miss let a thread search for objects of other processes
  // For tests.
  FileOps* ops = nullptr;          // null: the system's calls. Borrowed until close
  int64_t (*wall_ns)() = nullptr;  // null: the system's clock. Nanoseconds since 1970
};

// Opens the directory and fills the table. Errors: INVALID_ARGUMENT, UNSUPPORTED (a directory of another version),
// OUT_OF_MEMORY. May block on I/O.
Status open_disk_tier(const DiskTierOptions& options, kvc_tier* tier);

}  // namespace kvc
