// The calls on files, by which the disk tier and saved sequences work on each system.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/wall_clock.h"
#include "system/error_text.h"
#include "system/file_ops.h"
#include "tests/support/temporary_folder.h"

namespace kvc {
namespace {

class Files : public testing::Test {
 protected:
  Files() : folder_(ops_.open_at(FileOps::kWorkingFolder, path_.c_str(), kOpenRead | kOpenFolder, 0)) {}
  ~Files() override {
    ops_.close(folder_);
    std::filesystem::remove_all(path_);
  }

  int write(const char* name, const std::string& text) {
    const int fd = ops_.open_at(folder_, name, kOpenWrite | kOpenNew, 0600);
    if (fd < 0) return fd;
    EXPECT_EQ(ops_.write_at(fd, text.data(), static_cast<int64_t>(text.size()), 0), static_cast<int64_t>(text.size()));
    EXPECT_EQ(ops_.sync_data(fd), 0);
    return ops_.close(fd);
  }
  std::string read(const char* name) {
    const int fd = ops_.open_at(folder_, name, kOpenRead, 0);
    if (fd < 0) return error_text(-fd);
    char text[100];
    const int64_t count = read_next(fd, text, sizeof text);
    EXPECT_EQ(read_next(fd, text + count, 1), 0) << "the end";
    EXPECT_EQ(ops_.close(fd), 0);
    return {text, static_cast<size_t>(count)};
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    EXPECT_EQ(ops_.list(folder_, [&](const char* name) { found.push_back(name); }), 0);
    std::sort(found.begin(), found.end());
    return found;
  }

  FileOps& ops_ = system_file_ops();
  const std::string path_ = kvt::make_temporary_folder("kvc-system-");
  const int folder_;
};

TEST_F(Files, AreReadAndWrittenAtAnyOffset) {
  ASSERT_GE(folder_, 0);
  ASSERT_EQ(write("a", "0123456789"), 0);
  const int fd = ops_.open_at(folder_, "a", kOpenRead | kOpenWrite, 0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ops_.write_at(fd, "xy", 2, 4), 2);
  const int64_t far = int64_t{5} << 30;  // more than 32 bits
  EXPECT_EQ(ops_.write_at(fd, "far", 3, far), 3);
  char text[8] = "";
  EXPECT_EQ(ops_.read_at(fd, text, 5, 3), 5);
  EXPECT_EQ(std::string(text, 5), "3xy67");
  EXPECT_EQ(ops_.read_at(fd, text, 8, far + 1), 2);
  EXPECT_EQ(std::string(text, 2), "ar");
  EXPECT_EQ(ops_.read_at(fd, text, 8, far + 3), 0);
  FileStatus status;
  ASSERT_EQ(ops_.status(fd, &status), 0);
  EXPECT_EQ(status.bytes, far + 3);
  EXPECT_TRUE(status.regular);
  EXPECT_EQ(ops_.close(fd), 0);
}

TEST_F(Files, HaveNamesInUtf8) {
  const char* const name = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";  // two, three and four bytes
  ASSERT_EQ(write(name, "text"), 0);
  EXPECT_EQ(names(), std::vector<std::string>{name});
  EXPECT_EQ(read(name), "text");
  const std::string long_name(200, 'n');
  ASSERT_EQ(write(long_name.c_str(), "long"), 0);
  EXPECT_EQ(read(long_name.c_str()), "long");
}

TEST_F(Files, AreRenamedAndRemoved) {
  ASSERT_EQ(write("old", "old"), 0);
  ASSERT_EQ(write("new", "new"), 0);
  EXPECT_EQ(write("new", "again"), -EEXIST);
  EXPECT_EQ(ops_.rename_at(folder_, "new", "old"), 0);
  EXPECT_EQ(read("old"), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"old"});
  EXPECT_EQ(ops_.sync_folder(folder_), 0);
  EXPECT_EQ(ops_.unlink_at(folder_, "old"), 0);
  EXPECT_TRUE(says_missing(ops_.unlink_at(folder_, "old")));
  EXPECT_TRUE(says_missing(ops_.rename_at(folder_, "old", "new")));
  EXPECT_TRUE(says_missing(ops_.open_at(folder_, "old", kOpenRead, 0)));
  FileStatus status;
  EXPECT_TRUE(says_missing(ops_.status_at(folder_, "old", &status)));
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(Files, CanBeRemovedWhileTheyAreRead) {
  ASSERT_EQ(write("a", "text"), 0);
  const int fd = ops_.open_at(folder_, "a", kOpenRead | kOpenPlain, 0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ops_.rename_at(folder_, "a", "b"), 0);
  EXPECT_EQ(ops_.unlink_at(folder_, "b"), 0);
  char text[4];
  EXPECT_EQ(ops_.read_at(fd, text, 4, 0), 4);
  EXPECT_EQ(ops_.close(fd), 0);
}

TEST_F(Files, AreReplacedAlthoughAReaderHasThemOpen) {
  ASSERT_EQ(write("old", "old"), 0);
  ASSERT_EQ(write("new", "new"), 0);
  const int fd = ops_.open_at(folder_, "old", kOpenRead | kOpenPlain, 0);
  ASSERT_GE(fd, 0);
  std::thread reader([&] {  // Windows replaces the file only after it was closed
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_EQ(ops_.close(fd), 0);
  });
  EXPECT_EQ(ops_.rename_at(folder_, "new", "old"), 0);
  reader.join();
  EXPECT_EQ(read("old"), "new");
}

TEST_F(Files, FoldersAreMadeAndOpened) {
  EXPECT_EQ(ops_.make_folder_at(folder_, "inner"), 0);
  EXPECT_EQ(ops_.make_folder_at(folder_, "inner"), -EEXIST);
  EXPECT_TRUE(says_missing(ops_.make_folder_at(folder_, "none/inner")));
  ASSERT_EQ(write("inner/a", "text"), 0);
  EXPECT_EQ(read("inner/a"), "text");
  EXPECT_EQ(names(), std::vector<std::string>{"inner"});
  FileStatus status;
  ASSERT_EQ(ops_.status_at(folder_, "inner", &status), 0);
  EXPECT_FALSE(status.regular);
  EXPECT_EQ(ops_.open_at(folder_, "inner/a", kOpenRead | kOpenFolder, 0), -ENOTDIR);
}

TEST_F(Files, HaveAStampAndAnIdentity) {
  ASSERT_EQ(write("a", "a"), 0);
  ASSERT_EQ(write("b", "b"), 0);
  FileStatus a, b;
  ASSERT_EQ(ops_.status_at(folder_, "a", &a), 0);
  ASSERT_EQ(ops_.status_at(folder_, "b", &b), 0);
  EXPECT_NE(a.inode, b.inode);
  EXPECT_LT(std::abs(a.stamp_ns - wall_ns()), int64_t{3600} * 1'000'000'000);
  const int fd = ops_.open_at(folder_, "a", kOpenRead, 0);
  const int64_t stamp = 1'700'000'000'123'456'700;
  EXPECT_EQ(ops_.set_stamp(fd, stamp), 0);
  FileStatus after;
  ASSERT_EQ(ops_.status(fd, &after), 0);
  EXPECT_EQ(after.stamp_ns, stamp);
  EXPECT_EQ(after.inode, a.inode);
  ops_.close(fd);
}

TEST_F(Files, LocksExcludeOthers) {
  ASSERT_EQ(write("lock", "text"), 0);
  const auto open = [&] { return ops_.open_at(folder_, "lock", kOpenRead | kOpenWrite, 0); };
  const int one = open(), two = open();
  EXPECT_EQ(lock_file(one, true), 0);
  EXPECT_EQ(lock_file(two, true), -EWOULDBLOCK);
  EXPECT_EQ(lock_file(two, false), -EWOULDBLOCK);
  EXPECT_EQ(read("lock"), "text") << "a locked file can be read";
  EXPECT_EQ(lock_file(one, false), 0);
  EXPECT_EQ(lock_file(two, false), 0);
  EXPECT_EQ(lock_file(one, true), -EWOULDBLOCK);
  ops_.close(two);
  EXPECT_EQ(lock_file(one, true), 0);
  ops_.close(one);
}

}  // namespace
}  // namespace kvc
