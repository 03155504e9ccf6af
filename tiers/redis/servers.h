// Servers: records for all threads of a tier which server has which slot, and which servers have failed. In this
// folder, a slot is a class of keys in a Redis cluster.
//
// Without a cluster there are no slots: one server has every key. The first MOVED reply shows that the servers are a
// cluster. The reply to CLUSTER SLOTS then tells which server has which slot.
//
// After a failure, a server is not used for 0.1 s. Each further failure doubles this time, up to 5 s. During this time,
// calls fail at once, so an engine does not wait for a dead server. After this time, one thread tries the server again.
//
// The class has a lock, but no clock: time is an argument. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "options.h"

namespace kvc::redis {

inline constexpr int kSlots = 16384;

// The slot of a key: the CRC16 of the key, modulo kSlots. Redis would hash only a part of a key that contains '{'. Keys
// of a tier do not contain '{', because the prefix must not contain it.
int slot_of(const std::string& key) noexcept;

struct SlotRange {
  int first = 0, last = 0;  // both inclusive, as in CLUSTER SLOTS
  Address server;
};

class Servers {
 public:
  explicit Servers(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  // Returns the server of a slot. If the server is unknown, or without a cluster, returns the first server that may be
  // used now. If none may be used, returns the first server.
  Address of_slot(int slot, int64_t now_ns);
  // Returns all known servers, for a command that any node of a cluster can answer.
  std::vector<Address> all();
  bool is_cluster();

  // Returns 0 if the caller may use the server now, or else the errno with which the call should fail. If a server has
  // failed before, only one caller gets 0 until `now_ns + try_ns`, and tries the server again.
  int may_use(const Address& server, int64_t now_ns, int64_t try_ns);
  void worked(const Address& server);
  void failed(const Address& server, int error, int64_t now_ns);

  void set_slots(const std::vector<SlotRange>& ranges);
  void set_slot(int slot, const Address& server);
  // Returns whether the caller should read CLUSTER SLOTS again. Returns true at most once a second.
  bool should_refresh(int64_t now_ns);

 private:
  struct Failure {
    int error = 0;
    int64_t wait_ns = 0, again_ns = 0;  // for how long the server is not used, and until which time
  };
  int index_of(const Address& server) KVC_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Address> addresses_ KVC_GUARDED_BY(mutex_);  // from the options, and from replies of a cluster
  // [kSlots]: the index in addresses_ of each slot's server; -1 = unknown. Empty without a cluster.
  std::vector<int32_t> slots_ KVC_GUARDED_BY(mutex_);
  std::map<std::string, Failure> failures_ KVC_GUARDED_BY(mutex_);
  int64_t refresh_ns_ KVC_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvc::redis
