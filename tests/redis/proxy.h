// A proxy between a tier and a server that delays, cuts and changes what the server sends.
#pragma once

#include <poll.h>

#include <atomic>
#include <map>
#include <thread>

#include "redis_server.h"

namespace kvt {

class Proxy {
 public:
  explicit Proxy(int server_port) : server_port_(server_port) {
    listen_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(listen_, reinterpret_cast<sockaddr *>(&address), bytes), 0);
    EXPECT_EQ(::listen(listen_, 64), 0);
    EXPECT_EQ(::getsockname(listen_, reinterpret_cast<sockaddr *>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    close_all();
    ::close(listen_);
  }
  Proxy(const Proxy &) = delete;
  Proxy &operator=(const Proxy &) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::atomic<bool> stall{false};       // what the server sends stays here
  std::atomic<int64_t> room{-1};        // after so many bytes of the server all connections are closed; -1 = never
  std::atomic<int64_t> change{-1};      // the number of the byte that is changed; -1 = none
  std::atomic<int64_t> chunk{1 << 16};  // bytes of the server that are passed on at once, each after `delay_ms`
  std::atomic<int> delay_ms{0};
  std::atomic<int64_t> passed{0};  // bytes that the server has sent

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void close_all() {
    for (const auto &[client, server] : pairs_) ::close(client), ::close(server);
    pairs_.clear();
  }
  void accept() {
    const int client = ::accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(server_port_);
    if (::connect(server, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
      ::close(client), ::close(server);
      return;
    }
    pairs_[client] = server;
  }
  // False: the connection has ended.
  bool pass(int from, int to, bool of_server) {
    char bytes[1 << 16];
    const int64_t most = of_server ? std::min<int64_t>(chunk, sizeof bytes) : int64_t{sizeof bytes};
    int64_t got = ::recv(from, bytes, static_cast<size_t>(most), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    if (of_server) {
      if (delay_ms > 0) ::usleep(static_cast<useconds_t>(delay_ms) * 1000);
      if (change >= passed && change < passed + got) bytes[change - passed] ^= 4;
      passed += got;
      if (room >= 0) got = std::min<int64_t>(got, room), room -= got;
    }
    ::send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL);
    return !of_server || room != 0;
  }
  void run() {
    while (!stop_) {
      std::vector<pollfd> waits = {{listen_, POLLIN, 0}};
      for (const auto &[client, server] : pairs_) {
        waits.push_back({client, POLLIN, 0});
        waits.push_back({server, static_cast<short>(stall ? 0 : POLLIN), 0});
      }
      if (::poll(waits.data(), waits.size(), 10) <= 0) continue;
      for (size_t i = 1; i < waits.size(); i += 2) {
        const int client = waits[i].fd, server = waits[i + 1].fd;
        const bool alive = (waits[i].revents == 0 || pass(client, server, false)) &&
                           (waits[i + 1].revents == 0 || stall || pass(server, client, true));
        if (alive) continue;
        ::close(client), ::close(server);
        pairs_.erase(client);
      }
      if (waits[0].revents != 0) accept();
    }
  }

  int server_port_, port_ = 0, listen_ = -1;
  std::atomic<bool> stop_{false};
  std::map<int, int> pairs_;  // client to server; of the thread
  std::thread thread_;
};

}  // namespace kvt
