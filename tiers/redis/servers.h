// Servers: what the threads of a tier share about its servers: which server has each slot (a class of keys in a Redis
// cluster), and which servers have failed.
//
// Without a cluster there are no slots: one server has every key. The first MOVED reply shows that the servers are a
// cluster. The reply to CLUSTER SLOTS then tells which server has which slot.
//
// After a failure, a server is not used for 0.1 s. Each further failure doubles this time, up to 5 s. During this time
// calls fail at once, so an engine does not wait for a dead server. After it, one thread tries the server again.
//
// It has a lock, but no clock: time is an argument. Thread safety: any thread.
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
// of a tier contain none, because the prefix may not.
int slot_of(const std::string& key) noexcept;

struct SlotRange {
  int first = 0, last = 0;  // both inclusive, as in CLUSTER SLOTS
  Address server;
};

class Servers {
 public:
  explicit Servers(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  // The server of a slot. If it is unknown, or without a cluster, the first server that may be used now.
  Address of_slot(int slot, int64_t now_ns);
  // All known servers, for a command that any node of a cluster can answer.
  std::vector<Address> all();
  bool is_cluster();

  // Returns 0 if the caller may use the server now, or else the errno with which the call should fail. If a server has
  // failed before, only one caller gets 0 until `now_ns + try_ns`, and tries the server again.
  int may_use(const Address& server, int64_t now_ns, int64_t try_ns);
  void worked(const Address& server);
  void failed(const Address& server, int error, int64_t now_ns);

  void set_slots(const std::vector<SlotRange>& ranges);
  void set_slot(int slot, const Address& server);
  // Whether the caller should read CLUSTER SLOTS again. True at most once a second.
  bool should_refresh(int64_t now_ns);

 private:
  struct Failure {
    int error = 0;
    int64_t wait_ns = 0, again_ns = 0;
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
