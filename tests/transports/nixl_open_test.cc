// What the NIXL transport refuses. The tests that load a wrong library come first, because a process loads only one.
#include <gtest/gtest.h>
#include <kvcache_nixl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

// The symbol of a plug-in.
extern "C" kvc_status kvc_transport_open(uint32_t version, const char *options, kvc_transport *transport,
                                         kvc_error *error);

namespace {

using Bytes = std::vector<char>;

struct Open {
  kvc_nixl_config config;
  kvc_transport transport;
  kvc_error error = KVC_ERROR_INIT;
  bool done = false;

  Open() {
    kvc_nixl_config_init(&config);
    kvc_transport_init(&transport);
  }
  ~Open() {
    if (done) transport.close(transport.self);
  }
  kvc_status open() {
    const kvc_status status = kvc_nixl_transport_open(&config, &transport, &error);
    done = status == KVC_OK;
    return status;
  }
  std::string message() const { return error.message; }
  Bytes address() {
    Bytes bytes(KVC_TRANSPORT_MAX_ADDRESS_BYTES);
    bytes.resize(static_cast<size_t>(transport.address(transport.self, bytes.data(), KVC_TRANSPORT_MAX_ADDRESS_BYTES)));
    return bytes;
  }
  int32_t connect(const Bytes &address, uint64_t *peer) {
    return transport.connect(transport.self, address.data(), static_cast<int64_t>(address.size()), peer, &error);
  }
};

TEST(NixlLibrary, IsMissing) {
  Open nixl;
  nixl.config.library = "/none/libnixl_capi.so";
  EXPECT_EQ(nixl.open(), KVC_ERROR_IO);
  for (const char *part : {"/none/libnixl_capi.so", "KVCACHE_NIXL_CAPI", "nixl-cu12"}) {
    EXPECT_NE(nixl.message().find(part), std::string::npos) << nixl.message();
  }
}

TEST(NixlLibrary, IsAnotherLibrary) {
  Open nixl;
  nixl.config.library = "libm.so.6";
  EXPECT_EQ(nixl.open(), KVC_ERROR_IO);
  EXPECT_NE(nixl.message().find("\"libm.so.6\" has no function nixl_capi_"), std::string::npos) << nixl.message();
}

TEST(NixlOpen, BadConfigurations) {
  Open nixl;
  EXPECT_EQ(kvc_nixl_transport_open(nullptr, &nixl.transport, &nixl.error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(kvc_nixl_transport_open(&nixl.config, nullptr, &nixl.error), KVC_ERROR_NULL_ARGUMENT);
  nixl.config.struct_size = 8;
  EXPECT_EQ(nixl.open(), KVC_ERROR_STRUCT_SIZE);
  kvc_nixl_config_init(&nixl.config);
  for (const int count : {-1, 65}) {
    nixl.config.num_params = count;
    EXPECT_EQ(nixl.open(), KVC_ERROR_OUT_OF_RANGE);
    EXPECT_NE(nixl.message().find(std::to_string(count)), std::string::npos) << nixl.message();
  }
  nixl.config.num_params = 2;
  EXPECT_EQ(nixl.open(), KVC_ERROR_NULL_ARGUMENT);
  const kvc_nixl_param params[] = {{"engine_config", "TLS=tcp"}, {"name", nullptr}};
  nixl.config.params = params;
  EXPECT_EQ(nixl.open(), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_NE(nixl.message().find("params[1].value is NULL"), std::string::npos) << nixl.message();
  kvc_nixl_config_init(&nixl.config);
  const std::string longest(64, 'a');
  for (const char *name : {"", longest.c_str()}) {
    nixl.config.agent = name;
    EXPECT_EQ(nixl.open(), KVC_ERROR_INVALID_ARGUMENT);
  }
  kvc_error small = KVC_ERROR_INIT;
  small.struct_size = 4;
  EXPECT_EQ(kvc_nixl_transport_open(&nixl.config, &nixl.transport, &small), KVC_ERROR_STRUCT_SIZE);
}

TEST(NixlOpen, BadOptions) {
  Open nixl;
  EXPECT_EQ(kvc_transport_open(KVC_TRANSPORT_VERSION + 1, "", &nixl.transport, &nixl.error), KVC_ERROR_UNSUPPORTED);
  for (const char *options : {"library", "=value", "backend=UCX;;tcp"}) {
    EXPECT_EQ(kvc_transport_open(KVC_TRANSPORT_VERSION, options, &nixl.transport, &nixl.error),
              KVC_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(nixl.message().find("is not NAME=VALUE"), std::string::npos) << nixl.message();
  }
  EXPECT_EQ(kvc_transport_open(KVC_TRANSPORT_VERSION, "library=/none/x.so;", &nixl.transport, &nixl.error),
            KVC_ERROR_IO);
  EXPECT_NE(nixl.message().find("/none/x.so"), std::string::npos) << nixl.message();
}

// Tests with NIXL itself.
class Nixl : public testing::Test {
  void SetUp() override {
    if (std::getenv("KVCACHE_NIXL_CAPI") == nullptr) {
      GTEST_SKIP() << "KVCACHE_NIXL_CAPI does not name libnixl_capi.so: bash scripts/setup_nixl.sh installs it";
    }
  }
};

TEST_F(Nixl, RefusesAnotherLibraryLater) {
  Open first, second;
  ASSERT_EQ(first.open(), KVC_OK) << first.message();
  second.config.library = "/none/libnixl_capi.so";
  EXPECT_EQ(second.open(), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(second.message().find("has loaded"), std::string::npos) << second.message();
}

TEST_F(Nixl, RefusesBackends) {
  Open nixl;
  nixl.config.backend = "NONE_SUCH";
  EXPECT_EQ(nixl.open(), KVC_ERROR_IO);
  EXPECT_NE(nixl.message().find("\"NONE_SUCH\""), std::string::npos) << nixl.message();
  const kvc_nixl_param params[] = {{"ucx_error_handling_mode", "none-such"}};
  nixl.config.backend = nullptr;
  nixl.config.params = params;
  nixl.config.num_params = 1;
  EXPECT_EQ(nixl.open(), KVC_ERROR_IO);
  EXPECT_NE(nixl.message().find("\"UCX\""), std::string::npos) << nixl.message();
}

TEST_F(Nixl, TheOptionsOfAPlugIn) {
  Open nixl;
  const std::string options =
      std::string("agent=one;engine_config=TLS=tcp,NET_DEVICES=lo;library=") + std::getenv("KVCACHE_NIXL_CAPI");
  ASSERT_EQ(kvc_transport_open(KVC_TRANSPORT_VERSION, options.c_str(), &nixl.transport, &nixl.error), KVC_OK)
      << nixl.message();
  nixl.done = true;
  EXPECT_STREQ(nixl.transport.name, "nixl");
  const Bytes address = nixl.address();
  EXPECT_NE(std::string(address.begin(), address.end()).find("one"), std::string::npos);
}

// UCX would end the process if it got a damaged address.
TEST_F(Nixl, WrongAddresses) {
  Open a, b;
  ASSERT_EQ(a.open(), KVC_OK) << a.message();
  ASSERT_EQ(b.open(), KVC_OK) << b.message();
  const Bytes right = b.address();
  uint64_t peer = 0;
  for (size_t i = 0; i < right.size(); i++) {
    Bytes wrong(right.begin(), right.begin() + static_cast<ptrdiff_t>(i));
    ASSERT_EQ(a.connect(wrong, &peer), KVC_TRANSPORT_FAILED) << i;
    EXPECT_NE(a.message().find("the " + std::to_string(i) + " bytes are no address"), std::string::npos) << a.message();
    wrong = right;
    wrong[i] = static_cast<char>(wrong[i] ^ 0x15);
    ASSERT_EQ(a.connect(wrong, &peer), KVC_TRANSPORT_FAILED) << i;
  }
  ASSERT_EQ(a.connect(right, &peer), KVC_TRANSPORT_OK) << a.message();
}

// A process that has ended is lost: at the connect, or soon after.
TEST_F(Nixl, TheAddressOfAProcessThatHasEnded) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();  // before NIXL is loaded here
  if (child == 0) {
    Open nixl;
    if (nixl.open() != KVC_OK) _exit(1);
    const Bytes address = nixl.address();
    const auto bytes = static_cast<ssize_t>(address.size());
    _exit(write(ends[1], address.data(), address.size()) == bytes ? 0 : 2);
  }
  Bytes address(KVC_TRANSPORT_MAX_ADDRESS_BYTES);
  const ssize_t bytes = read(ends[0], address.data(), address.size());
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_GT(bytes, 0);
  address.resize(static_cast<size_t>(bytes));
  Open nixl;
  ASSERT_EQ(nixl.open(), KVC_OK) << nixl.message();
  uint64_t peer = 0;
  if (nixl.connect(address, &peer) != KVC_TRANSPORT_OK) return;
  for (bool lost = false; !lost;) {
    kvc_transport_event event;
    lost = nixl.transport.poll(nixl.transport.self, &event, 1) == 1 && event.kind == KVC_TRANSPORT_LOST &&
           event.peer == peer;
  }
  EXPECT_EQ(nixl.transport.send(nixl.transport.self, peer, "h", 1, nullptr, 0, 0, &nixl.error), KVC_TRANSPORT_FAILED);
  EXPECT_NE(nixl.message().find("the peer has ended"), std::string::npos) << nixl.message();
}

}  // namespace
