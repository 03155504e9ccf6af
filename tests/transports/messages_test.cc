// Messages between two endpoints of this process, by the table of a transport.
#include <sys/wait.h>

#include <chrono>
#include <deque>
#include <set>
#include <thread>

#include "endpoint_fixture.h"
#include "two_processes.h"

namespace kvt {
namespace {

kvc_transport opened(const std::string &way) {
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(open_transport(way, &transport, &error), KVC_OK) << error.message;
  return transport;
}

std::string data_of(int message, int64_t max) {
  static constexpr int64_t kBytes[] = {0, 1, 100, 9000, 70000, 262144, 1 << 20};
  std::string data(static_cast<size_t>(std::min(kBytes[message % 7], max)), '\0');
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<char>(i * 7 + static_cast<size_t>(message));
  return data;
}

class Messages : public EachWay {};

// Two senders, each in both directions with one receiver. Long and short messages alternate.
TEST_P(Messages, ArriveWholeOnceAndInOrder) {
  constexpr int kCount = 40;
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  uint64_t to_b = 0, to_a = 0;
  ASSERT_EQ(a.connect(b.address(), &to_b), KVC_TRANSPORT_OK) << a.error.message;
  ASSERT_EQ(b.connect(a.address(), &to_a), KVC_TRANSPORT_OK) << b.error.message;
  std::deque<std::string> memory;  // stays valid
  for (int i = 0; i < kCount; i++) {
    const std::string header = "message " + std::to_string(i);
    memory.push_back(data_of(i, a.table.max_message_bytes));
    ASSERT_EQ(a.send(to_b, header, memory.back(), static_cast<uint64_t>(i + 1)), KVC_TRANSPORT_OK) << a.error.message;
    ASSERT_EQ(b.send(to_a, header, memory.back(), static_cast<uint64_t>(i + 1)), KVC_TRANSPORT_OK) << b.error.message;
    if (i % 5 == 0) a.poll();
  }
  const size_t with_data = kCount - (kCount + 6) / 7;
  const auto is_done = [&](const Endpoint &end) {
    return end.sent.size() >= with_data && end.received.size() >= size_t{kCount};
  };
  for (int tries = 0; tries < 1000000 && !(is_done(a) && is_done(b)); tries++) {
    a.poll();
    b.poll();
  }
  for (Endpoint *end : {&a, &b}) {
    ASSERT_EQ(end->received.size(), size_t{kCount});
    for (int i = 0; i < kCount; i++) {
      const Endpoint::Received &message = end->received[static_cast<size_t>(i)];
      EXPECT_EQ(message.header, "message " + std::to_string(i));
      EXPECT_TRUE(message.data == data_of(i, a.table.max_message_bytes)) << i;
    }
    EXPECT_EQ(end->sent.size(), with_data);  // once for each with data
    EXPECT_EQ(std::set<uint64_t>(end->sent.begin(), end->sent.end()).size(), with_data);
    EXPECT_TRUE(end->lost.empty());
  }
}

TEST_P(Messages, AnEndpointReachesItself) {
  Endpoint a(opened(GetParam()));
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(a.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const std::string data = data_of(3, 9000);
  ASSERT_EQ(a.send(peer, "header", data, 5), KVC_TRANSPORT_OK) << a.error.message;
  for (int tries = 0; tries < 1000000 && (a.sent.empty() || a.received.empty()); tries++) a.poll();
  ASSERT_EQ(a.received.size(), 1u);
  EXPECT_TRUE(a.received[0].data == data);
  EXPECT_EQ(a.sent, std::vector<uint64_t>{5});
}

// Polls an endpoint in another thread, until it has received a number of messages.
class Poller {
 public:
  Poller(Endpoint *end, size_t messages)
      : thread_([=] {
          const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (end->received.size() < messages && std::chrono::steady_clock::now() < until) end->poll();
          for (int i = 0; i < 100; i++) end->poll();  // its answers leave
        }) {}
  void join() { thread_.join(); }

 private:
  std::thread thread_;
};

// What is sent after disconnect and a new connect comes after what was sent before.
TEST_P(Messages, GoOnAfterDisconnect) {
  constexpr int kRounds = 40;  // more than an endpoint has rings for its senders
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  const std::string data = data_of(4, 70000);
  Poller receiver(&b, kRounds);
  for (int round = 0; round < kRounds; round++) {
    uint64_t peer = 0;
    EXPECT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
    EXPECT_EQ(a.send(peer, std::to_string(round), data, static_cast<uint64_t>(round + 1)), KVC_TRANSPORT_OK);
    EXPECT_EQ(a.flush(peer), KVC_TRANSPORT_OK);
    a.table.disconnect(a.table.self, peer);
    EXPECT_EQ(a.send(peer, "late", data, 9), KVC_TRANSPORT_FAILED);
    EXPECT_EQ(a.flush(peer), KVC_TRANSPORT_FAILED);
  }
  receiver.join();
  for (int tries = 0; tries < 1000 && a.sent.size() < kRounds; tries++) a.poll();
  EXPECT_EQ(a.sent.size(), size_t{kRounds});
  ASSERT_EQ(b.received.size(), size_t{kRounds});
  for (int round = 0; round < kRounds; round++) {
    EXPECT_EQ(b.received[static_cast<size_t>(round)].header, std::to_string(round));
    EXPECT_TRUE(b.received[static_cast<size_t>(round)].data == data);
  }
}

// The sender does not poll after flush. It has not polled before either, so connections are made in flush.
TEST_P(Messages, LeaveBeforeFlushReturns) {
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  Poller receiver(&b, 2);
  uint64_t peer = 0;
  EXPECT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const std::string why = "it was cancelled", data = data_of(5, a.table.max_message_bytes);
  EXPECT_EQ(a.send(peer, "data", data, 1), KVC_TRANSPORT_OK) << a.error.message;
  EXPECT_EQ(a.send(peer, "last words", why, 2), KVC_TRANSPORT_OK) << a.error.message;
  EXPECT_EQ(a.flush(peer), KVC_TRANSPORT_OK);
  a.table.disconnect(a.table.self, peer);
  receiver.join();
  ASSERT_EQ(b.received.size(), 2u);
  EXPECT_TRUE(b.received[0].data == data);
  EXPECT_EQ(b.received[1].header, "last words");
  EXPECT_EQ(b.received[1].data, why);
}

// A receiver that runs and never polls holds no data of the sender after disconnect.
TEST_P(Messages, DisconnectEndsOperations) {
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  const Bytes address = b.address();
  const std::string data = data_of(5, a.table.max_message_bytes);
  for (int round = 0; round < 3; round++) {
    uint64_t peer = 0;
    ASSERT_EQ(a.connect(address, &peer), KVC_TRANSPORT_OK) << a.error.message;
    for (uint64_t i = 0; i < 64; i++) ASSERT_EQ(a.send(peer, "rows", data, i), KVC_TRANSPORT_OK) << a.error.message;
    if (round == 1) {
      for (int i = 0; i < 100; i++) a.poll();
    }
    if (round == 2) {
      EXPECT_EQ(a.flush(peer, 50), KVC_TRANSPORT_RETRY);
    }
    a.table.disconnect(a.table.self, peer);
    for (int tries = 0; tries < 1000 && a.sent.size() < 64; tries++) a.poll();
    EXPECT_EQ(a.sent.size(), 64u) << "round " << round;
    a.sent.clear();
  }
  // The endpoint still reaches others.
  Endpoint c(opened(GetParam()));
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(c.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  Poller receiver(&c, 1);
  EXPECT_EQ(a.send(peer, "rows", data, 1), KVC_TRANSPORT_OK) << a.error.message;
  EXPECT_EQ(a.flush(peer), KVC_TRANSPORT_OK);
  receiver.join();
  ASSERT_EQ(c.received.size(), 1u);
  EXPECT_TRUE(c.received[0].data == data);
}

TEST_P(Messages, AChildOfForkDoesNothing) {
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  uint64_t peer = 0;
  ASSERT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const Bytes address = b.address();
  const pid_t child = fork();
  if (child == 0) {
    uint64_t other = 0;
    kvc_transport_event event;
    const bool right = a.connect(address, &other) == KVC_TRANSPORT_FAILED &&
                       a.send(peer, "h", "data", 1) == KVC_TRANSPORT_FAILED &&
                       a.table.poll(a.table.self, &event, 1) == 0;
    a.close();
    _exit(right ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string data = "data";
  ASSERT_EQ(a.send(peer, "h", data, 1), KVC_TRANSPORT_OK) << a.error.message;
  for (int tries = 0; tries < 1000000 && (b.received.empty() || a.sent.empty()); tries++) {
    a.poll();
    b.poll();
  }
  EXPECT_EQ(b.received.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Messages, testing::ValuesIn(kWays), [](const auto &info) { return info.param; });

}  // namespace
}  // namespace kvt
