// Connection: a socket to one server, with deadlines, and with TLS or without. hiredis connects and parses what the
// server sends.
//
// Commands may be sent one after another before their replies are received; replies come in the same order. After an
// error the connection is closed, so a reply that comes too late is never taken for another command's.
//
// Thread safety: none; each belongs to one thread. A closed socket raises no signal.
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

#include "kvcache_tier.h"
#include "options.h"
#include "tls.h"

namespace kvc::redis {

int64_t now_ns() noexcept;  // of a clock that never goes back

struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

// The arguments of a command. One of them, in the middle, may be the value of an item, which is sent from its memory.
class Command {
 public:
  explicit Command(int32_t num_arguments);
  Command& add(const std::string& argument);
  // `header` and all buffers of the item are one argument. The item stays valid until the command was sent.
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

  // Each returns 0 or an errno. After an error the connection is closed.
  // tls: null = without TLS. Else open also makes the handshake.
  int open(const Address& address, const TlsContext* tls, int64_t deadline_ns);
  int send(const Command& command, int64_t deadline_ns);
  int send(const std::string& commands, int64_t deadline_ns);  // each as Command::before() gives it
  // most_bytes: of the replies that come together. A server that sends more is cut off.
  // sink: nullable; is given a reply that is one string, which the reply then lacks. So large values are not copied.
  using Sink = std::function<void(const uint8_t* data, int64_t bytes)>;
  int receive(Reply* reply, int64_t most_bytes, int64_t deadline_ns, const Sink* sink = nullptr);
  // Why TLS has failed, in words; "" = it has not.
  const char* reason() const noexcept { return reason_; }

 private:
  int shake_hands(const TlsContext& tls, const std::string& host, int64_t deadline_ns);
  int send_parts(iovec* parts, size_t count, int64_t deadline_ns);
  int encrypt_parts(const iovec* parts, size_t count, int64_t deadline_ns);
  int encrypt_buffer(size_t bytes, int64_t deadline_ns);
  int64_t read_some(int64_t deadline_ns);
  // Repeats a call of tls_ until it has moved bytes. Returns their number, or a negative errno.
  template <typename Call>
  int64_t repeat(Call call, int64_t deadline_ns) noexcept;
  int wait(short events, int64_t deadline_ns) noexcept;
  int fail(int error) noexcept;

  static void* make_string(const redisReadTask* task, char* data, size_t bytes) noexcept;

  redisContext* context_ = nullptr;
  redisReplyObjectFunctions functions_ = {}, default_functions_ = {};  // with which hiredis makes replies
  const Sink* sink_ = nullptr;                                         // of the reply that is received
  std::vector<char> buffer_;                                           // of bytes that are received, or that TLS sends
  std::unique_ptr<TlsStream> tls_;
  char reason_[240] = {};
};

}  // namespace kvc::redis
