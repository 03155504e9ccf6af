// TLS connections of the Redis tier: which certificates are refused, and what a connection survives.
#include <csignal>
#include <fstream>

#include "proxy.h"
#include "redis_cluster.h"
#include "tls_files.h"

extern "C" kvc_status kvc_tier_open(uint32_t version, const char *options, kvc_tier *tier, kvc_error *error);

namespace kvt {
namespace {

constexpr size_t kTlsBytes = 20000;

std::string at_port(int port, const std::string &host = "127.0.0.1") { return host + ":" + std::to_string(port); }

struct TlsConfig : RedisConfig {
  TlsConfig(const TlsFiles &files, const std::string &server) : RedisConfig(server), ca_file(files.path("ca.pem")) {
    flags = KVC_REDIS_TLS;
    tls_ca_file = ca_file.c_str();
  }
  std::string ca_file;
};

// Expects that the tier cannot be opened, and returns the message.
std::string refusal_of(const kvc_redis_config &config, kvc_status status = KVC_ERROR_IO) {
  kvc_tier tier = {};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_redis_tier_open(&config, &tier, &error), status) << error.message;
  if (error.code == KVC_OK) tier.close(tier.self);
  return error.message;
}

void expect_in(const std::string &part, const std::string &message) {
  EXPECT_NE(message.find(part), std::string::npos) << message << "  lacks  " << part;
}

void expect_round_trip(TierDriver &tier, uint64_t number, size_t bytes) {
  const Bytes payload = payload_of(number, 0, bytes);
  ASSERT_EQ(tier.store(number, payload), KVC_TIER_OK) << "errno " << tier.os_error();
  Bytes loaded(bytes, 'x');
  ASSERT_EQ(tier.load(number, &loaded), KVC_TIER_OK) << "errno " << tier.os_error();
  EXPECT_TRUE(loaded == payload);
}

// Whether a thread of the tier was sent SIGPIPE. These threads block signals, so it is not seen otherwise.
bool sigpipe_is_pending() {
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      if (word != "SigPnd:") continue;
      status >> word;
      if ((std::stoull(word, nullptr, 16) >> (SIGPIPE - 1) & 1) != 0) return true;
    }
  }
  return false;
}

class RedisTls : public ::testing::Test {
 protected:
  void SetUp() override { files.make_certificate("server", "DNS:localhost,IP:127.0.0.1", "ca"); }
  TlsFiles files;
};

TEST_F(RedisTls, StoresAndLoads) {
  for (const char *protocol : {"TLSv1.2", "TLSv1.3"}) {
    auto options = files.server_options("server");
    options.insert(options.end(), {"--tls-protocols", protocol});
    RedisServer server(options);
    TlsConfig config(files, at_port(server.tls_port()));
    config.timeout_ms = 20000;  // instrumented builds are slow
    TierDriver tier(open_redis(config)), other(open_redis(config));
    for (const size_t bytes : {0, 1, 16384, 3000001, 10000000}) {
      EXPECT_EQ(tier.lookup(bytes).result, KVC_TIER_MISS);
      expect_round_trip(tier, bytes, bytes);
      EXPECT_EQ(tier.lookup(bytes).bytes, static_cast<int64_t>(bytes));
      EXPECT_TRUE(becomes(other, bytes, true));
      EXPECT_EQ(server.run({"STRLEN", key_text(bytes)}), std::to_string(bytes + 128));
    }
    EXPECT_EQ(other.remove(1), KVC_TIER_OK);
    EXPECT_TRUE(becomes(tier, 1, false));
    EXPECT_EQ(tier.stats().failed, 0);
  }
}

TEST_F(RedisTls, ManyItemsAtOnce) {
  RedisServer server(files.server_options("server"));
  const TlsConfig config(files, at_port(server.tls_port()));
  TierDriver tier(open_redis(config));
  constexpr size_t kItems = 200;
  std::vector<Bytes> payloads;
  for (uint64_t i = 0; i < kItems; ++i) payloads.push_back(payload_of(i, 0, 1000 + 3777 * i));
  std::vector<Bytes> loaded;
  for (const Bytes &payload : payloads) loaded.emplace_back(payload.size(), 'x');
  for (std::vector<Bytes> *bytes : {&payloads, &loaded}) {
    std::vector<std::unique_ptr<Parts>> parts;
    std::vector<kvc_tier_item> items;
    for (uint64_t i = 0; i < kItems; ++i) {
      parts.push_back(std::make_unique<Parts>(key_of(i), &(*bytes)[i]));
      items.push_back(parts.back()->item());
    }
    const kvc_tier &t = tier.table();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ((bytes == &payloads ? t.store : t.load)(t.self, 1, kItems, items.data(), &error), KVC_TIER_OK);
    for (const auto &done : tier.wait(kItems)) EXPECT_EQ(done.result, KVC_TIER_OK) << done.index;
  }
  EXPECT_TRUE(loaded == payloads);
}

TEST_F(RedisTls, OpensByUrl) {
  RedisServer server(files.server_options("server"));
  const std::string url = "rediss://" + at_port(server.tls_port(), "localhost");
  kvc_tier table = {};
  kvc_error error = KVC_ERROR_INIT;
  const std::string trusted = url + "?timeout_ms=5000&tls_ca_file=" + files.path("ca.pem");
  ASSERT_EQ(kvc_tier_open(KVC_TIER_VERSION, trusted.c_str(), &table, &error), KVC_OK) << error.message;
  TierDriver tier(table);
  expect_round_trip(tier, 1, kTlsBytes);
  // The authorities of the system have not signed it.
  EXPECT_EQ(kvc_tier_open(KVC_TIER_VERSION, url.c_str(), &table, &error), KVC_ERROR_IO);
  expect_in("TLS handshake: certificate verify failed: ", error.message);
}

TEST_F(RedisTls, OtherAuthorityIsRefused) {
  files.make_certificate("stranger", "IP:127.0.0.1", "", 2);
  RedisServer server(files.server_options("server")), other(files.server_options("stranger"));
  TlsConfig config(files, at_port(other.tls_port()));
  expect_in(config.text + ": TLS handshake: certificate verify failed: self-signed certificate", refusal_of(config));
  TlsConfig wrong(files, at_port(server.tls_port()));
  wrong.ca_file = files.path("stranger.pem");
  wrong.tls_ca_file = wrong.ca_file.c_str();
  expect_in("certificate verify failed: ", refusal_of(wrong));
  config.flags |= KVC_REDIS_TLS_NO_VERIFY;
  TierDriver tier(open_redis(config));
  expect_round_trip(tier, 1, kTlsBytes);
  // The next address is used.
  const TlsConfig both(files, at_port(other.tls_port()) + "," + at_port(server.tls_port()));
  TierDriver second(open_redis(both));
  expect_round_trip(second, 2, kTlsBytes);
  EXPECT_EQ(server.run({"DBSIZE"}), "1");
}

TEST_F(RedisTls, ExpiredCertificateIsRefused) {
  files.make_certificate("expired", "IP:127.0.0.1", "ca", -1);
  RedisServer server(files.server_options("expired"));
  const TlsConfig config(files, at_port(server.tls_port()));
  expect_in("TLS handshake: certificate verify failed: certificate has expired", refusal_of(config));
}

TEST_F(RedisTls, OtherNamesAreRefused) {
  files.make_certificate("named", "DNS:cache.internal,DNS:*.wild.internal", "ca");
  RedisServer server(files.server_options("named"));
  TlsConfig config(files, at_port(server.tls_port()));
  expect_in("certificate verify failed: IP address mismatch", refusal_of(config));
  for (const char *name : {"cache.internal", "a.wild.internal"}) {
    config.tls_server_name = name;
    TierDriver tier(open_redis(config));
    expect_round_trip(tier, 1, kTlsBytes);
  }
  for (const char *name : {"other.internal", "a.b.wild.internal", "internal", "127.0.0.2"}) {
    config.tls_server_name = name;
    expect_in(std::string("certificate verify failed: ") + (name[0] == '1' ? "IP address" : "hostname") + " mismatch",
              refusal_of(config));
  }
  TlsConfig by_name(files, at_port(server.tls_port(), "localhost"));
  expect_in("certificate verify failed: hostname mismatch", refusal_of(by_name));
  // A lazy tier refuses the server too.
  by_name.flags |= KVC_REDIS_LAZY;
  TierDriver tier(open_redis(by_name));
  Bytes loaded(kTlsBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), EACCES);
  EXPECT_EQ(server.run({"DBSIZE"}), "1");
}

TEST_F(RedisTls, ServerDemandsACertificate) {
  files.make_certificate("client", "", "ca");
  files.make_certificate("stranger", "", "");
  for (const char *protocol : {"TLSv1.2", "TLSv1.3"}) {
    auto options = files.server_options("server", "yes");
    options.insert(options.end(), {"--tls-protocols", protocol});
    RedisServer server(options);
    TlsConfig config(files, at_port(server.tls_port()));
    expect_in(std::string(protocol) == "TLSv1.3" ? "tlsv13 alert certificate required" : "alert handshake failure",
              refusal_of(config));
    // The server closes the connection while the client sends. The reason is found all the same, and no signal is
    // raised.
    config.password = "word";
    config.database = 1;
    for (int i = 0; i < 50; ++i) expect_in("alert", refusal_of(config));
    config.password = nullptr;
    config.database = 0;
    const std::string certificate = files.path("client.pem"), key = files.path("client.key");
    config.tls_certificate_file = certificate.c_str();
    config.tls_key_file = key.c_str();
    TierDriver tier(open_redis(config));
    expect_round_trip(tier, 1, kTlsBytes);
    const std::string other = files.path("stranger.pem"), other_key = files.path("stranger.key");
    config.tls_certificate_file = other.c_str();
    config.tls_key_file = other_key.c_str();
    expect_in("alert unknown ca", refusal_of(config));
  }
}

TEST_F(RedisTls, FilesOfTheClient) {
  files.make_certificate("client", "", "ca");
  RedisServer server(files.server_options("server", "yes"));
  TlsConfig config(files, at_port(server.tls_port()));
  const std::string certificate = files.path("client.pem"), key = files.path("client.key"),
                    both = files.path("both.pem"), other_key = files.path("ca.key"), locked = files.path("locked.key");
  ASSERT_EQ(std::system(("cat " + certificate + " " + key + " > " + both).c_str()), 0);
  config.tls_certificate_file = both.c_str();
  {
    TierDriver tier(open_redis(config));
    expect_round_trip(tier, 1, kTlsBytes);
  }
  config.tls_certificate_file = certificate.c_str();
  expect_in("tls_key_file " + certificate + ": ", refusal_of(config));  // which has no key
  config.tls_key_file = other_key.c_str();
  expect_in("tls_key_file " + other_key + ": key values mismatch", refusal_of(config));
  files.run("pkcs8 -topk8 -passout pass:word -in " + key + " -out " + locked);
  config.tls_key_file = locked.c_str();
  expect_in("tls_key_file " + locked + ": ", refusal_of(config));  // no password is read from the terminal
  config.tls_certificate_file = key.c_str();
  expect_in("tls_certificate_file " + key + ": no start line", refusal_of(config));
  config.tls_ca_file = key.c_str();
  expect_in("tls_ca_file " + key + ": no certificate", refusal_of(config));
}

TEST_F(RedisTls, OneSideHasNoTls) {
  RedisServer server(files.server_options("server"));
  TlsConfig tls(files, server.address());
  tls.timeout_ms = 300;  // the server waits for the end of a line
  expect_in(server.address() + ": TLS handshake: Connection timed out", refusal_of(tls));
  const RedisConfig plain(at_port(server.tls_port()));
  expect_in("no Redis server can be used: " + plain.text + ": ", refusal_of(plain));
}

// The deadline of a call includes the handshake.
TEST_F(RedisTls, HandshakeStalls) {
  RedisServer server(files.server_options("server"));
  Proxy proxy(server.tls_port());
  TlsConfig config(files, proxy.address());
  config.timeout_ms = 300;
  const int64_t descriptors = open_descriptors();
  proxy.stall = true;
  expect_in(proxy.address() + ": TLS handshake: Connection timed out", refusal_of(config));
  proxy.stall = false;
  proxy.chunk = 100, proxy.delay_ms = 100;
  expect_in("TLS handshake: Connection timed out", refusal_of(config));
  proxy.chunk = 1 << 16, proxy.delay_ms = 0;
  config.timeout_ms = 5000;
  TierDriver tier(open_redis(config));
  expect_round_trip(tier, 1, kTlsBytes);
  EXPECT_LE(open_descriptors(), descriptors + 20);
}

// The connection breaks after any number of bytes of the handshake or of a reply.
TEST_F(RedisTls, CutConnections) {
  RedisServer server(files.server_options("server"));
  Proxy proxy(server.tls_port());
  TlsConfig config(files, proxy.address());
  config.threads = 1;
  TierDriver tier(open_redis(config));
  const Bytes payload = payload_of(1, 0, kTlsBytes);
  ASSERT_EQ(tier.store(1, payload), KVC_TIER_OK);
  int failed = 0;
  for (int64_t room = 1; room < 25000; room += room < 2000 ? 97 : 2309) {
    proxy.room = room;
    Bytes loaded(kTlsBytes, 'x');
    const int32_t result = tier.load(1, &loaded);
    failed += result == KVC_TIER_FAILED;
    EXPECT_TRUE(result == KVC_TIER_FAILED || (result == KVC_TIER_OK && loaded == payload)) << room;
    proxy.room = -1;
    for (int tries = 0; tries < 1000 && tier.load(1, &loaded) != KVC_TIER_OK; ++tries) ::usleep(5000);
    EXPECT_TRUE(loaded == payload);
  }
  EXPECT_GT(failed, 15);
}

// A byte that changes on the way is always noticed.
TEST_F(RedisTls, ChangedBytes) {
  RedisServer server(files.server_options("server"));
  Proxy proxy(server.tls_port());
  TlsConfig config(files, proxy.address());
  config.threads = 1;
  config.timeout_ms = 500;
  config.flags |= KVC_REDIS_LAZY;
  TierDriver tier(open_redis(config));
  const Bytes payload = payload_of(1, 0, 3000);
  for (const int64_t at : {0, 1, 3, 4, 5, 100, 1000, 3100}) {
    for (int tries = 0; tries < 1000 && tier.store(1, payload) != KVC_TIER_OK; ++tries) ::usleep(5000);
    proxy.change = proxy.passed + at;
    Bytes loaded(3000, 'x');
    EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED) << at;
    proxy.change = -1;
  }
}

// Sending to a server that is dead raises no signal, and idle connections are opened again.
TEST_F(RedisTls, ServerDiesAndRestarts) {
  RedisServer server(files.server_options("server"));
  const TlsConfig config(files, at_port(server.tls_port()));
  TierDriver tier(open_redis(config));
  expect_round_trip(tier, 1, kTlsBytes);
  for (int i = 0; i < 10; ++i) {
    ASSERT_NE(server.run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}), "");
    expect_round_trip(tier, 1, 3000000);
    EXPECT_TRUE(becomes(tier, uint64_t(100 + i), false));
  }
  EXPECT_EQ(tier.stats().failed, 0);
  EXPECT_FALSE(sigpipe_is_pending());
  for (int round = 0; round < 3; ++round) {
    server.kill();
    EXPECT_EQ(tier.store(1, payload_of(1, 0, 3000000)), KVC_TIER_FAILED);
    EXPECT_EQ(tier.os_error(), ECONNREFUSED);
    server.start();
    for (int tries = 0; tries < 3000 && tier.store(1, payload_of(1, 0, kTlsBytes)) != KVC_TIER_OK; ++tries)
      ::usleep(10000);
    expect_round_trip(tier, 1, kTlsBytes);
  }
}

class RedisTlsCluster : public RedisCluster {
 protected:
  std::vector<std::string> more_options() override {
    files.make_certificate("node", "IP:127.0.0.1", "ca");
    auto options = files.server_options("node", "optional");
    options.insert(options.end(), {"--tls-cluster", "yes"});
    return options;
  }
  int port_of(const RedisServer &node) const override { return node.tls_port(); }
  TlsFiles files;
};

// All nodes are reached by TLS: their ports come from MOVED and from CLUSTER SLOTS.
TEST_F(RedisTlsCluster, ObjectsGoToTheirNodes) {
  const TlsConfig config(files, at_port(nodes[0]->tls_port()));
  TierDriver tier(open_redis(config));
  for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, kBytes)), KVC_TIER_OK) << tier.os_error();
  for (uint64_t i = 0; i < 60; ++i) expect_loads(tier, i);
  for (const auto &node : nodes) EXPECT_NE(node->run({"DBSIZE"}), "0");
  const TlsConfig second(files, at_port(nodes[2]->tls_port()));
  TierDriver other(open_redis(second));
  for (uint64_t i = 0; i < 120; ++i) EXPECT_EQ(other.has(i), i < 60) << i;
}

}  // namespace
}  // namespace kvt
