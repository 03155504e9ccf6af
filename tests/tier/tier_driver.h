// Calls of a tier that wait for their completion, for tests. Every wait has a limit, so a hang is a failure.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../support/descriptors.h"
#include "kvcache_tier.h"

namespace kvt {

using Bytes = std::string;

// If true, all keys of key_of have the same hash (TierKeyHash).
inline bool keys_collide = false;

// A key that no other number has. Its first byte is any byte of the number, so keys fill all folders.
inline kvc_tier_key key_of(uint64_t number) {
  kvc_tier_key key;
  std::mt19937_64 random(number);
  for (size_t i = 0; i < sizeof key.bytes; i += 8) {
    const uint64_t value = random();
    std::memcpy(key.bytes + i, &value, 8);
  }
  std::memcpy(key.bytes + 24, &number, 8);
  if (keys_collide) std::memset(key.bytes + 8, 0, 8);
  return key;
}

// Bytes that are a function of a key and a version of its object, so that wrong bytes are noticed.
inline Bytes payload_of(uint64_t number, uint64_t version, size_t bytes) {
  std::mt19937_64 random(number * 1000003 + version);
  Bytes payload(bytes, '\0');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t value = random();
    std::memcpy(payload.data() + i, &value, 8);
  }
  for (size_t i = bytes / 8 * 8; i < bytes; ++i) payload[i] = static_cast<char>(random());
  return payload;
}

// A payload in several buffers, as an engine passes layers. The parts have odd sizes, and one is empty.
class Parts {
 public:
  Parts(const kvc_tier_key &key, Bytes *bytes) {
    const int64_t total = static_cast<int64_t>(bytes->size());
    for (int64_t at = 0; at < total;) {
      const int64_t here = std::min<int64_t>(total - at, 1 + total / 3);
      buffers_.push_back({bytes->data() + at, here});
      at += here;
    }
    buffers_.insert(buffers_.begin() + static_cast<int64_t>(buffers_.size() / 2), {nullptr, 0});
    item_ = {key, buffers_.data(), static_cast<int32_t>(buffers_.size()), 0, total};
  }
  Parts(const Parts &) = delete;
  Parts &operator=(const Parts &) = delete;
  const kvc_tier_item &item() const { return item_; }

 private:
  std::vector<kvc_tier_buffer> buffers_;
  kvc_tier_item item_;
};

class TierDriver {
 public:
  explicit TierDriver(const kvc_tier &tier) : tier_(tier) {}
  ~TierDriver() { close(); }
  TierDriver(const TierDriver &) = delete;
  TierDriver &operator=(const TierDriver &) = delete;
  void close() {
    if (tier_.self) tier_.close(tier_.self);
    tier_.self = nullptr;
  }

  const kvc_tier &table() const { return tier_; }
  int32_t os_error() const { return os_error_; }

  // Waits while the answer is PENDING.
  kvc_tier_found lookup(uint64_t number) {
    const kvc_tier_key key = key_of(number);
    kvc_tier_found found;
    for (int tries = 0; tries < 30000; ++tries) {
      tier_.lookup(tier_.self, 1, &key, &found);
      if (found.result != KVC_TIER_PENDING) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "a lookup stays PENDING";
    return found;
  }
  bool has(uint64_t number) { return lookup(number).result == KVC_TIER_HIT; }

  int32_t store(uint64_t number, const Bytes &payload) {
    Bytes copy = payload;
    Parts parts(key_of(number), &copy);
    return finish(tier_.store(tier_.self, next_job_, 1, &parts.item(), &error_));
  }
  // Fills *payload, which has the size of the object.
  int32_t load(uint64_t number, Bytes *payload) {
    Parts parts(key_of(number), payload);
    return finish(tier_.load(tier_.self, next_job_, 1, &parts.item(), &error_));
  }
  int32_t remove(uint64_t number) {
    const kvc_tier_item item = {key_of(number), nullptr, 0, 0, 0};
    return finish(tier_.remove(tier_.self, next_job_, 1, &item, &error_));
  }
  kvc_tier_stats stats() {
    kvc_tier_stats stats;
    kvc_tier_stats_init(&stats);
    tier_.stats(tier_.self, &stats);
    return stats;
  }

  // Polls completions until `n` have come.
  std::vector<kvc_tier_completion> wait(int64_t n) {
    std::vector<kvc_tier_completion> all;
    while (static_cast<int64_t>(all.size()) < n) {
      kvc_tier_completion done[16];
      const int32_t descriptor = tier_.descriptor(tier_.self);
      if (descriptor >= 0 && !wait_descriptor(descriptor, 30000)) {
        ADD_FAILURE() << "no completion in 30 s; " << all.size() << " of " << n << " have come";
        return all;
      }
      const int64_t got = tier_.poll(tier_.self, done, 16);
      all.insert(all.end(), done, done + got);
    }
    return all;
  }

 private:
  int32_t finish(int32_t submitted) {
    EXPECT_EQ(submitted, KVC_TIER_OK) << error_.message;
    if (submitted != KVC_TIER_OK) return submitted;
    const auto done = wait(1);
    if (done.empty()) return KVC_TIER_FAILED;
    EXPECT_EQ(done[0].job, next_job_++);
    EXPECT_EQ(done[0].index, 0);
    os_error_ = done[0].os_error;
    return done[0].result;
  }

  kvc_tier tier_;
  kvc_error error_ = KVC_ERROR_INIT;
  uint64_t next_job_ = 1;
  int32_t os_error_ = 0;
};

// Stores objects whose keys have one hash, and removes every third one. Each load returns the object of its own key.
inline void check_colliding_keys(TierDriver &tier) {
  keys_collide = true;
  for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 5000)), KVC_TIER_OK);
  for (uint64_t i = 0; i < 60; i += 3) ASSERT_EQ(tier.remove(i), KVC_TIER_OK);
  for (uint64_t i = 0; i < 80; ++i) {
    Bytes loaded(5000, 'x');
    const bool stored = i < 60 && i % 3 != 0;
    EXPECT_EQ(tier.has(i), stored);
    ASSERT_EQ(tier.load(i, &loaded), stored ? KVC_TIER_OK : KVC_TIER_MISS);
    EXPECT_TRUE(loaded == (stored ? payload_of(i, 0, 5000) : Bytes(5000, 'x')));
  }
  keys_collide = false;
}

}  // namespace kvt
