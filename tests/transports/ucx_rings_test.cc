// The rings of the UCX transport: senders that are killed or stopped, and wrong records.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "ucx/rings.h"

namespace kvc {
namespace {

using Layout = RingLayout;

uint64_t self(uint64_t endpoint = 7) { return static_cast<uint64_t>(getpid()) << 32 | endpoint; }

bool put(SendRing *ring, const std::string &header, const std::string &data) {
  return ring->put(header.data(), header.size(), data.data(), data.size());
}

// Takes a record, and returns its header and its data; empty if there is none.
std::string take(ReceiveRings *rings) {
  ReceiveRings::Record record;
  if (!rings->take(&record)) return {};
  return std::string(reinterpret_cast<char *>(record.header), record.header_bytes) + ":" +
         std::string(reinterpret_cast<const char *>(record.data), record.data_bytes);
}

// The memory of an endpoint, as a sender that breaks all rules sees it.
struct Memory {
  static constexpr uint64_t kBytes = Layout::kFrontBytes + Layout::kRings * Layout::kBytes;
  uint8_t *bytes = nullptr;
  explicit Memory(const RingAddress &address) {
    const std::string path = "/proc/" + std::to_string(address.endpoint >> 32) + "/fd/" + std::to_string(address.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    bytes = static_cast<uint8_t *>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
  }
  ~Memory() { munmap(bytes, kBytes); }
  Layout::Front &front() { return *reinterpret_cast<Layout::Front *>(bytes); }
  uint8_t *ring(uint64_t ring) { return bytes + Layout::kFrontBytes + ring * Layout::kBytes; }
  void set_lengths(uint64_t at, uint64_t header_bytes, uint64_t data_bytes) {
    const uint64_t lengths = data_bytes << 32 | header_bytes;
    std::memcpy(ring(0) + at, &lengths, sizeof lengths);
  }
};

// Runs a function in a child, which it must kill or stop.
pid_t child(const std::function<void()> &run) {
  const pid_t process = fork();
  if (process != 0) return process;
  run();
  _exit(1);
}
void expect_killed(pid_t process) {
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(Rings, RecordsOfAllSizesInOrder) {
  const auto rings = ReceiveRings::create();
  ASSERT_TRUE(rings);
  const auto ring = SendRing::open(rings->address(), self());
  ASSERT_TRUE(ring);
  EXPECT_TRUE(ring->is_empty());
  std::mt19937 random(1);
  const uint64_t sizes[] = {0, 1, 55, 56, 57, 64, 4096, 100000, Layout::kMaxData - 1, Layout::kMaxData};
  uint64_t sent = 0, taken = 0, full = 0;
  const auto header_of = [](uint64_t i) { return std::string(i % (KVC_TRANSPORT_MAX_HEADER_BYTES + 1), 'h'); };
  const auto data_of = [&](uint64_t i) { return std::string(sizes[i * 7 % 10], static_cast<char>('a' + i % 26)); };
  while (taken < 150) {
    rings->release();
    for (uint64_t count = random() % 12; count > 0; count--) {
      if (put(ring.get(), header_of(sent), data_of(sent)))
        sent++;
      else
        full++;
    }
    for (uint64_t count = random() % 12; count > 0 && taken < sent; count--, taken++) {
      rings->release();
      ASSERT_TRUE(take(rings.get()) == header_of(taken) + ":" + data_of(taken)) << taken;
    }
  }
  EXPECT_GT(full, 10u);
}

// What poll has returned is not overwritten before the next poll.
TEST(Rings, RecordsStayUntilRelease) {
  const auto rings = ReceiveRings::create();
  const auto ring = SendRing::open(rings->address(), self());
  const std::string data(1 << 20, 'x');
  uint64_t count = 0;
  while (put(ring.get(), "h", data)) count++;
  EXPECT_GE(count, 3u);
  rings->release();
  for (uint64_t i = 0; i < count; i++) EXPECT_FALSE(take(rings.get()).empty());
  EXPECT_FALSE(put(ring.get(), "h", data));
  EXPECT_FALSE(ring->is_empty());
  rings->release();
  EXPECT_TRUE(ring->is_empty());
  EXPECT_TRUE(put(ring.get(), "h", data));
}

// A sender is killed at three places of a message, more often than there are rings.
TEST(Rings, AKilledSenderStopsOnlyItsRing) {
  const auto rings = ReceiveRings::create();
  const auto ring = SendRing::open(rings->address(), self());
  for (int round = 0; round < static_cast<int>(Layout::kRings) + 9; round++) {
    expect_killed(child([&] {
      const auto own = SendRing::open(rings->address(), self());
      Memory memory(rings->address());
      if (round % 3 == 0) memory.front().owners[127] = self(9);  // before it has written anything
      if (!put(own.get(), "whole", "1")) return;
      const uint64_t end = 2 * Layout::kAlign;
      for (uint64_t i = 0; i < Layout::kRings; i++) {  // the first bytes of the next record
        if (memory.front().owners[i] == self()) std::memset(memory.ring(i) + end, round, 1 + round % 300);
      }
      kill(getpid(), SIGKILL);
    }));
    rings->release();
    ASSERT_EQ(take(rings.get()), "whole:1") << round;
    ASSERT_EQ(take(rings.get()), "") << round;
    ASSERT_TRUE(put(ring.get(), "other", "2"));
    rings->release();
    ASSERT_EQ(take(rings.get()), "other:2") << round;
    rings->look_at_processes();
  }
}

TEST(Rings, AStoppedSenderStopsOnlyItsRing) {
  const auto rings = ReceiveRings::create();
  const pid_t process = child([&] {
    const auto own = SendRing::open(rings->address(), self());
    put(own.get(), "whole", "1");
    Memory(rings->address()).set_lengths(2 * Layout::kAlign, 5, 1);
    raise(SIGSTOP);
    put(own.get(), "later", "2");
    kill(getpid(), SIGKILL);
  });
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, WUNTRACED), process);
  const auto ring = SendRing::open(rings->address(), self());
  for (int i = 0; i < 100; i++) ASSERT_TRUE(put(ring.get(), "other", "3"));
  rings->release();
  rings->look_at_processes();
  std::string all;
  for (std::string next = "begin"; !next.empty(); next = take(rings.get())) all += next + " ";
  EXPECT_EQ(all.substr(0, 25), "begin whole:1 other:3 oth");
  EXPECT_EQ(all.size(), 6u + 8 + 100 * 8);
  rings->release();
  EXPECT_EQ(take(rings.get()), "");
  kill(process, SIGCONT);
  expect_killed(process);
  EXPECT_EQ(take(rings.get()), "later:2");
}

// What a sender wrote before its process ended, or before it had no more messages, is received.
TEST(Rings, TheLastRecordsAreReceived) {
  const auto rings = ReceiveRings::create();
  expect_killed(child([&] {
    const auto own = SendRing::open(rings->address(), self());
    for (int i = 0; i < 3; i++) put(own.get(), "killed", "");
    kill(getpid(), SIGKILL);
  }));
  auto ring = SendRing::open(rings->address(), self());
  for (int i = 0; i < 3; i++) ASSERT_TRUE(put(ring.get(), "ended", ""));
  ring->end();
  ring.reset();
  EXPECT_TRUE(rings->has_records_of(self()));
  for (int i = 0; i < 6; i++) {
    rings->look_at_processes();
    rings->release();
    EXPECT_NE(take(rings.get()), "") << i;
  }
  EXPECT_FALSE(rings->has_records_of(self()));
  rings->release();
  Memory memory(rings->address());
  for (const uint64_t owner : memory.front().owners) EXPECT_EQ(owner, 0u);
}

// Each wrong record or position stops its ring, and no other.
TEST(Rings, WrongRecordsAreRefused) {
  const std::function<void(Memory &)> faults[] = {
      [](Memory &m) { m.set_lengths(0, KVC_TRANSPORT_MAX_HEADER_BYTES + 1, 0); },
      [](Memory &m) { m.set_lengths(0, 0, Layout::kMaxData + 1); },
      [](Memory &m) { m.set_lengths(0, 1, 100); },  // longer than what was written
      [](Memory &m) { m.set_lengths(0, 0xffffffffu, 0xffffffffu); },
      [](Memory &m) { m.set_lengths(0, 0xffffffffu, 1); },
      [](Memory &m) { m.front().states[0].end = 8; },
      [](Memory &m) { m.front().states[0].end = Layout::kBytes + Layout::kAlign; },
      [](Memory &m) { m.front().states[0].end = ~uint64_t{0} - 63; },
  };
  for (size_t fault = 0; fault < std::size(faults); fault++) {
    const auto rings = ReceiveRings::create();
    const auto wrong = SendRing::open(rings->address(), self(1));
    const auto right = SendRing::open(rings->address(), self(2));
    Memory memory(rings->address());
    ASSERT_TRUE(put(wrong.get(), "wrong", ""));
    ASSERT_TRUE(put(right.get(), "right", "1"));
    faults[fault](memory);
    rings->release();
    EXPECT_EQ(take(rings.get()), "right:1") << fault;
    EXPECT_EQ(take(rings.get()), "") << fault;
    EXPECT_FALSE(rings->has_records_of(self(1))) << fault;
    memory.set_lengths(0, 5, 0);  // too late
    EXPECT_EQ(take(rings.get()), "") << fault;
    wrong->end();
    rings->release();
    EXPECT_EQ(memory.front().owners[0], 0u) << fault;
    const auto next = SendRing::open(rings->address(), self(3));
    ASSERT_TRUE(put(next.get(), "next", "2"));
    rings->release();
    EXPECT_EQ(take(rings.get()), "next:2") << fault;
  }
}

// Near the end of a ring: a record that goes over the end, and nothing after kSkip.
TEST(Rings, WrongRecordsAtTheEndAreRefused) {
  for (const bool skip : {false, true}) {
    const auto rings = ReceiveRings::create();
    const auto ring = SendRing::open(rings->address(), self());
    Memory memory(rings->address());
    const std::string data((1 << 20) - Layout::kAlign, 'x');  // four fill the ring
    for (int i = 0; i < 4; i++) {
      ASSERT_TRUE(put(ring.get(), "h", i == 3 ? data.substr(Layout::kAlign) : data));
    }
    rings->release();
    for (int i = 0; i < 4; i++) ASSERT_FALSE(take(rings.get()).empty());
    rings->release();
    const uint64_t last = Layout::kBytes - Layout::kAlign;
    ASSERT_EQ(memory.front().states[0].begin, last);
    memory.set_lengths(last, skip ? 0xffffffffu : 1, skip ? 0xffffffffu : 1);
    memory.front().states[0].end = last + (skip ? Layout::kAlign : 2 * Layout::kAlign);
    EXPECT_EQ(take(rings.get()), "") << skip;
    memory.front().states[0].end = last + 2 * Layout::kAlign;
    EXPECT_EQ(take(rings.get()), "") << skip;
  }
}

TEST(Rings, MoreSendersThanRings) {
  const auto rings = ReceiveRings::create();
  std::vector<std::unique_ptr<SendRing>> senders;
  for (uint64_t i = 0; i <= Layout::kRings; i++) {
    senders.push_back(SendRing::open(rings->address(), self(i + 1)));
    EXPECT_EQ(put(senders.back().get(), "h", std::to_string(i)), i < Layout::kRings);
  }
  rings->release();
  for (uint64_t i = 0; i < Layout::kRings; i++) EXPECT_EQ(take(rings.get()), "h:" + std::to_string(i));
  EXPECT_EQ(take(rings.get()), "");
  EXPECT_FALSE(put(senders.back().get(), "h", "last"));
  senders[50]->end();
  rings->release();
  EXPECT_TRUE(put(senders.back().get(), "h", "last"));
  rings->release();
  EXPECT_EQ(take(rings.get()), "h:last");
}

// Senders that have many messages do not keep another one waiting.
TEST(Rings, TakeTurns) {
  const auto rings = ReceiveRings::create();
  std::unique_ptr<SendRing> senders[3];
  for (uint64_t i = 0; i < 3; i++) {
    senders[i] = SendRing::open(rings->address(), self(i + 1));
    for (int j = 0; j < (i == 2 ? 1 : 50); j++) ASSERT_TRUE(put(senders[i].get(), std::to_string(i), ""));
  }
  rings->release();
  for (const char *header : {"0:", "1:", "2:", "0:", "1:", "0:"}) EXPECT_EQ(take(rings.get()), header);
}

TEST(Rings, WrongAddressesAreRefused) {
  const auto rings = ReceiveRings::create();
  const RingAddress right = rings->address();
  ASSERT_TRUE(SendRing::open(right, self()));
  RingAddress wrong = right;
  wrong.check++;
  EXPECT_FALSE(SendRing::open(wrong, self()));
  for (const int64_t file : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{999}, INT64_MAX, INT64_MIN}) {
    wrong = right;
    wrong.file = file;
    EXPECT_FALSE(SendRing::open(wrong, self())) << file;
  }
  wrong = right;
  wrong.endpoint = uint64_t{0x7ffffff0} << 32 | 1;
  EXPECT_FALSE(SendRing::open(wrong, self()));
  // A file with the right name and another size.
  wrong = right;
  wrong.file = memfd_create("libkvcache-rings", MFD_CLOEXEC);
  EXPECT_FALSE(SendRing::open(wrong, self()));
  close(static_cast<int>(wrong.file));
}

TEST(Rings, CloseIsSeen) {
  auto rings = ReceiveRings::create();
  const auto ring = SendRing::open(rings->address(), self());
  EXPECT_FALSE(ring->is_closed());
  rings->close();
  EXPECT_TRUE(ring->is_closed());
  rings.reset();
  EXPECT_TRUE(put(ring.get(), "h", "into memory without a reader"));
}

}  // namespace
}  // namespace kvc
