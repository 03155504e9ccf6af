// Replays a corpus without libFuzzer: replay FOLDER CALL... Fails if an input fails, or if one of these calls has not
// succeeded, or has not failed, in any input.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "reached.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  std::vector<std::filesystem::path> inputs;
  for (const auto &entry : std::filesystem::directory_iterator(argv[1])) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  for (const auto &path : inputs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);  // if the input crashes, the last line names it
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  // These return no status.
  const std::set<std::string> without_status = {"kvc_version",     "kvc_abi_version",     "kvc_build_info",
                                                "kvc_status_name", "kvc_context_destroy", "kvc_cache_destroy",
                                                "kvc_plan_destroy"};
  bool complete = !inputs.empty();
  for (int i = 2; i < argc; ++i) {
    const fuzz::Reached &count = fuzz::reached[argv[i]];
    const bool can_fail = without_status.count(argv[i]) == 0;
    if (count.succeeded == 0) complete = false, std::printf("%s never succeeded\n", argv[i]);
    if (count.failed == 0 && can_fail) complete = false, std::printf("%s never failed\n", argv[i]);
  }
  std::printf("%zu inputs, %d calls\n", inputs.size(), argc - 2);
  return complete ? 0 : 1;
}
