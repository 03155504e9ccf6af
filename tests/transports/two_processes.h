// Engines over a transport, and descriptions through pipes.
#pragma once

#include <memory>

#include "transfer_fixture.h"

namespace kvt {

// A transport over TCP on loopback or over shared memory. ucx.cc and nixl.cc define it; a test program links one of
// them.
kvc_status open_transport(const std::string &way, kvc_transport *transport, kvc_error *error);
// Whether an endpoint still receives after a process was killed that was sending to it.
bool outlives_killed_senders(const std::string &way);
// Why no test of the transport can run here; empty: they can.
std::string why_not();
inline constexpr const char *kWays[] = {"sharedMemory", "tcp"};

class EachWay : public testing::TestWithParam<const char *> {
  void SetUp() override {
    if (!why_not().empty()) GTEST_SKIP() << why_not();
  }
};

inline void use_transport(Engine *engine, const std::string &way) {
  kvc_transport transport;
  ASSERT_EQ(open_transport(way, &transport, &engine->error), KVC_OK) << engine->error.message;
  ASSERT_EQ(kvc_cache_set_transport(engine->cache, &transport, &engine->error), KVC_OK) << engine->error.message;
}

inline std::unique_ptr<Engine> engine_with_transport(const std::string &way) {
  auto made = std::make_unique<Engine>();
  use_transport(made.get(), way);
  return made;
}

inline bool write_all(int file, const void *data, size_t bytes) {
  const auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t count = write(file, next, bytes);
    if (count <= 0) return false;
    next += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}
inline bool read_all(int file, void *data, size_t bytes) {
  auto *next = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t count = read(file, next, bytes);
    if (count <= 0) return false;
    next += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}
inline bool write_bytes(int file, const Bytes &bytes) {
  const uint64_t count = bytes.size();
  return write_all(file, &count, sizeof count) && write_all(file, bytes.data(), bytes.size());
}
inline Bytes read_bytes(int file) {
  uint64_t count = 0;
  Bytes bytes;
  if (!read_all(file, &count, sizeof count) || count > (1 << 24)) return bytes;
  bytes.resize(count);
  if (!read_all(file, bytes.data(), bytes.size())) bytes.clear();
  return bytes;
}

}  // namespace kvt
