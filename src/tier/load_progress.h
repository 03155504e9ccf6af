// LoadProgress: which layers of a load are in the pools. A layer is ready when all pages of its group are. The worker's
// thread reports the pages that it has loaded, and forwards of pending sequences wait for layers.
//
// Thread safety: any thread may call any method. Lock order: no other lock is taken while the lock of a LoadProgress is
// held. In a child of fork(), the lock may be held by a thread that does not exist there. So every method first checks
// in_child, and a load never completes there.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace kvc {

class LoadProgress {
 public:
  // layer_groups: [layers], the group whose pages a layer needs. pages: [groups], how many pages of each group the load
  // has. in_child: whether this process is a child of fork(). Throws std::bad_alloc.
  LoadProgress(uint64_t job, std::vector<int32_t> layer_groups, std::vector<int64_t> pages,
               const std::atomic<bool>& in_child);

  uint64_t job() const noexcept { return job_; }
  // The first layer that needs pages of a group.
  int32_t first_layer(int32_t group) const noexcept {
    return static_cast<int32_t>(std::find(layer_groups_.begin(), layer_groups_.end(), group) - layer_groups_.begin());
  }

  // Reports that a page of a group is in the pools.
  void loaded(int32_t group) noexcept;
  // Reports that the load cannot complete. Layers that are ready stay ready.
  void fail(bool cancelled) noexcept;
  bool failed() const noexcept;
  // Makes `wait` look at `stopped` again.
  void wake() noexcept;

  bool all_ready() const noexcept;
  // Returns OK if a layer is ready. Otherwise returns PENDING or, after `fail`, IO or CANCELLED. If `waits`, waits
  // instead of returning PENDING. stopped: nullable; a wait ends with CANCELLED when it is not 0.
  Status wait(int32_t layer, bool waits, const int32_t* stopped) const;
  // Returns IO or CANCELLED after `fail`, unless all layers are ready.
  Status check_not_failed() const;

  struct Counts {
    int32_t ready_layers = 0;  // the layers before this one are ready
    int64_t pages = 0, loaded = 0;
    bool failed = false;
  };
  Counts count() const noexcept;

 private:
  struct Group {
    int64_t pages = 0;
    int64_t loaded = 0;
  };

  bool ready(int32_t layer) const noexcept KVC_REQUIRES(mutex_);
  Status failure(int32_t layer) const KVC_REQUIRES(mutex_);

  const uint64_t job_;
  const std::vector<int32_t> layer_groups_;
  const std::atomic<bool>& in_child_;
  mutable Mutex mutex_;
  mutable Condition changed_;
  std::vector<Group> groups_ KVC_GUARDED_BY(mutex_);
  bool failed_ KVC_GUARDED_BY(mutex_) = false;
  bool cancelled_ KVC_GUARDED_BY(mutex_) = false;
};

}  // namespace kvc
