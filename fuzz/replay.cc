// Replays a corpus without libFuzzer: replay FUNCTIONS FOLDER. FUNCTIONS is src/api/functions.txt, or - for none. Fails
// if an input fails, or if a function of that list has not succeeded, or has not failed, in any input.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  std::vector<std::filesystem::path> inputs;
  for (const auto &entry : std::filesystem::directory_iterator(argv[2])) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  for (const auto &path : inputs) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);  // of a crash the last line names the input
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  // These return no status.
  const std::string plain =
      " kvc_version kvc_abi_version kvc_build_info kvc_status_name kvc_context_destroy "
      "kvc_cache_destroy kvc_plan_destroy ";
  std::ifstream functions(argv[1]);
  int64_t listed = 0, missing = 0;
  for (std::string line; std::getline(functions, line); listed++) {
    const std::string name = line.substr(0, line.find(' '));
    const fuzz::Reached &count = fuzz::reached[name];
    const bool fails = plain.find(" " + name + " ") == std::string::npos;
    if (count.succeeded == 0) missing++, std::printf("%s never succeeded\n", name.c_str());
    if (count.failed == 0 && fails) missing++, std::printf("%s never failed\n", name.c_str());
  }
  if (inputs.empty() || (listed == 0) != (std::strcmp(argv[1], "-") == 0) || missing > 0) return 1;
  std::printf("%zu inputs, %lld functions\n", inputs.size(), static_cast<long long>(listed));
  return 0;
}
