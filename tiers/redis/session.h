// Session: the connections of one thread, and the objects that it moves over them.
//
// An object is a string value under the key `prefix` + 64 hexadecimal digits. The value is the header of a disk tier's
// file (src/tier/object_frame.h), and the payload. A value that is not exactly this is a miss.
//
// A call takes timeout_ms at most, and the time in which its bytes are moved at 10 MB/s. Thread safety: none; a session
// belongs to one thread. Servers are shared.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "connection.h"
#include "servers.h"
#include "tier/object_frame.h"

namespace kvc::redis {

class Session {
 public:
  struct Outcome {
    int32_t result = KVC_TIER_OK;
    int32_t os_error = 0;
    bool damaged = false;
    int64_t found_bytes = -1;  // load: size of the object that is stored; -1 = none, or unknown if the call failed
  };

  // tls: null = connections without TLS.
  Session(const Options& options, Servers* servers, const TlsContext* tls)
      : options_(options), servers_(*servers), tls_(tls) {}

  // Connects to a server. Its words are in the message of a failure.
  Status connect();

  // They throw std::bad_alloc.
  Outcome store(const kvc_tier_item& item);
  Outcome load(const kvc_tier_item& item);
  Outcome remove(const kvc_tier_key& key);
  // Sizes of objects, [keys]; -1 = none, or the server did not say. In one round trip to each server.
  void search(const std::vector<kvc_tier_key>& keys, std::vector<int64_t>* bytes);

 private:
  int64_t deadline(int64_t bytes) const noexcept { return now_ns() + timeout_ns() + bytes * kNsPerByte; }
  int64_t timeout_ns() const noexcept { return int64_t{options_.timeout_ms} * 1'000'000; }
  std::string key_text(const kvc_tier_key& key) const;
  // Each returns 0 or an errno.
  int run(const std::string& key, const Command& command, int64_t most_bytes, int64_t deadline_ns, Reply* reply,
          const Connection::Sink* sink = nullptr);
  int exchange(const Address& server, bool asking, const Command& command, int64_t most_bytes, int64_t deadline_ns,
               Reply* reply, const Connection::Sink* sink = nullptr);
  int connection_to(const Address& server, int64_t deadline_ns, Connection** connection);
  int greet(Connection& connection, int64_t deadline_ns);
  int refuse(const Address& server, int error);
  bool refresh_slots(int64_t deadline_ns);
  void search_server(const Address& server, const std::vector<size_t>& which, const std::vector<std::string>& texts,
                     std::vector<int64_t>* bytes);

  static constexpr int64_t kNsPerByte = 100;  // 10 MB/s

  const Options& options_;
  Servers& servers_;
  const TlsContext* const tls_;
  std::map<std::string, Connection> connections_;  // by address
  std::string refusal_;                            // what a server answered to a greeting, or why TLS fails
};

}  // namespace kvc::redis
