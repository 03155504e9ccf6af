// Servers: what all threads of a tier share about the servers. Which one has a slot, and which ones do not answer.
//
// Without a cluster there are no slots: one server has every key. The first MOVED of a server says that it is a
// cluster, and its CLUSTER SLOTS then says which server has which slot.
//
// A server that failed is left alone for 0.1 s, then twice as long after each further failure, up to 5 s. Calls in that
// time fail at once, so that a dead server costs an engine nothing. Then one thread tries it again.
//
// Pure but for its lock: time is an argument. Thread safety: any thread.
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

// The slot of a key: CRC16 of it. Keys of a tier have no hash tag, because a prefix has no '{'.
int slot_of(const std::string& key) noexcept;

struct SlotRange {
  int first = 0, last = 0;  // inclusive, as CLUSTER SLOTS gives them
  Address server;
};

class Servers {
 public:
  explicit Servers(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  // The server of a slot; without a cluster, the first address that does not fail.
  Address of_slot(int slot, int64_t now_ns);
  // All that are known, for a request that any node of a cluster answers.
  std::vector<Address> all();
  bool is_cluster();

  // Whether a call may use the server now: 0, or the errno with which it should fail. The call that gets 0 for a server
  // that had failed is the only one to try it until `now_ns + try_ns`.
  int may_use(const Address& server, int64_t now_ns, int64_t try_ns);
  void worked(const Address& server);
  void failed(const Address& server, int error, int64_t now_ns);

  void set_slots(const std::vector<SlotRange>& ranges);
  void set_slot(int slot, const Address& server);
  // True at most once a second: the map of slots should be read again.
  bool should_refresh(int64_t now_ns);

 private:
  struct Failure {
    int error = 0;
    int64_t wait_ns = 0, again_ns = 0;
  };
  int index_of(const Address& server) KVC_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Address> addresses_ KVC_GUARDED_BY(mutex_);  // those of the config, and those that a cluster named
  std::vector<int32_t> slots_ KVC_GUARDED_BY(mutex_);  // [kSlots] in addresses_, -1 = unknown; [0] without a cluster
  std::map<std::string, Failure> failures_ KVC_GUARDED_BY(mutex_);
  int64_t refresh_ns_ KVC_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvc::redis
