// Connection: a socket to one server, with or without TLS. Calls that wait for the server have a deadline. Only one
// wait has none: open resolves a host name. hiredis opens the socket and parses the replies of the server.
//
// A caller may send several commands before it receives their replies. Replies come in the order of the commands. After
// an error the connection is closed, so that a late reply is never taken for the reply to a later command.
//
// Thread safety: none; a connection belongs to one thread. Sending to a closed socket raises no signal.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hiredis/hiredis.h>
#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/steady_clock.h"
#include "kvcache_tier.h"
#include "options.h"
#include "tls.h"

namespace kvc::redis {

struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

// The encoded arguments of a command. One argument may be the value of an item. The bytes of the item are sent from its
// own buffers, between before() and after().
class Command {
 public:
  explicit Command(int32_t num_arguments);
  Command& add(const std::string& argument);
  // Adds one argument: `header`, followed by all buffers of the item. The item must exist until the command was sent.
  Command& add_value(const std::string& header, const kvc_tier_item& item);

  const std::string& before() const noexcept { return before_; }
  const kvc_tier_item* item() const noexcept { return item_; }
  const std::string& after() const noexcept { return after_; }

 private:
  std::string before_, after_;
  const kvc_tier_item* item_ = nullptr;
};

class Connection {
 public:
  Connection() = default;
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_open() const noexcept { return context_ != nullptr; }
  void close() noexcept;

  // Each method that returns an int returns 0 or an errno. After an error the connection is closed.
  // tls: null = without TLS. With TLS, open also makes the handshake.
  int open(const Address& address, const TlsContext* tls, int64_t deadline_ns);
  int send(const Command& command, int64_t deadline_ns);
  // commands: the texts Command::before() of several commands, one after another.
  int send(const std::string& commands, int64_t deadline_ns);
  // most_bytes: the largest number of received bytes that hiredis keeps while the reply is not complete. If the server
  // sends more, the call fails with EPROTO.
  // sink: nullable. If the reply is one string, `sink` is called with its bytes, and *reply gets an empty string. So a
  // large value is not copied.
  using Sink = std::function<void(const uint8_t* data, int64_t bytes)>;
  int receive(Reply* reply, int64_t most_bytes, int64_t deadline_ns, const Sink* sink = nullptr);
  // Returns why TLS has failed, as text; "" if it has not failed.
  const char* reason() const noexcept { return reason_; }

 private:
  int shake_hands(const TlsContext& tls, const std::string& host, int64_t deadline_ns);
  int send_parts(iovec* parts, size_t count, int64_t deadline_ns);
  int encrypt_parts(const iovec* parts, size_t count, int64_t deadline_ns);
  int encrypt_buffer(size_t bytes, int64_t deadline_ns);
  int64_t read_some(int64_t deadline_ns);
  // Makes a call of tls_. While the call returns -EAGAIN, waits for the socket and repeats the call. Returns the result
  // of the last call, or a negative errno if the wait fails (-ETIMEDOUT at the deadline).
  template <typename Call>
  int64_t repeat(Call call, int64_t deadline_ns) noexcept;
  int wait(short events, int64_t deadline_ns) noexcept;
  int fail(int error) noexcept;

  static void* make_string(const redisReadTask* task, char* data, size_t bytes) noexcept;

  redisContext* context_ = nullptr;
  redisReplyObjectFunctions functions_ = {}, default_functions_ = {};  // functions with which hiredis makes replies
  const Sink* sink_ = nullptr;                                         // the sink of the last call of receive
  std::vector<char> buffer_;                                           // bytes received, or to be encrypted and sent
  std::unique_ptr<TlsStream> tls_;
  char reason_[240] = {};
};

}  // namespace kvc::redis
