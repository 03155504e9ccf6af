// Loads that wait together: a thread of the disk tier reads their files at once, by io_uring.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <map>

#include "disk_driver.h"
#include "faulty_ops.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

using namespace kvt;

constexpr uint64_t kObjects = 100;

// Waits before it opens the file of object 0, until the test lets it go on. So the other loads wait in the queue.
class GatedOps : public FaultyOps {
 public:
  std::atomic<bool> closed{false};
  std::atomic<bool> waiting{false};

  int open_at(int folder, const char *name, int flags, mode_t mode) override {
    while (closed && (flags & kOpenPlain) != 0) {
      waiting = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return FaultyOps::open_at(folder, name, flags, mode);
  }
};

class DiskReadsTest : public testing::Test {
 protected:
  DiskReadsTest() {
    std::unique_ptr<ReadRing> ring;
    has_ring_ = ReadRing::open(&ring) == 0;
    options_ = disk_options(folder_);
    options_.ops = &ops_;
    options_.threads = 1;
    options_.max_items = 256;
  }
  void SetUp() override {
    if (!has_ring_) GTEST_SKIP() << "the kernel forbids io_uring";
    if (options_.reads == DiskReads::kBlocking) GTEST_SKIP() << "tiers of this run read one file at a time";
  }
  void open() { tier_ = std::make_unique<TierDriver>(open_disk(options_)); }
  static size_t size_of(uint64_t number) { return 1000 + number * 977 % 60000; }
  void store_all() {
    for (uint64_t i = 0; i < kObjects; ++i) {
      ASSERT_EQ(tier_->store(i, payload_of(i, 0, size_of(i))), KVC_TIER_OK);
      loaded_.emplace_back(size_of(i), 'x');
    }
  }
  // Submits a load of every object, as a job each, while the thread of the tier waits. `meanwhile` runs before it goes
  // on. Returns the completions by number of the object.
  std::map<uint64_t, kvc_tier_completion> load_all(const std::function<void()> &meanwhile = {}) {
    std::deque<Parts> parts;
    kvc_error error = KVC_ERROR_INIT;
    ops_.closed = true;
    for (uint64_t i = 0; i < kObjects; ++i) {
      const kvc_tier_item &item = parts.emplace_back(key_of(i), &loaded_[i]).item();
      EXPECT_EQ(tier_->table().load(tier_->table().self, 1000 + i, 1, &item, &error), KVC_TIER_OK) << error.message;
      while (i == 0 && !ops_.waiting) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (meanwhile) meanwhile();
    ops_.closed = false;
    std::map<uint64_t, kvc_tier_completion> done;
    for (const kvc_tier_completion &completion : tier_->wait(kObjects)) done[completion.job - 1000] = completion;
    EXPECT_EQ(done.size(), kObjects);
    return done;
  }
  void expect_bytes(uint64_t i) { EXPECT_TRUE(loaded_[i] == payload_of(i, 0, size_of(i))) << i; }

  TemporaryFolder folder_;
  GatedOps ops_;
  DiskTierOptions options_;
  std::unique_ptr<TierDriver> tier_;
  std::vector<Bytes> loaded_;
  bool has_ring_ = false;
};

TEST_F(DiskReadsTest, ObjectsThatWaitAreReadTogether) {
  open();
  EXPECT_EQ(tier_->table().flags, uint32_t{KVC_TIER_READS_BY_IO_URING});
  store_all();
  const int64_t before = ops_.read_together;
  for (const auto &[i, done] : load_all()) {
    EXPECT_EQ(done.result, KVC_TIER_OK);
    expect_bytes(i);
  }
  EXPECT_GT(ops_.read_together - before, 90);
  EXPECT_EQ(tier_->stats().loads, static_cast<int64_t>(kObjects));
}

TEST_F(DiskReadsTest, WithTheFlagNoneIs) {
  options_.reads = DiskReads::kBlocking;
  open();
  EXPECT_EQ(tier_->table().flags, 0u);
  store_all();
  for (const auto &[i, done] : load_all()) EXPECT_EQ(done.result, KVC_TIER_OK) << i;
  EXPECT_EQ(ops_.read_together, 0);
}

TEST_F(DiskReadsTest, ReadsThatTheKernelCutsOrRefusesAreContinued) {
  open();
  store_all();
  for (const bool full : {false, true}) {
    ops_.ring_is_full = full;
    ops_.short_transfers = !full;
    for (Bytes &bytes : loaded_) std::fill(bytes.begin(), bytes.end(), 'x');
    for (const auto &[i, done] : load_all()) {
      EXPECT_EQ(done.result, KVC_TIER_OK);
      expect_bytes(i);
    }
  }
}

// Damaged, missing and strange files among the others.
TEST_F(DiskReadsTest, AFileThatIsWrongIsAMissAlone) {
  open();
  store_all();
  std::map<uint64_t, std::string> paths;
  const auto path_of = [&](uint64_t i) {
    const std::string name = object_name(key_of(i), static_cast<int64_t>(size_of(i)));
    return folder_.path() + "/" + name;
  };
  for (uint64_t i = 0; i < kObjects; ++i) {
    if (i % 10 == 3) std::filesystem::remove(path_of(i));
    if (i % 10 == 5) std::filesystem::resize_file(path_of(i), 4096 * (i % 20));
    if (i % 10 == 7) {
      std::FILE *file = std::fopen(path_of(i).c_str(), "r+b");
      std::fseek(file, 600, SEEK_SET);
      std::fputc(payload_of(i, 0, size_of(i))[600 - 128] ^ 1, file);
      std::fclose(file);
    }
    if (i % 10 == 9) {
      std::filesystem::remove(path_of(i));
      std::filesystem::create_symlink("/dev/zero", path_of(i));
    }
  }
  for (const auto &[i, done] : load_all()) {
    const bool wrong = i % 10 == 3 || i % 10 == 5 || i % 10 == 7 || i % 10 == 9;
    EXPECT_EQ(done.result, wrong ? KVC_TIER_MISS : KVC_TIER_OK) << i;
    if (!wrong) expect_bytes(i);
  }
  EXPECT_EQ(tier_->stats().damaged, 30);
}

TEST_F(DiskReadsTest, AReadThatFailsConcernsItsObjectAlone) {
  open();
  store_all();
  const int64_t before = open_descriptors();
  int64_t failed = 0;
  const auto meanwhile = [&] {
    ops_.error = EIO;
    ops_.fail_count = 40;
    ops_.fail_from = ops_.calls + 150;  // in the middle of the loads
  };
  for (const auto &[i, done] : load_all(meanwhile)) {
    if (done.result == KVC_TIER_OK) {
      expect_bytes(i);
      continue;
    }
    ++failed;
    EXPECT_TRUE(done.result == KVC_TIER_MISS || done.os_error == EIO) << done.result;
  }
  EXPECT_GT(failed, 5);
  EXPECT_LT(failed, 60);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(DiskReadsTest, LargeObjectsAreReadAlone) {
  options_.threads = 4;
  open();
  for (uint64_t i = 0; i < kObjects; ++i) loaded_.emplace_back(size_of(i), 'x');
  for (const size_t bytes : {(size_t{2} << 20) - 128, size_t{2} << 20, (size_t{2} << 20) + 4096, size_t{5} << 20}) {
    ASSERT_EQ(tier_->store(7, payload_of(7, 0, bytes)), KVC_TIER_OK);
    Bytes loaded(bytes, 'x');
    EXPECT_EQ(tier_->load(7, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(7, 0, bytes));
  }
}

TEST_F(DiskReadsTest, AChildOfForkClosesItsCopies) {
  const int64_t before = open_descriptors();
  options_.threads = 3;
  open();
  store_all();
  load_all();
  const pid_t child = fork();
  if (child == 0) {
    tier_->close();
    _exit(open_descriptors() == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const auto &[i, done] : load_all()) EXPECT_EQ(done.result, KVC_TIER_OK) << i;
  tier_->close();
  EXPECT_EQ(open_descriptors(), before);
}

// As in a container whose seccomp filter forbids io_uring.
bool forbid_io_uring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(code), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(DiskReadsTest, WhereItIsForbiddenThreadsRead) {
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_io_uring()) _exit(2);
    kvc_tier table;
    kvc_tier_init(&table);
    options_.reads = DiskReads::kTogether;
    const Status refused = open_disk_tier(options_, &table);
    bool ok = refused.code() == KVC_ERROR_UNSUPPORTED &&
              std::string(refused.message()) == "io_uring: Operation not permitted";
    options_.reads = DiskReads::kAny;
    open();
    ok = ok && tier_->table().flags == 0;
    store_all();
    for (const auto &[i, done] : load_all()) ok = ok && done.result == KVC_TIER_OK;
    _exit(ok && ops_.read_together == 0 && !HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) GTEST_SKIP() << "the kernel has no seccomp filters";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kvc
