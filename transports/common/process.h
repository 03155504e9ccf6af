// Types and functions that all transports use. An address contains the process that made the address. So a transport
// can notice that a process of the same machine has ended.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace kvc {

// The first bytes of an address.
struct Process {
  uint64_t place;  // a hash of the machine and of the PID namespace, in which `number` is valid; 0: unknown
  int64_t number;  // process id

  // Returns the calling process.
  static Process own();
  // Returns whether the number of `other` is valid in this process too. Only then may other.has_ended() be called.
  bool sees(const Process& other) const { return place != 0 && other.place == place && other.number > 0; }
  // Returns whether the process has ended.
  bool has_ended() const;
};

// Returns the FNV-1a hash of bytes. The hash detects damage, but no attacks.
inline uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

inline int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace kvc
