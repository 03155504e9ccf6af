// The NIXL transport over a library that reverses, loses and invents notifications.
#include <dlfcn.h>
#include <kvcache_nixl.h>

#include <cstring>

#include "endpoint_fixture.h"
#include "fake_nixl.h"

namespace kvt {
namespace {

template <class Function>
Function *find(const char *name) {
  static void *const library = dlopen(KVC_FAKE_NIXL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function *>(dlsym(library, name));
}
FakeNixl &fake() { return *find<decltype(fake_nixl)>("fake_nixl")(); }

kvc_status open(const char *agent, kvc_transport *transport, kvc_error *error) {
  kvc_nixl_config config;
  kvc_nixl_config_init(&config);
  config.library = KVC_FAKE_NIXL;
  config.agent = agent;
  return kvc_nixl_transport_open(&config, transport, error);
}
kvc_transport opened(const char *agent) {
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(open(agent, &transport, &error), KVC_OK) << error.message;
  return transport;
}

// The head of a notification, as transports/nixl/endpoint.h has it.
struct Note {
  uint32_t kind, header_bytes;
  uint64_t session, number;
};

struct FakeNixlTest : testing::Test {
  Endpoint a{opened("a")}, b{opened("b")};
  uint64_t peer = 0;

  FakeNixlTest() {
    EXPECT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
    b.poll();
  }
  ~FakeNixlTest() override { fake() = {}; }
  void send(uint64_t operation) {
    EXPECT_EQ(a.send(peer, "h" + std::to_string(operation), "data", operation), KVC_TRANSPORT_OK) << a.error.message;
  }
  void poll_both() {
    for (int i = 0; i < 20; i++) {
      a.poll();
      b.poll();
    }
  }
  // What b has received.
  std::string headers() {
    std::string all;
    for (const auto &message : b.received) all += message.header + " ";
    return all;
  }
};

TEST_F(FakeNixlTest, NotificationsThatOvertakeEachOther) {
  fake().reversed = true;
  for (uint64_t i = 1; i <= 9; i++) send(i);
  poll_both();
  EXPECT_EQ(headers(), "h1 h2 h3 h4 h5 h6 h7 h8 h9 ");
  EXPECT_EQ(a.sent, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(FakeNixlTest, AnOperationEndsWhenTheReceiverHasTakenIt) {
  send(1);
  for (int i = 0; i < 5; i++) a.poll();
  EXPECT_TRUE(a.sent.empty());
  b.poll();
  a.poll();
  EXPECT_EQ(a.sent, std::vector<uint64_t>{1});
}

TEST_F(FakeNixlTest, StrangeNotificationsAreIgnored) {
  const auto inject = [](const char *from, const Note &note, const std::string &rest) {
    std::string bytes(reinterpret_cast<const char *>(&note), sizeof note);
    bytes += rest;
    find<decltype(fake_nixl_inject)>("fake_nixl_inject")("b", from, bytes.data(), bytes.size());
  };
  find<decltype(fake_nixl_inject)>("fake_nixl_inject")("b", "a", "short", 5);
  for (uint32_t kind = 0; kind < 9; kind++) {
    inject("stranger", {kind, 1, 1, 0}, "x");
    inject("a", {kind, 1, 77, 0}, "x");  // another session
    inject("a", {kind, 0xffffffff, 77, UINT64_MAX}, "x");
  }
  inject("a", {1, 0, 5, 0}, std::string(100, 'x'));  // a hello without an address
  const Bytes own = b.address();
  inject("a", {1, 0, 5, 0}, std::string(own.begin(), own.end()));  // with that of another agent
  send(1);
  Note note;
  std::memcpy(&note, fake().last.data(), sizeof note);  // in the right session
  b.poll();
  inject("a", note, "again");
  note.number++;
  note.header_bytes = 6;
  inject("a", note, "short");
  note.header_bytes = KVC_TRANSPORT_MAX_HEADER_BYTES + 1;
  inject("a", note, std::string(500, 'x'));
  note.header_bytes = 1;
  inject("a", note, std::string((1 << 20) + 2, 'x'));
  send(2);
  poll_both();
  EXPECT_EQ(headers(), "h1 h2 ");
  EXPECT_EQ(a.sent.size(), 2u);
}

TEST_F(FakeNixlTest, ALostAgentEndsItsOperationsAndCanBeReachedAgain) {
  uint64_t second = 0;
  ASSERT_EQ(a.connect(b.address(), &second), KVC_TRANSPORT_OK);
  send(1);
  fake().broken = true;
  EXPECT_EQ(a.send(second, "h", "data", 2), KVC_TRANSPORT_FAILED);
  EXPECT_NE(std::string(a.error.message).find("NIXL cannot send: error of the backend (-2)"), std::string::npos)
      << a.error.message;
  EXPECT_EQ(a.send(peer, "h", "data", 3), KVC_TRANSPORT_FAILED);
  a.poll();
  EXPECT_EQ(a.sent, std::vector<uint64_t>{1});  // and not those that were refused
  EXPECT_EQ(a.lost, (std::vector<uint64_t>{peer, second}));
  uint64_t later = 0;
  EXPECT_EQ(a.connect(b.address(), &later), KVC_TRANSPORT_FAILED);
  fake().broken = false;
  ASSERT_EQ(a.connect(b.address(), &peer), KVC_TRANSPORT_OK) << a.error.message;
  send(4);
  poll_both();
  EXPECT_EQ(headers(), "h1 h4 ");
  EXPECT_EQ(a.sent, (std::vector<uint64_t>{1, 4}));
  EXPECT_EQ(a.lost.size(), 2u);
}

TEST_F(FakeNixlTest, ASilentAgentThatIsLostIsNoticed) {
  fake().broken = true;
  while (a.lost.empty()) a.poll();
  EXPECT_EQ(a.lost, std::vector<uint64_t>{peer});
}

TEST_F(FakeNixlTest, AnAgentWithTheNameOfAnEarlierOne) {
  b.close();
  Endpoint again(opened("b"));
  EXPECT_EQ(a.send(peer, "h", "data", 1), KVC_TRANSPORT_OK);  // to the name, but of a session that it does not have
  for (int i = 0; i < 5; i++) again.poll();
  EXPECT_TRUE(again.received.empty());
}

TEST_F(FakeNixlTest, WhatNixlSaysWrong) {
  Endpoint c(opened("c"));
  fake().wrong_name = true;
  EXPECT_EQ(a.connect(c.address(), &peer), KVC_TRANSPORT_FAILED);
  EXPECT_NE(std::string(a.error.message).find("agent \"c\" has the metadata of \"another\""), std::string::npos)
      << a.error.message;
  fake() = {};
  fake().filler_bytes = KVC_TRANSPORT_MAX_ADDRESS_BYTES;
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(open("d", &transport, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("at most 4096 are allowed"), std::string::npos) << error.message;
  EXPECT_EQ(open("a", &transport, &error), KVC_ERROR_IO);  // NIXL refuses the agent
  EXPECT_NE(std::string(error.message).find("NIXL cannot make an agent: invalid parameter (-1)"), std::string::npos)
      << error.message;
}

}  // namespace
}  // namespace kvt
