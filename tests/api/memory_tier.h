// A tier in memory that can misbehave.
#pragma once

#include <kvcache_tier.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "descriptors.h"
#include "prefix_fixture.h"

namespace kvt {

// A tier within the process: objects in a map. Completions come at once, or when `release` is called.
class MemoryTier {
 public:
  std::map<std::string, std::vector<uint8_t>> objects;
  bool holds = false;    // completions wait for release()
  int64_t allowed = -1;  // with `holds`: this many completions come all the same
  bool newest_first = false;
  int refuse = 0;           // this many submits return RETRY
  int64_t pending = 0;      // this many keys of lookups are PENDING
  int64_t fail_load = -1;   // number of the load that fails; -1 = none
  int64_t fail_store = -1;  // the same of a store
  int64_t loads = 0, stores = 0;
  int closed = 0;
  int64_t bytes_per_second = 0;  // what stats reports
  bool reports = false;          // the tier reports what it loses
  bool forgets = false;          // the next report says that there were too many
  uint32_t flags = 0;            // of the table
  std::mutex mutex;

  kvc_tier table() {
    kvc_tier t;
    kvc_tier_init(&t);
    t.name = "memory";
    t.self = this;
    t.max_object_bytes = int64_t{1} << 30;
    t.max_job_items = 16;
    t.flags = flags;
    if (reports) {
      t.removed = [](void *self, kvc_tier_key *keys, int64_t capacity) { return of(self).take_lost(keys, capacity); };
    }
    t.lookup = [](void *self, int64_t n, const kvc_tier_key *keys, kvc_tier_found *found) {
      of(self).lookup(n, keys, found);
    };
    t.store = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
      return of(self).submit(job, n, items, Op::kStore);
    };
    t.load = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
      return of(self).submit(job, n, items, Op::kLoad);
    };
    t.remove = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *items, kvc_error *) {
      return of(self).submit(job, n, items, Op::kRemove);
    };
    t.poll = [](void *self, kvc_tier_completion *done, int64_t capacity) { return of(self).poll(done, capacity); };
    t.descriptor = [](void *) { return int32_t{-1}; };
    t.cancel = [](void *, uint64_t) {};
    t.stats = [](void *self, kvc_tier_stats *stats) { stats->load_bytes_per_second = of(self).bytes_per_second; };
    t.close = [](void *self) { ++of(self).closed; };
    return t;
  }
  void release() {
    std::lock_guard lock(mutex);
    holds = false;
  }
  void allow(int64_t completions) {
    std::lock_guard lock(mutex);
    allowed = completions;
  }
  void flip(size_t object, size_t byte) {
    std::lock_guard lock(mutex);
    auto it = objects.begin();
    std::advance(it, object % objects.size());
    it->second[byte % it->second.size()] ^= 0x10;
  }

  // Loses one of its objects.
  void lose(size_t object) {
    std::lock_guard lock(mutex);
    auto it = objects.begin();
    std::advance(it, object % objects.size());
    lost.push_back(it->first);
    objects.erase(it);
  }

  int64_t num_objects() {
    std::lock_guard lock(mutex);
    return static_cast<int64_t>(objects.size());
  }
  // Waits for removes in the background.
  bool becomes_empty() {
    for (int tries = 0; num_objects() > 0 && tries < 10000; tries++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return num_objects() == 0;
  }

 private:
  enum class Op { kStore, kLoad, kRemove };
  static MemoryTier &of(void *self) { return *static_cast<MemoryTier *>(self); }
  static std::string name(const kvc_tier_key &key) { return {reinterpret_cast<const char *>(key.bytes), 32}; }
  void lookup(int64_t n, const kvc_tier_key *keys, kvc_tier_found *found) {
    std::lock_guard lock(mutex);
    for (int64_t i = 0; i < n; i++) {
      const auto it = objects.find(name(keys[i]));
      if (pending > 0) {
        --pending;
        found[i] = {KVC_TIER_PENDING, 0, 0};
        continue;
      }
      found[i] = it == objects.end() ? kvc_tier_found{KVC_TIER_MISS, 0, 0}
                                     : kvc_tier_found{KVC_TIER_HIT, 0, static_cast<int64_t>(it->second.size())};
    }
  }
  int32_t submit(uint64_t job, int64_t n, const kvc_tier_item *items, Op op) {
    std::lock_guard lock(mutex);
    if (refuse > 0) {
      --refuse;
      return KVC_TIER_RETRY;
    }
    for (int64_t i = 0; i < n; i++) waiting.push_back({job, i, items[i], op});
    return KVC_TIER_OK;
  }
  int64_t take_lost(kvc_tier_key *keys, int64_t capacity) {
    std::lock_guard lock(mutex);
    if (std::exchange(forgets, false)) {
      lost.clear();
      return -1;
    }
    int64_t count = 0;
    for (; count < capacity && !lost.empty(); lost.pop_back()) {
      std::copy_n(lost.back().begin(), 32, keys[count++].bytes);
    }
    return count;
  }
  int64_t poll(kvc_tier_completion *done, int64_t capacity) {
    std::lock_guard lock(mutex);
    int64_t count = 0;
    while ((!holds || allowed > 0) && count < capacity && !waiting.empty()) {
      --allowed;
      const Waiting w = newest_first ? waiting.back() : waiting.front();
      newest_first ? waiting.pop_back() : waiting.pop_front();
      int32_t result = KVC_TIER_OK;
      if (w.op == Op::kRemove) {
        result = objects.erase(name(w.item.key)) == 1 ? KVC_TIER_OK : KVC_TIER_MISS;
        if (result == KVC_TIER_OK) lost.push_back(name(w.item.key));
      } else if (w.op == Op::kStore && stores++ == fail_store) {
        result = KVC_TIER_FAILED;
      } else if (w.op == Op::kStore) {
        std::vector<uint8_t> &object = objects[name(w.item.key)];
        object.clear();
        for (int32_t b = 0; b < w.item.num_buffers; b++) {
          const auto *data = static_cast<const uint8_t *>(w.item.buffers[b].data);
          object.insert(object.end(), data, data + w.item.buffers[b].bytes);
        }
      } else {
        const auto it = objects.find(name(w.item.key));
        if (loads++ == fail_load || it == objects.end()) {
          result = KVC_TIER_MISS;
        } else {
          std::copy(it->second.begin(), it->second.end(), static_cast<uint8_t *>(w.item.buffers[0].data));
        }
      }
      done[count++] = {w.job, w.index, result, 0};
    }
    return count;
  }

  struct Waiting {
    uint64_t job;
    int64_t index;
    kvc_tier_item item;
    Op op;
  };
  std::deque<Waiting> waiting;
  std::vector<std::string> lost;
};

}  // namespace kvt
