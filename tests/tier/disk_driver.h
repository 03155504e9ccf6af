// A disk tier in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "system/read_ring.h"
#include "temporary_folder.h"
#include "tier/disk_tier.h"
#include "tier_driver.h"

namespace kvt {

// How the tiers of these tests read: KVC_TIER_READS is blocking or io_uring. Where the kernel forbids io_uring, they
// read as without it.
inline kvc::DiskReads reads_of_tests() {
  const char *text = std::getenv("KVC_TIER_READS");
  if (text == nullptr) return kvc::DiskReads::kAny;
  if (std::string(text) == "blocking") return kvc::DiskReads::kBlocking;
  std::unique_ptr<kvc::ReadRing> ring;
  return kvc::ReadRing::open(&ring) == 0 ? kvc::DiskReads::kTogether : kvc::DiskReads::kAny;
}

inline kvc::DiskTierOptions disk_options(const TemporaryFolder &folder, int64_t capacity_bytes = int64_t{1} << 30) {
  kvc::DiskTierOptions options;
  options.directory = folder.path();
  options.capacity_bytes = capacity_bytes;
  options.reads = reads_of_tests();
  return options;
}

inline kvc_tier open_disk(const kvc::DiskTierOptions &options) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  const kvc::Status status = kvc::open_disk_tier(options, &tier);
  EXPECT_TRUE(status.ok()) << status.message();
  return tier;
}

}  // namespace kvt
