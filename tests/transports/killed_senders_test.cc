// A receiver whose senders are killed while they send without pause.
#include <chrono>
#include <memory>
#include <thread>

#include "endpoint_fixture.h"
#include "peer_process.h"

namespace kvt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kWay[] = "sharedMemory";

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
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(open_transport(kWay, &transport, &error), KVC_OK) << error.message;
  Endpoint receiver(transport);
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

}  // namespace
}  // namespace kvt
