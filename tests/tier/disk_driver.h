// A disk tier in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "tier/disk_tier.h"
#include "tier_driver.h"

namespace kvt {

inline kvc::DiskTierOptions disk_options(const TemporaryFolder &folder, int64_t capacity_bytes = int64_t{1} << 30) {
  kvc::DiskTierOptions options;
  options.directory = folder.path();
  options.capacity_bytes = capacity_bytes;
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
