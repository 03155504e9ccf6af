// What transports share: which process an address belongs to, so that the end of a process of the same machine is
// noticed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace kvc {

// The first bytes of an address.
struct Process {
  uint64_t place;  // the machine and its namespace of processes; 0: unknown
  int64_t number;

  // The calling process.
  static Process own();
  // Whether this process can see `other`.
  bool sees(const Process& other) const { return place != 0 && other.place == place && other.number > 0; }
  // Whether a process that is seen has ended.
  bool has_ended() const;
};

// FNV-1a: against damage, not against attacks.
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
