// What the process has: libraries, memory, random bytes, variables.
#include "system/process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kvcache.h"
#include "system/environment.h"
#include "system/error_text.h"
#include "system/host_memory.h"
#include "system/library_folder.h"
#include "system/mapped_memory.h"
#include "system/random.h"
#include "system/shared_library.h"

namespace kvc {
namespace {

TEST(SharedLibrary, GivesItsSymbols) {
  std::string reason;
  void* const library = open_library(KVC_LIBRARY, &reason);
  ASSERT_NE(library, nullptr) << reason;
  const auto version = reinterpret_cast<decltype(&kvc_version)>(find_symbol(library, "kvc_version"));
  ASSERT_NE(version, nullptr);
  EXPECT_NE(std::string(version()), "");
  EXPECT_EQ(find_symbol(library, "kvc_none"), nullptr);
}

TEST(SharedLibrary, SaysWhichFileCannotBeLoaded) {
  std::string reason;
  EXPECT_EQ(open_library("none/such-library.x", &reason), nullptr);
  EXPECT_NE(reason.find("such-library.x"), std::string::npos) << reason;
}

TEST(LibraryFolder, HasThisProgram) {
  ASSERT_NE(library_folder(), nullptr);
  const std::filesystem::path folder(library_folder());
  EXPECT_TRUE(folder.is_absolute());
  EXPECT_FALSE(folder.has_filename()) << folder << " ends with a separator";
  const auto is_program = [](const auto& entry) { return entry.path().stem() == "system_test"; };
  const std::filesystem::directory_iterator entries(folder);
  EXPECT_TRUE(std::any_of(begin(entries), end(entries), is_program)) << folder;
}

TEST(MappedMemory, IsZeroAndWritable) {
  const size_t bytes = size_t{3} << 20;
  auto* const memory = static_cast<unsigned char*>(map_memory(bytes));
  ASSERT_NE(memory, nullptr);
  for (size_t i = 0; i < bytes; i += 4096) EXPECT_EQ(memory[i]++, 0);
  unmap_memory(memory, bytes);
  errno = 0;
  EXPECT_EQ(map_memory(size_t{1} << 62), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(Random, BytesDiffer) {
  unsigned char one[32] = {}, two[32] = {};
  ASSERT_TRUE(fill_random(one, sizeof one));
  ASSERT_TRUE(fill_random(two, sizeof two));
  EXPECT_NE(std::memcmp(one, two, sizeof one), 0);
}

TEST(Process, HasANumberMemoryAndVariables) {
  EXPECT_GT(process_id(), 0);
  EXPECT_EQ(process_id(), process_id());
  EXPECT_GT(host_memory_bytes(), int64_t{64} << 20);
  EXPECT_NE(trusted_variable("PATH"), "");
  EXPECT_EQ(trusted_variable("KVC_NO_SUCH_VARIABLE"), "");
  EXPECT_NE(error_text(ENOENT), error_text(EACCES));
}

}  // namespace
}  // namespace kvc
