// Connection: a socket to one server, with deadlines. hiredis connects and parses what the server sends.
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
  int open(const Address& address, int64_t deadline_ns);
  int send(const Command& command, int64_t deadline_ns);
  int send(const std::string& commands, int64_t deadline_ns);  // each as Command::before() gives it
  // most_bytes: of the replies that come together. A server that sends more is cut off.
  // sink: nullable; is given a reply that is one string, which the reply then lacks. So large values are not copied.
  using Sink = std::function<void(const uint8_t* data, int64_t bytes)>;
  int receive(Reply* reply, int64_t most_bytes, int64_t deadline_ns, const Sink* sink = nullptr);

 private:
  int send_parts(iovec* parts, size_t count, int64_t deadline_ns);
  int wait(short events, int64_t deadline_ns) noexcept;
  int fail(int error) noexcept;

  static void* make_string(const redisReadTask* task, char* data, size_t bytes) noexcept;

  redisContext* context_ = nullptr;
  redisReplyObjectFunctions functions_ = {}, default_functions_ = {};  // with which hiredis makes replies
  const Sink* sink_ = nullptr;                                         // of the reply that is received
  std::vector<char> buffer_;
};

}  // namespace kvc::redis
