// A Redis server of a test, on a free port of loopback, and what a test does with it by commands and signals.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kvcache_redis.h"
#include "tier_driver.h"

namespace kvt {

inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr *>(&address), bytes), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &bytes), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

class RedisServer {
 public:
  enum Kind { kAlone, kClusterNode };
  explicit RedisServer(std::vector<std::string> options = {}, Kind kind = kAlone)
      : options_(std::move(options)), kind_(kind) {
    folder_ = std::filesystem::temp_directory_path() / "kvc-redis-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    for (int tries = 0; tries < 5 && process_ == 0; ++tries) {  // another program may take a port that was free
      port_ = free_port();
      bus_port_ = free_port();
      tls_port_ = free_port();
      start();
    }
    EXPECT_NE(process_, 0) << "no Redis server can be started";
  }
  ~RedisServer() {
    kill();
    std::filesystem::remove_all(folder_);
  }
  RedisServer(const RedisServer &) = delete;
  RedisServer &operator=(const RedisServer &) = delete;

  int port() const { return port_; }
  int bus_port() const { return bus_port_; }
  int tls_port() const { return tls_port_; }  // it listens there if the options have a certificate
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string socket_path() const { return folder_ + "/socket"; }

  // Starts it on its port, and waits until it answers.
  void start() {
    std::vector<std::string> words = {REDIS_SERVER,
                                      "--port",
                                      std::to_string(port_),
                                      "--bind",
                                      "127.0.0.1",
                                      "--save",
                                      "",
                                      "--dir",
                                      folder_,
                                      "--unixsocket",
                                      socket_path(),
                                      "--logfile",
                                      folder_ + "/log",
                                      "--enable-debug-command",
                                      "yes"};
    if (kind_ == kClusterNode) {
      words.insert(words.end(), {"--cluster-enabled", "yes", "--cluster-port", std::to_string(bus_port_)});
    }
    words.insert(words.end(), options_.begin(), options_.end());
    if (std::find(words.begin(), words.end(), "--tls-cert-file") != words.end()) {
      words.insert(words.end(), {"--tls-port", std::to_string(tls_port_)});
    }
    std::vector<char *> arguments;
    for (std::string &word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = ::getpid();
    process_ = ::fork();
    ASSERT_GE(process_, 0);
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it ends with the test, however that ends
      if (::getppid() != parent) ::_exit(1);
      ::execv(REDIS_SERVER, arguments.data());
      ::_exit(127);
    }
    const std::string ours = "process_id:" + std::to_string(process_) + "\r";
    for (int tries = 0; tries < 3000; ++tries) {
      if (run({"INFO", "server"}).find(ours) != std::string::npos) return;
      if (::waitpid(process_, nullptr, WNOHANG) == process_) break;
      ::usleep(10000);
    }
    process_ = 0;
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  // It keeps its connections, and answers nothing.
  void pause() {
    ::kill(process_, SIGSTOP);
    int status = 0;
    ::waitpid(process_, &status, WUNTRACED);  // until it has stopped
  }
  void resume() { ::kill(process_, SIGCONT); }

  // Runs a command as another client does. Its reply as text; "" if there is none.
  std::string run(const std::vector<std::string> &words) const {
    std::vector<const char *> arguments;
    std::vector<size_t> sizes;
    for (const std::string &word : words) {
      arguments.push_back(word.data());
      sizes.push_back(word.size());
    }
    redisContext *context = ::redisConnect("127.0.0.1", port_);
    if (context == nullptr || context->err != 0) {
      if (context != nullptr) ::redisFree(context);
      return "";
    }
    if (!password.empty()) ::freeReplyObject(::redisCommand(context, "AUTH %s", password.c_str()));
    auto *reply = static_cast<redisReply *>(
        ::redisCommandArgv(context, static_cast<int>(words.size()), arguments.data(), sizes.data()));
    std::string text;
    if (reply != nullptr && reply->type == REDIS_REPLY_INTEGER) text = std::to_string(reply->integer);
    if (reply != nullptr && reply->str != nullptr) text.assign(reply->str, reply->len);
    if (reply != nullptr && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->str) {
      text.assign(reply->element[0]->str, reply->element[0]->len);
    }
    if (reply != nullptr) ::freeReplyObject(reply);
    ::redisFree(context);
    return text;
  }
  std::string password;

 private:
  int port_ = 0, bus_port_ = 0, tls_port_ = 0;
  std::vector<std::string> options_;
  Kind kind_;
  std::string folder_;
  pid_t process_ = 0;
};

// The key of an object, as docs/reference/tiers.md says it.
inline std::string key_text(uint64_t number, const std::string &prefix = "kvcache:") {
  std::string text = prefix;
  const kvc_tier_key key = key_of(number);
  for (const uint8_t byte : key.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

struct RedisConfig : kvc_redis_config {
  explicit RedisConfig(const std::string &server) : text(server) {
    kvc_redis_config_init(this);
    address = text.c_str();
    timeout_ms = 5000;
    lookup_ms = 100;
  }
  RedisConfig(const RedisConfig &) = delete;
  RedisConfig &operator=(const RedisConfig &) = delete;
  std::string text;
};

inline kvc_tier open_redis(const kvc_redis_config &config) {
  kvc_tier tier = {};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_redis_tier_open(&config, &tier, &error), KVC_OK) << error.message;
  return tier;
}

inline int64_t open_descriptors() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Whether the object becomes found, or missing, when answers of earlier lookups are no longer used.
inline bool becomes(TierDriver &tier, uint64_t number, bool stored) {
  for (int tries = 0; tries < 3000; ++tries) {
    if (tier.has(number) == stored) return true;
    ::usleep(10000);
  }
  return false;
}

}  // namespace kvt
