// The disk tier: a directory of objects with a limit of size, which several processes may share. Every object is
// checked when it is read. So the directory stays usable after kill -9 or a loss of power at any point.
// docs/reference/tiers.md lists the guarantees.
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

// How the threads of the tier read files.
enum class DiskReads {
  kAny,       // as kTogether if the kernel allows it, else as kBlocking
  kBlocking,  // each thread reads one file at a time
  kTogether   // a thread reads several small objects at once, by io_uring (ReadRing), and a single one too
};

struct DiskTierOptions {
  std::string directory;       // created if it is missing; its parent must exist
  int64_t capacity_bytes = 0;  // limit for all files, at least 4096. The least recently used objects are evicted
  DiskSync sync = DiskSync::kNever;
  int32_t threads = 4;       // 1..64; the threads start with the first job
  int32_t max_items = 1024;  // 1..1048576: largest number of open items in all jobs
  DiskReads reads = DiskReads::kAny;
  // open_disk_tier scans folders until it has found this many objects. A thread scans the other folders.
  int64_t scan_at_open = 10000;
  int64_t rescan_ms = 1000;  // shortest time between scans for objects of other processes
  // For tests.
  FileOps* ops = nullptr;          // null: system calls. Borrowed until close
  int64_t (*wall_ns)() = nullptr;  // null: the system's clock. Returns nanoseconds since 1970
};

// Opens the directory and fills the table. Its flag KVC_TIER_READS_BY_IO_URING says how the threads read. Errors:
// INVALID_ARGUMENT, UNSUPPORTED (the directory has another version, or the kernel forbids io_uring and `reads` is
// kTogether), OUT_OF_MEMORY, IO. May block on I/O.
Status open_disk_tier(const DiskTierOptions& options, kvc_tier* tier);

}  // namespace kvc
