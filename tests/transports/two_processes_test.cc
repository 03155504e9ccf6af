// Transfers between two processes: this one, and peer.cc.
#include <thread>

#include "peer_process.h"

namespace kvt {
namespace {

int open_files() {
  int count = 0;
  for (int file = 0; file < 1024; file++) count += fcntl(file, F_GETFD) >= 0;
  return count;
}

class TwoProcesses : public EachWay {};

TEST_P(TwoProcesses, PrefillInAnotherProcess) {
  Peer peer("prefill", GetParam(), 23);
  Engine decode;
  use_transport(&decode, GetParam());
  kvc_transfer in = 0;
  ASSERT_EQ(decode.receive(23, &in), KVC_OK);
  ASSERT_TRUE(write_bytes(peer.in, decode.describe(in)));
  kvc_transfer_info info;
  for (info.done = 0; info.done == 0;) {
    ASSERT_EQ(decode.poll(in, &info), KVC_OK) << decode.error.message << peer.state();
  }
  EXPECT_EQ(decode.steps(info.sequence, 6), Engine::expected({}, 23, 6));
  EXPECT_EQ(peer.end(), 0);
}

TEST_P(TwoProcesses, DecodeInAnotherProcess) {
  Peer peer("decode", GetParam(), 30);
  Engine prefill;
  use_transport(&prefill, GetParam());
  const Bytes description = read_bytes(peer.out);
  ASSERT_FALSE(description.empty());
  const kvc_seq seq = prefill.add();
  kvc_transfer out = 0;
  ASSERT_EQ(prefill.send(seq, description, &out), KVC_OK) << prefill.error.message;
  kvc_transfer_info info;
  for (int i = 0; i < 3; i++) {
    prefill.step(seq, 10, [&](size_t) { EXPECT_EQ(prefill.poll(out, &info), KVC_OK) << prefill.error.message; });
  }
  for (info.done = 0; info.done == 0;) ASSERT_EQ(prefill.poll(out, &info), KVC_OK) << prefill.error.message;
  EXPECT_EQ(read_bytes(peer.out), Engine::expected({}, 30, 6));
  EXPECT_EQ(peer.end(), 0);
}

TEST_P(TwoProcesses, AKilledSenderIsNoticed) {
  const Bytes expected = Engine::expected({}, 23, 6);
  const bool one_receiver = outlives_killed_senders(GetParam());
  std::unique_ptr<Engine> decode = engine_with_transport(GetParam());
  int files = 0;
  for (int round = 0; round < 4; round++) {
    Peer peer("prefill", GetParam(), 14);  // of 23: it waits then, and polls
    kvc_transfer in = 0;
    kvc_transfer_info info;
    ASSERT_EQ(decode->receive(23, &in, 5000), KVC_OK) << decode->error.message;
    ASSERT_TRUE(write_bytes(peer.in, decode->describe(in)));
    for (info.tokens = 0; info.tokens < 14;) {
      ASSERT_EQ(decode->poll(in, &info), KVC_OK) << decode->error.message << peer.state();
    }
    peer.end(SIGKILL);
    kvc_status status = KVC_OK;
    while (status == KVC_OK) status = decode->poll(in, &info);
    EXPECT_EQ(status, KVC_ERROR_IO);
    EXPECT_NE(std::string(decode->error.message).find("has ended"), std::string::npos) << decode->error.message;
    EXPECT_EQ(decode->used_pages(), 0);
    decode->check();
    if (round == 1) files = open_files();
    if (round == 3) {
      EXPECT_LE(open_files(), files + 1);
    }
    if (!one_receiver) decode = engine_with_transport(GetParam());
  }
  // Another sender works after that.
  Peer peer("prefill", GetParam(), 23);
  kvc_transfer in = 0;
  kvc_transfer_info info;
  ASSERT_EQ(decode->receive(23, &in), KVC_OK) << decode->error.message;
  ASSERT_TRUE(write_bytes(peer.in, decode->describe(in)));
  for (info.done = 0; info.done == 0;) {
    ASSERT_EQ(decode->poll(in, &info), KVC_OK) << decode->error.message << peer.state();
  }
  EXPECT_EQ(decode->steps(info.sequence, 6), expected);
  EXPECT_EQ(peer.end(), 0);
}

TEST_P(TwoProcesses, AKilledReceiverIsNoticed) {
  Engine prefill;
  use_transport(&prefill, GetParam());
  const kvc_seq seq = prefill.add();
  prefill.step(seq, 12);
  kvc_transfer out = 0;
  kvc_transfer_info info;
  Peer peer("decode", GetParam(), 30);
  ASSERT_EQ(prefill.send(seq, read_bytes(peer.out), &out), KVC_OK) << prefill.error.message;
  for (info.tokens = 0; info.tokens < 12;) ASSERT_EQ(prefill.poll(out, &info), KVC_OK) << prefill.error.message;
  std::thread watcher([&] {
    EXPECT_TRUE(peer.wait_moved());
    peer.end(SIGKILL);
  });
  kvc_status status = KVC_OK;
  while (status == KVC_OK) status = prefill.poll(out, &info);
  watcher.join();
  EXPECT_EQ(status, KVC_ERROR_IO);
  EXPECT_NE(std::string(prefill.error.message).find("has ended"), std::string::npos) << prefill.error.message;
  prefill.check();
  EXPECT_EQ(prefill.steps(seq, 6), Engine::expected({}, 12, 6));
}

TEST_P(TwoProcesses, ACancelledTransferIsNoticed) {
  Engine decode;
  use_transport(&decode, GetParam());
  Peer peer("prefill", GetParam(), 14);  // of 23: it waits then, and polls
  kvc_transfer in = 0;
  kvc_transfer_info info;
  ASSERT_EQ(decode.receive(23, &in), KVC_OK) << decode.error.message;
  ASSERT_TRUE(write_bytes(peer.in, decode.describe(in)));
  for (info.tokens = 0; info.tokens < 14;) ASSERT_EQ(decode.poll(in, &info), KVC_OK) << decode.error.message;
  ASSERT_EQ(kvc_transfer_cancel(decode.cache, in, &decode.error), KVC_OK) << decode.error.message;
  EXPECT_EQ(decode.used_pages(), 0);
  std::string message;  // of the sender
  for (char byte = 0; read_all(peer.out, &byte, 1);) message += byte;
  EXPECT_NE(message.find("it was cancelled"), message.npos) << message;
  EXPECT_EQ(WEXITSTATUS(peer.end()), 1);
  decode.check();
}

INSTANTIATE_TEST_SUITE_P(Ways, TwoProcesses, testing::ValuesIn(kWays), [](const auto &info) { return info.param; });

}  // namespace
}  // namespace kvt
