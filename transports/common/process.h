// What transports share. An address contains the process that made it. So a transport can notice that a process of the
// same machine has ended.
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

  // The calling process.
  static Process own();
  // Whether the number of `other` is valid in this process too, so that other.has_ended() may be called.
  bool sees(const Process& other) const { return place != 0 && other.place == place && other.number > 0; }
  // Whether the process has ended.
  bool has_ended() const;
};

// FNV-1a. It detects damage, but no attacks.
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
