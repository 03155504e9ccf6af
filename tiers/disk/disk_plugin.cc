// The disk tier as a plug-in, for programs that store their own objects and have no cache of libkvcache. A cache does
// not need this file: libkvcache.so contains the disk tier (kvc_tier_config.directory).
//
// The options have the form "name=value", separated by &. `directory` must be the last option. Everything after its =
// is the path:
//   capacity_bytes=1073741824&sync=none&directory=/var/cache/engine
//
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cinttypes>
#include <string>
#include <string_view>

#include "tier/disk_tier.h"

namespace kvc {
namespace {

constexpr int64_t kNoLimit = INT64_MAX / 2;

Status set_sync(std::string_view value, DiskTierOptions* options) {
  const struct {
    std::string_view name;
    DiskSync sync;
  } syncs[] = {{"data", DiskSync::kData}, {"none", DiskSync::kNever}, {"full", DiskSync::kFull}};
  for (const auto& known : syncs) {
    if (value != known.name) continue;
    options->sync = known.sync;
    return Status();
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "sync=%.*s is not one of data, none, full",
                       static_cast<int>(value.size()), value.data());
}

Status set_reads(std::string_view value, DiskTierOptions* options) {
  const struct {
    std::string_view name;
    DiskReads reads;
  } all[] = {{"any", DiskReads::kAny}, {"blocking", DiskReads::kBlocking}, {"io_uring", DiskReads::kTogether}};
  for (const auto& known : all) {
    if (value != known.name) continue;
    options->reads = known.reads;
    return Status();
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "reads=%.*s is not one of any, blocking, io_uring",
                       static_cast<int>(value.size()), value.data());
}

Status set_capacity(std::string_view value, DiskTierOptions* options) {
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
  if (error != std::errc() || end != value.data() + value.size() || bytes < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity_bytes=%.*s is no number of bytes",
                         static_cast<int>(value.size()), value.data());
  }
  options->capacity_bytes = bytes > 0 ? bytes : kNoLimit;
  return Status();
}

Status parse(std::string_view text, DiskTierOptions* options) {
  options->capacity_bytes = kNoLimit;
  options->sync = DiskSync::kData;
  constexpr std::string_view kDirectory = "directory=", kSync = "sync=", kCapacity = "capacity_bytes=",
                             kReads = "reads=";
  while (!text.starts_with(kDirectory)) {
    const size_t end = text.find('&');
    const std::string_view option = text.substr(0, end);
    if (end == std::string_view::npos) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the options do not end with directory=, but with \"%.*s\"",
                           static_cast<int>(option.size()), option.data());
    }
    if (option.starts_with(kSync)) {
      KVC_TRY(set_sync(option.substr(kSync.size()), options));
    } else if (option.starts_with(kReads)) {
      KVC_TRY(set_reads(option.substr(kReads.size()), options));
    } else if (option.starts_with(kCapacity)) {
      KVC_TRY(set_capacity(option.substr(kCapacity.size()), options));
    } else {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%.*s is no option of a disk tier",
                           static_cast<int>(option.size()), option.data());
    }
    text.remove_prefix(end + 1);
  }
  options->directory = text.substr(kDirectory.size());
  return Status();
}

Status open(uint32_t version, const char* text, kvc_tier* tier) {
  if (tier == nullptr) return Status::error(KVC_ERROR_NULL_ARGUMENT, "tier is NULL");
  if (version != KVC_TIER_VERSION) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "version %u of the table, and this tier has %d", version,
                         KVC_TIER_VERSION);
  }
  DiskTierOptions options;
  KVC_TRY(parse(text != nullptr ? text : "", &options));
  kvc_tier_init(tier);
  return open_disk_tier(options, tier);
}

}  // namespace
}  // namespace kvc

extern "C" KVC_API kvc_status kvc_tier_open(uint32_t version, const char* options, kvc_tier* tier, kvc_error* error) {
  kvc::Status status;
  try {
    status = kvc::open(version, options, tier);
  } catch (const std::bad_alloc&) {
    status = kvc::Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a disk tier");
  }
  if (!status.ok() && error != nullptr) status.write_to("kvc_tier_open", error);
  return status.code();
}
