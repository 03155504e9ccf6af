// Damaged memory of the host tier, which the test finds in /proc/self/maps.
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tiers_fixture.h"

namespace kvt {
namespace {

constexpr int64_t kTierBytes = int64_t{64} << 20;
constexpr char kMagic[] = "kvcobj\r\n";

// A loop of its own: memcmp of the address sanitizer refuses memory that is not the program's.
__attribute__((no_sanitize("address"))) bool begins_object(const uint8_t *bytes) {
  for (size_t i = 0; i + 1 < sizeof kMagic; ++i) {
    if (bytes[i] != static_cast<uint8_t>(kMagic[i])) return false;
  }
  return true;
}

// Flips a bit in each object in memory. Objects begin at blocks, with the magic bytes of the format. Larger ranges are
// those of a sanitizer.
int64_t damage_objects_in_memory() {
  constexpr size_t kLargest = size_t{1} << 30;
  std::ifstream maps("/proc/self/maps");
  int64_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    const bool anonymous = line.find('/') == std::string::npos && line.find('[') == std::string::npos;
    if (std::string(rights) != "rw-p" || !anonymous || end - begin < size_t{kTierBytes} || end - begin > kLargest)
      continue;
    for (uintptr_t block = begin; block < end; block += 4096) {
      auto *bytes = reinterpret_cast<uint8_t *>(block);
      if (!begins_object(bytes)) continue;
      uint32_t header_bytes = 0;
      std::memcpy(&header_bytes, bytes + 16, sizeof header_bytes);
      bytes[header_bytes + 50] ^= 4;
      ++found;
    }
  }
  return found;
}

TEST(HostTierOfACache, ADamagedObjectIsAMiss) {
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(kTierBytes), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  EXPECT_EQ(damage_objects_in_memory(), 8);
  EXPECT_EQ(engine.load(prompt), 0);
  EXPECT_GT(engine.traffic().pages_not_loaded, 0);
  for (int tries = 0; tries < 200 && engine.load(prompt) < 32; tries++) {  // a load removes damaged objects
    engine.serve(prompt);
    engine.wait_stored();
    engine.forget_all();
  }
  EXPECT_EQ(engine.serve(prompt).tokens, 31);
}

}  // namespace
}  // namespace kvt
