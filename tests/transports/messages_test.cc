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
  for (int tries = 0; tries < 1000000 && (b.sent.size() < with_data || a.sent.size() < with_data); tries++) {
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

// What is sent after disconnect and a new connect comes after what was sent before.
TEST_P(Messages, GoOnAfterDisconnect) {
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  const std::string data = data_of(4, 70000);
  for (int round = 0; round < 3; round++) {
    uint64_t peer = 0;
    ASSERT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
    ASSERT_EQ(a.send(peer, std::to_string(round), data, static_cast<uint64_t>(round + 1)), KVC_TRANSPORT_OK);
    a.table.disconnect(a.table.self, peer);
    EXPECT_EQ(a.send(peer, "late", data, 9), KVC_TRANSPORT_FAILED);
  }
  for (int tries = 0; tries < 1000000 && a.sent.size() < 3; tries++) {
    a.poll();
    b.poll();
  }
  for (int tries = 0; tries < 1000000 && b.received.size() < 3; tries++) b.poll();
  ASSERT_EQ(b.received.size(), 3u);
  for (int round = 0; round < 3; round++) {
    EXPECT_EQ(b.received[static_cast<size_t>(round)].header, std::to_string(round));
  }
}

// The sender does not poll after disconnect, and its messages do not wait for that: connections are made first.
TEST_P(Messages, LeaveBeforeDisconnectReturns) {
  Endpoint a(opened(GetParam())), b(opened(GetParam()));
  std::thread receiver([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (b.received.empty() && std::chrono::steady_clock::now() < end) b.poll();
  });
  uint64_t peer = 0;
  EXPECT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const std::string why = "it was cancelled";
  EXPECT_EQ(a.send(peer, "last words", why, 1), KVC_TRANSPORT_OK) << a.error.message;
  a.table.disconnect(a.table.self, peer);
  receiver.join();
  ASSERT_EQ(b.received.size(), 1u);
  EXPECT_EQ(b.received[0].header, "last words");
  EXPECT_EQ(b.received[0].data, why);
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
