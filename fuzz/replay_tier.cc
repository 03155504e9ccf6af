// Replays the corpus of fuzz/tier.cc without libFuzzer: replay_tier FOLDER. Fails if an input fails, or if no input
// loads an object, misses, or names one.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fuzz {
extern int64_t tier_hits, tier_misses, tier_names;
}
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  std::vector<std::filesystem::path> inputs;
  for (const auto &entry : std::filesystem::directory_iterator(argv[1])) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  for (const auto &path : inputs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);  // of a crash the last line names the input
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs: %lld loads, %lld misses, %lld names\n", inputs.size(),
              static_cast<long long>(fuzz::tier_hits), static_cast<long long>(fuzz::tier_misses),
              static_cast<long long>(fuzz::tier_names));
  return fuzz::tier_hits > 0 && fuzz::tier_misses > 0 && fuzz::tier_names > 0 ? 0 : 1;
}
