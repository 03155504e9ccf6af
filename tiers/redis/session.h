// Session: the connections of one thread to the servers. It stores, loads, removes and searches objects.
//
// An object is a string value under the key `prefix` + 64 hexadecimal digits. The value is the header of a disk tier's
// file (src/tier/object_frame.h), followed by the payload. Any other value counts as a miss.
//
// A command takes at most timeout_ms, plus the time that its bytes need at 10 MB/s, plus the time to resolve a host
// name if a connection must be opened. A call may need several commands. Thread safety: none; a session belongs to one
// thread. All sessions of a tier share the Servers.
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
    int64_t found_bytes = -1;  // of a load: the size of the object on the server; -1 = none. Unknown after a failure
  };

  // tls: null = connections without TLS.
  Session(const Options& options, Servers* servers, const TlsContext* tls)
      : options_(options), servers_(*servers), tls_(tls) {}

  // Connects to the first server that accepts. The message of a failure has the answer of each server.
  Status connect();

  // These methods and `search` throw std::bad_alloc.
  Outcome store(const kvc_tier_item& item);
  Outcome load(const kvc_tier_item& item);
  Outcome remove(const kvc_tier_key& key);
  // Finds the sizes of objects, [keys]. -1 = no object, or no answer. Makes one round trip to each server. Then
  // searches some keys one by one: those that a server redirects (MOVED or ASK) and, in a cluster, those of a server to
  // which no connection can be made.
  void search(const std::vector<kvc_tier_key>& keys, std::vector<int64_t>* bytes);

 private:
  int64_t deadline(int64_t bytes) const noexcept { return steady_ns() + timeout_ns() + bytes * kNsPerByte; }
  int64_t timeout_ns() const noexcept { return int64_t{options_.timeout_ms} * 1'000'000; }
  std::string key_text(const kvc_tier_key& key) const;
  // These methods return 0 or an errno.
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
  std::string refusal_;                            // why the last connection failed: an answer, or a reason from TLS
};

}  // namespace kvc::redis
