// The transport between caches of one process, by its table.
#include "transfer/memory_transport.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace kvc {
namespace {

struct Endpoint {
  kvc_transport table;
  bool open = true;
  kvc_error error = KVC_ERROR_INIT;
  kvc_transport_event events[4] = {};

  Endpoint() { open_memory_transport(&table); }
  ~Endpoint() { close(); }
  void close() {
    if (open) table.close(table.self);
    open = false;
  }
  int64_t poll() { return table.poll(table.self, events, 4); }
  int32_t connect(const Endpoint &other, uint64_t *peer) {
    char address[64];
    const int64_t bytes = other.table.address(other.table.self, address, sizeof address);
    return table.connect(table.self, address, bytes, peer, &error);
  }
  int32_t send(uint64_t peer, const std::string &header, const std::string &data, uint64_t operation) {
    return table.send(table.self, peer, header.data(), static_cast<int64_t>(header.size()), data.data(),
                      static_cast<int64_t>(data.size()), operation, &error);
  }
};

std::string text(const void *data, int64_t bytes) {
  return {static_cast<const char *>(data), static_cast<size_t>(bytes)};
}

TEST(MemoryTransport, MessagesArriveInOrderWithTheirData) {
  Endpoint a, b;
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(b, &peer), KVC_TRANSPORT_OK);
  EXPECT_EQ(a.send(peer, "one", "data", 5), KVC_TRANSPORT_OK);
  EXPECT_EQ(a.send(peer, "two", "", 6), KVC_TRANSPORT_OK);
  ASSERT_EQ(a.poll(), 1);  // a message without data has no SENT
  EXPECT_EQ(a.events[0].kind, KVC_TRANSPORT_SENT);
  EXPECT_EQ(a.events[0].operation, 5u);
  ASSERT_EQ(b.poll(), 2);
  EXPECT_EQ(b.events[0].kind, KVC_TRANSPORT_RECEIVED);
  EXPECT_EQ(text(b.events[0].header, b.events[0].header_bytes), "one");
  EXPECT_EQ(text(b.events[0].data, b.events[0].data_bytes), "data");
  EXPECT_EQ(text(b.events[1].header, b.events[1].header_bytes), "two");
  EXPECT_EQ(b.poll(), 0);
}

TEST(MemoryTransport, AFullQueueIsRetried) {
  Endpoint a, b;
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(b, &peer), KVC_TRANSPORT_OK);
  const std::string data(1 << 20, 'x');
  int accepted = 0;
  while (a.send(peer, "h", data, 1) == KVC_TRANSPORT_OK) ++accepted;
  EXPECT_GT(accepted, 4);
  EXPECT_LT(accepted, 12);
  while (b.poll() > 0) {
  }
  EXPECT_EQ(a.send(peer, "h", data, 1), KVC_TRANSPORT_OK);
}

TEST(MemoryTransport, APeerThatCloses) {
  Endpoint a, b;
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(b, &peer), KVC_TRANSPORT_OK);
  b.close();
  ASSERT_EQ(a.poll(), 1);
  EXPECT_EQ(a.events[0].kind, KVC_TRANSPORT_LOST);
  EXPECT_EQ(a.events[0].peer, peer);
  EXPECT_EQ(a.send(peer, "h", "", 1), KVC_TRANSPORT_FAILED);
  EXPECT_EQ(a.connect(a, &peer), KVC_TRANSPORT_OK);
  EXPECT_EQ(a.table.connect(a.table.self, "short", 5, &peer, &a.error), KVC_TRANSPORT_FAILED);
}

TEST(MemoryTransport, NothingIsSentInAChildOfFork) {
  Endpoint a, b;
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(b, &peer), KVC_TRANSPORT_OK);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = a.send(peer, "h", "data", 1) == KVC_TRANSPORT_FAILED &&
                         a.connect(b, &peer) == KVC_TRANSPORT_FAILED && a.poll() == 0;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kvc
