// The disk tier as a plug-in: libkvcache_disk.so. What it stores, the disk tier of a cache finds too.
#include <dlfcn.h>

#include <filesystem>

#include "temporary_folder.h"
#include "tier/disk_tier.h"
#include "tier_driver.h"

namespace {

using namespace kvt;

kvc_tier_open_fn load_plugin() {
  void *plugin = dlopen(DISK_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(plugin, nullptr) << dlerror();
  return plugin ? reinterpret_cast<kvc_tier_open_fn>(dlsym(plugin, "kvc_tier_open")) : nullptr;
}

// The message of an open that fails.
std::string refused(const std::string &options, kvc_status status) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(load_plugin()(KVC_TIER_VERSION, options.c_str(), &tier, &error), status) << error.message;
  return error.message;
}

TEST(DiskPlugin, StoresWhatTheDiskTierLoads) {
  TemporaryFolder folder;
  const std::string directory = folder.path() + "/a&sync=b c";  // everything after directory= is the path
  {
    kvc_tier table;
    kvc_tier_init(&table);
    kvc_error error = KVC_ERROR_INIT;
    const std::string options = "capacity_bytes=1000000&sync=full&reads=blocking&directory=" + directory;
    ASSERT_EQ(load_plugin()(KVC_TIER_VERSION, options.c_str(), &table, &error), KVC_OK) << error.message;
    TierDriver tier(table);
    EXPECT_STREQ(tier.table().name, "disk");
    EXPECT_EQ(tier.table().flags, 0u);
    EXPECT_EQ(tier.stats().capacity_bytes, 1000000);
    ASSERT_EQ(tier.store(1, payload_of(1, 0, 5000)), KVC_TIER_OK);
  }
  kvc::DiskTierOptions options;
  options.directory = directory;
  options.capacity_bytes = 1000000;
  kvc_tier table;
  kvc_tier_init(&table);
  ASSERT_TRUE(kvc::open_disk_tier(options, &table).ok());
  TierDriver tier(table);
  Bytes loaded(5000, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, 5000));
}

TEST(DiskPlugin, RefusesOtherOptions) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/d";
  EXPECT_EQ(refused("", KVC_ERROR_INVALID_ARGUMENT),
            "kvc_tier_open: the options do not end with directory=, but with \"\"");
  EXPECT_EQ(refused(path, KVC_ERROR_INVALID_ARGUMENT),
            "kvc_tier_open: the options do not end with directory=, but with \"" + path + "\"");
  EXPECT_EQ(refused("size=1&directory=" + path, KVC_ERROR_INVALID_ARGUMENT),
            "kvc_tier_open: size=1 is no option of a disk tier");
  EXPECT_EQ(refused("sync=never&directory=" + path, KVC_ERROR_INVALID_ARGUMENT),
            "kvc_tier_open: sync=never is not one of data, none, full");
  for (const char *number : {"", "1g", "-1", "99999999999999999999"}) {
    EXPECT_EQ(refused("capacity_bytes=" + std::string(number) + "&directory=" + path, KVC_ERROR_INVALID_ARGUMENT),
              "kvc_tier_open: capacity_bytes=" + std::string(number) + " is no number of bytes");
  }
  EXPECT_EQ(refused("directory=", KVC_ERROR_INVALID_ARGUMENT), "kvc_tier_open: directory is empty");
  EXPECT_EQ(refused("capacity_bytes=100&directory=" + path, KVC_ERROR_INVALID_ARGUMENT),
            "kvc_tier_open: capacity_bytes is 100, and must be at least 4096");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(DiskPlugin, RefusesAnotherVersionAndNull) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(load_plugin()(KVC_TIER_VERSION + 1, "directory=/x", &tier, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.message, "kvc_tier_open: version 3 of the table, and this tier has 2");
  EXPECT_EQ(load_plugin()(KVC_TIER_VERSION, "directory=/x", nullptr, &error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(load_plugin()(KVC_TIER_VERSION, nullptr, &tier, &error), KVC_ERROR_INVALID_ARGUMENT);
}

}  // namespace
