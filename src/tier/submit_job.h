// submit_job: puts a job into the JobQueue of a tier, and records which keys are being stored.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cinttypes>
#include <new>

#include "tier/job_queue.h"

namespace kvc {

// Submits a job, whole or not at all. *accepted: false = the queue is full. If the job stores, calls
// keys.begin_store for each item before the item is in the queue; begin_store may throw std::bad_alloc. If such a job
// is accepted, the tier must call keys.end_store when an item is done.
template <typename Keys>
Status submit_job(JobQueue* queue, Keys* keys, TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items,
                  bool* accepted) noexcept {
  int64_t begun = 0;
  const auto take_back = [&] {
    for (int64_t i = 0; i < begun; ++i) keys->end_store(items[i].key);
  };
  try {
    for (; work == TierWork::kStore && begun < n; ++begun) keys->begin_store(items[begun].key);
  } catch (const std::bad_alloc&) {
    take_back();
    return Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a job of %" PRId64 " items", n);
  }
  *accepted = queue->submit(work, job, n, items);
  if (!*accepted) take_back();
  return Status();
}

}  // namespace kvc
