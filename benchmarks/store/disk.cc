// The disk tier beside plain direct I/O in the same run: stores and loads of objects of 64 KiB to 2 MiB.
//   disk FOLDER [rounds]     default 9. FOLDER is on the disk to measure, and needs 512 MiB
// The limits, with as many threads as the tier has:
//   files      open, one pwrite or pread with O_DIRECT, close: a file for each object, without checksums, copies and
//   names one file   pwrite and pread with O_DIRECT in a file that was written before, as fio measures a disk
// `store` fills an empty tier. `full` stores into a tier that is full, so each store evicts an object and writes over
// its file. Each sample moves 64 MiB. The three are measured in turn, so that a slow phase of the disk meets all of
// them. Printed are medians, and the median of the ratios of samples side by side. The target is 0.85 of `files`.
//
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "figure.h"
#include "tier/disk_tier.h"

namespace {

constexpr int64_t kSampleBytes = int64_t{64} << 20;
constexpr int kThreads = 4;
constexpr double kTarget = 0.85;

double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// CPU time of all threads of this process. Other work on the machine hardly changes it, but it changes the rates.
double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Sample {
  double rate = 0;       // MB/s
  double cpu_ms_gb = 0;  // CPU time of 1 GB
};

class Stopwatch {
 public:
  Sample stop(int64_t bytes) const {
    const double seconds = seconds_now() - begin_, cpu = cpu_seconds() - cpu_begin_;
    return {static_cast<double>(bytes) / seconds / 1e6, cpu * 1e12 / static_cast<double>(bytes)};
  }

 private:
  const double begin_ = seconds_now(), cpu_begin_ = cpu_seconds();
};

double median(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<int64_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "disk: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void check(int64_t got, int64_t expected, const char* what) {
  if (got != expected) fail(what);
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

Memory make_memory(int64_t bytes) {
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>(bytes))));
  if (!memory) fail("no memory");
  for (int64_t i = 0; i < bytes; ++i) memory.get()[i] = static_cast<char>(i * 7919 >> 8);
  return memory;
}

// Runs one(i, memory of the thread) for i in [0, n) on kThreads threads.
Sample parallel(int64_t n, int64_t bytes, const std::function<void(int64_t, char*)>& one) {
  std::vector<Memory> memory;
  for (int i = 0; i < kThreads; ++i) memory.push_back(make_memory(bytes));
  std::atomic<int64_t> next{0};
  const Stopwatch watch;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i; (i = next++) < n;) one(i, memory[static_cast<size_t>(t)].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return watch.stop(n * bytes);
}

// The tier with n objects of one size.
class Tier {
 public:
  Tier(const std::string& folder, int64_t n, int64_t bytes, int64_t capacity_bytes)
      : n_(n), bytes_(bytes), memory_(make_memory(n * bytes)) {
    kvc::DiskTierOptions options;
    options.directory = folder;
    options.capacity_bytes = capacity_bytes;
    options.threads = kThreads;
    options.max_items = 4096;
    kvc_tier_init(&tier_);
    if (kvc::Status status = kvc::open_disk_tier(options, &tier_); !status.ok()) {
      std::fprintf(stderr, "disk: %s\n", status.message());
      std::exit(1);
    }
    buffers_.resize(static_cast<size_t>(n));
    items_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      kvc_tier_item& item = items_[static_cast<size_t>(i)];
      std::memset(&item, 0, sizeof item);
      item.key.bytes[0] = static_cast<uint8_t>(i * 37);
      std::memcpy(item.key.bytes + 8, &i, sizeof i);
      buffers_[static_cast<size_t>(i)] = {memory_.get() + i * bytes, bytes};
      item.buffers = &buffers_[static_cast<size_t>(i)];
      item.num_buffers = 1;
      item.bytes = bytes;
    }
  }
  ~Tier() { tier_.close(tier_.self); }
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // New objects, with keys that the tier does not have.
  Sample store() {
    ++generation_;
    for (kvc_tier_item& item : items_) std::memcpy(item.key.bytes + 16, &generation_, sizeof generation_);
    return run(tier_.store);
  }
  Sample load() { return run(tier_.load); }
  void remove() { run(tier_.remove); }

 private:
  Sample run(decltype(kvc_tier::store) submit) {
    kvc_error error = KVC_ERROR_INIT;
    const Stopwatch watch;
    check(submit(tier_.self, 1, n_, items_.data(), &error), KVC_TIER_OK, error.message);
    int64_t ok = 0;
    for (int64_t left = n_; left > 0;) {
      pollfd waiting = {tier_.descriptor(tier_.self), POLLIN, 0};
      ::poll(&waiting, 1, -1);
      kvc_tier_completion done[256];
      const int64_t got = tier_.poll(tier_.self, done, 256);
      for (int64_t i = 0; i < got; ++i) ok += done[i].result == KVC_TIER_OK;
      left -= got;
    }
    if (ok != n_ && submit != tier_.remove) {
      std::fprintf(stderr, "disk: %lld of %lld items failed\n", static_cast<long long>(n_ - ok),
                   static_cast<long long>(n_));
      std::exit(1);
    }
    return watch.stop(n_ * bytes_);
  }

  const int64_t n_, bytes_;
  int64_t generation_ = 0;
  Memory memory_;
  kvc_tier tier_;
  std::vector<kvc_tier_buffer> buffers_;
  std::vector<kvc_tier_item> items_;
};

// Direct I/O without a tier.
class Plain {
 public:
  Plain(const std::string& folder, int64_t n, int64_t bytes) : folder_(folder), n_(n), bytes_(bytes) {
    ::mkdir(folder.c_str(), 0700);
    one_ = ::open((folder + "/one").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (one_ < 0) fail("O_DIRECT");
    write_one();
  }
  ~Plain() {
    ::close(one_);
    remove();
    ::unlink((folder_ + "/one").c_str());
    ::rmdir(folder_.c_str());
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  Sample write_files() {
    return parallel(n_, bytes_, [this](int64_t i, char* memory) {
      const int fd = ::open(name(i).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, 0600);
      check(::pwrite(fd, memory, static_cast<size_t>(bytes_), 0), bytes_, "pwrite");
      ::close(fd);
    });
  }
  Sample read_files() {
    return parallel(n_, bytes_, [this](int64_t i, char* memory) {
      const int fd = ::open(name(i).c_str(), O_RDONLY | O_DIRECT);
      check(::pread(fd, memory, static_cast<size_t>(bytes_), 0), bytes_, "pread");
      ::close(fd);
    });
  }
  Sample write_one() {
    return parallel(n_, bytes_, [this](int64_t i, char* memory) {
      check(::pwrite(one_, memory, static_cast<size_t>(bytes_), i * bytes_), bytes_, "pwrite");
    });
  }
  Sample read_one() {
    return parallel(n_, bytes_, [this](int64_t i, char* memory) {
      check(::pread(one_, memory, static_cast<size_t>(bytes_), i * bytes_), bytes_, "pread");
    });
  }
  void remove() {
    for (int64_t i = 0; i < n_; ++i) ::unlink(name(i).c_str());
  }

 private:
  std::string name(int64_t i) const { return folder_ + "/" + std::to_string(i); }

  const std::string folder_;
  const int64_t n_, bytes_;
  int one_;
};

struct Samples {
  std::vector<double> tier, files, one, of_files, of_one, tier_cpu, files_cpu;

  void add(const Sample& in_tier, const Sample& in_files, const Sample& in_one) {
    tier.push_back(in_tier.rate);
    files.push_back(in_files.rate);
    one.push_back(in_one.rate);
    of_files.push_back(in_tier.rate / in_files.rate);
    of_one.push_back(in_tier.rate / in_one.rate);
    tier_cpu.push_back(in_tier.cpu_ms_gb);
    files_cpu.push_back(in_files.cpu_ms_gb);
  }
  void print(const char* work, int64_t bytes) const {
    char name[80], note[160];
    std::snprintf(name, sizeof name, "%s, %lld KiB", work, static_cast<long long>(bytes / 1024));
    std::snprintf(note, sizeof note,
                  "%.0f MB/s, files %.0f, one file %.0f (%.2f of it); CPU time of 1 GB: %.0f ms, files %.0f",
                  median(tier), median(files), median(one), median(of_one), median(tier_cpu), median(files_cpu));
    kvc::benchmark::print_figure("Disk tier", name, median(of_files), "x", kTarget, kvc::benchmark::Better::kHigher,
                                 note);
  }
};

void measure(const std::string& folder, int64_t bytes, int rounds) {
  const int64_t n = kSampleBytes / bytes;
  Tier tier(folder + "/tier", n, bytes, 4 * kSampleBytes),
      full(folder + "/full", n, bytes, n * kvc::frame_bytes(bytes));
  full.store();
  Plain plain(folder + "/plain", n, bytes);
  Samples stores, full_stores, loads;
  for (int round = 0; round < rounds; ++round) {
    tier.remove();
    plain.remove();
    const Sample files = plain.write_files();
    const Sample stored = tier.store();
    const Sample replaced = full.store();
    const Sample one = plain.write_one();
    stores.add(stored, files, one);
    full_stores.add(replaced, files, one);
    const Sample read = plain.read_files();
    const Sample loaded = tier.load();
    loads.add(loaded, read, plain.read_one());
  }
  tier.remove();
  full.remove();
  stores.print("store", bytes);
  full_stores.print("full", bytes);
  loads.print("load", bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: disk FOLDER [rounds]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 9;
  std::printf("%d threads, medians of %d samples of 64 MiB\n", kThreads, rounds);
  for (const int64_t kib : {64, 256, 1024, 2048}) measure(argv[1], kib * 1024, rounds);
  return 0;
}
