// Receivers over shared memory whose senders are killed while they send without pause, or end.
#include <chrono>
#include <memory>
#include <thread>

#include "endpoint_fixture.h"
#include "peer_process.h"

namespace kvt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWay[] = "sharedMemory";

kvc_transport opened() {
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(open_transport(kWay, &transport, &error), KVC_OK) << error.message;
  return transport;
}

// Polls until a number of messages has arrived, at most 10 s.
bool receive(Endpoint *end, size_t messages) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (end->received.size() < messages && Clock::now() < until) end->poll();
  return end->received.size() >= messages;
}

std::unique_ptr<Peer> sender(Endpoint *receiver, const char *mode, int bytes) {
  auto made = std::make_unique<Peer>(mode, kWay, bytes);
  EXPECT_TRUE(write_bytes(made->in, receiver->address()));
  return made;
}

// In each round, senders of both kinds are killed at once. Then another sender must be received.
TEST(KilledSenders, DoNotStopOthers) {
  Endpoint receiver(opened());
  const auto until = Clock::now() + std::chrono::seconds(4);
  for (int round = 0; round < 30 && Clock::now() < until; round++) {
    const std::unique_ptr<Peer> senders[] = {sender(&receiver, "flood", round % 2 * 1000),
                                             sender(&receiver, "reconnect", 1)};
    ASSERT_TRUE(receive(&receiver, 20)) << "round " << round << senders[0]->state() << senders[1]->state();
    const auto pause = Clock::now() + std::chrono::microseconds(round * 137 % 3000);
    while (Clock::now() < pause) receiver.poll();
    for (const auto &one : senders) one->end(SIGKILL);
    receiver.received.clear();
  }
  // What the killed senders had sent ends.
  for (size_t before = 1; before != receiver.received.size();) {
    before = receiver.received.size();
    const auto pause = Clock::now() + std::chrono::milliseconds(200);
    while (Clock::now() < pause) receiver.poll();
  }
  receiver.received.clear();
  const std::unique_ptr<Peer> last = sender(&receiver, "flood", 100);
  EXPECT_TRUE(receive(&receiver, 5)) << last->state();
}

// An endpoint closes. The other one receives its messages before the event LOST.
TEST(EndedSenders, AreLostAfterTheirMessages) {
  constexpr size_t kCount = 100;
  Endpoint a(opened()), b(opened());
  uint64_t to_b = 0, to_a = 0;
  ASSERT_EQ(a.connect(b.address(), &to_b), KVC_TRANSPORT_OK) << a.error.message;
  ASSERT_EQ(b.connect(a.address(), &to_a), KVC_TRANSPORT_OK) << b.error.message;
  for (size_t i = 0; i < kCount; i++) ASSERT_EQ(a.send(to_b, "message", "", 1), KVC_TRANSPORT_OK);
  b.poll();
  a.close();
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (b.lost.empty() && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that the end is looked for soon
    b.poll();
  }
  EXPECT_EQ(b.lost, std::vector<uint64_t>{to_a});
  EXPECT_EQ(b.received.size(), kCount);
  EXPECT_EQ(b.send(to_a, "late", "", 1), KVC_TRANSPORT_FAILED);
}

// A ring that is never empty does not keep other events waiting.
TEST(EndedSenders, AFullRingLeavesRoomForEvents) {
  Endpoint a(opened()), b(opened());
  uint64_t to_b = 0, to_a = 0;
  ASSERT_EQ(a.connect(b.address(), &to_b), KVC_TRANSPORT_OK) << a.error.message;
  ASSERT_EQ(b.connect(a.address(), &to_a), KVC_TRANSPORT_OK) << b.error.message;
  for (int i = 0; i < 1000; i++) ASSERT_EQ(a.send(to_b, "message", "", 1), KVC_TRANSPORT_OK);
  const std::string data = "data";
  for (uint64_t i = 0; i < 4; i++) ASSERT_EQ(b.send(to_a, "answer", data, i), KVC_TRANSPORT_OK);
  for (int i = 0; i < 4; i++) b.poll();
  EXPECT_EQ(b.sent.size(), 4u);
  EXPECT_GE(b.received.size(), 4u);
}

// Two transfers to one endpoint share a ring, and none of them waits for the other one.
TEST(SharedRings, KeepTheOrderOfAllPeers) {
  constexpr size_t kCount = 40;
  Endpoint a(opened()), b(opened());
  uint64_t peers[2] = {};
  for (uint64_t &peer : peers) ASSERT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const std::string data(1 << 20, 'x'), little = "little";
  for (size_t i = 0; i < kCount; i++) {
    const std::string &sent = i % 2 == 0 ? data : little;
    ASSERT_EQ(a.send(peers[i % 2], std::to_string(i), sent, i), KVC_TRANSPORT_OK) << a.error.message;
  }
  const auto until = Clock::now() + std::chrono::seconds(10);
  while ((b.received.size() < kCount || a.sent.size() < kCount) && Clock::now() < until) {
    a.poll();
    b.poll();
  }
  ASSERT_EQ(b.received.size(), kCount);
  for (size_t i = 0; i < kCount; i++) {
    EXPECT_EQ(b.received[i].header, std::to_string(i));
    EXPECT_EQ(a.sent[i], i);
  }
  EXPECT_EQ(a.flush(peers[1]), KVC_TRANSPORT_OK);
}

// The messages of one peer are dropped, and those of the other one arrive.
TEST(SharedRings, DisconnectDropsMessagesOfOnePeer) {
  constexpr size_t kCount = 20;
  Endpoint a(opened()), b(opened());
  uint64_t peers[2] = {};
  for (uint64_t &peer : peers) ASSERT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  const std::string data(1 << 20, 'x');
  for (size_t i = 0; i < kCount; i++) {
    ASSERT_EQ(a.send(peers[i % 2], std::to_string(i % 2), data, i), KVC_TRANSPORT_OK) << a.error.message;
  }
  EXPECT_EQ(a.flush(peers[0], 20), KVC_TRANSPORT_RETRY);
  a.table.disconnect(a.table.self, peers[0]);
  const auto until = Clock::now() + std::chrono::seconds(10);
  size_t kept = 0;
  while ((kept < kCount / 2 || a.sent.size() < kCount) && Clock::now() < until) {
    a.poll();
    b.poll();
    kept = 0;
    for (const Endpoint::Received &message : b.received) kept += message.header == "1" ? 1u : 0u;
  }
  EXPECT_EQ(kept, kCount / 2);
  EXPECT_EQ(a.sent.size(), kCount);
  EXPECT_LT(b.received.size(), kCount);
}

// Each way must refuse what is too long for the receiver.
TEST(LongMessages, AreRefused) {
  for (const char *way : kWays) {
    kvc_transport transport;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(open_transport(way, &transport, &error), KVC_OK) << error.message;
    Endpoint a(transport);
    uint64_t peer = 0;
    ASSERT_EQ(a.connect(a.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
    const std::string data(static_cast<size_t>(a.table.max_message_bytes) + 1, 'x');
    EXPECT_EQ(a.send(peer, "header", data, 1), KVC_TRANSPORT_FAILED);
    EXPECT_EQ(std::string(a.error.message), "transport ucx: the message has 1048577 bytes, and 6 of the header");
    EXPECT_EQ(a.send(peer, std::string(KVC_TRANSPORT_MAX_HEADER_BYTES + 1, 'h'), "", 1), KVC_TRANSPORT_FAILED);
    const std::string longest = data.substr(1), header(KVC_TRANSPORT_MAX_HEADER_BYTES, 'h');
    ASSERT_EQ(a.send(peer, header, longest, 2), KVC_TRANSPORT_OK) << a.error.message;
    ASSERT_TRUE(receive(&a, 1));
    EXPECT_EQ(a.received[0].header, header);
    EXPECT_TRUE(a.received[0].data == longest);
  }
}

}  // namespace
}  // namespace kvt
