#include "tier/tier_worker.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/steady_clock.h"
#include "system/thread.h"
#include "system/wake_event.h"

namespace kvc {

TierWorker::TierWorker(Owner* owner) : owner_(*owner), fork_watch_(child_of_fork, this) {}

TierWorker::~TierWorker() {
  if (in_child_) {
    (void)work_.release();  // the thread may have been changing it during fork(), so it is not destroyed
    (void)items_.release();
  } else {
    bool started = false;
    {
      MutexLock lock(mutex_);
      work_->stopping = true;
      started = started_;
      for (auto& [id, load] : work_->loads) load.cancelled = load.work != TierWork::kRemove;
    }
    wake();
    if (started) pthread_join(thread_, nullptr);
  }
  for (int32_t i = 0; i < num_tiers_; ++i) tiers_[i].table.close(tiers_[i].table.self);
  for (const int event : {work_event_, done_event_}) {
    if (event >= 0) close_event(event);
  }
}

void TierWorker::child_of_fork(void* self) noexcept {
  auto& worker = *static_cast<TierWorker*>(self);
  worker.in_child_ = true;
  new (&worker.mutex_) Mutex;
  worker.owner_.in_child();
}

Status TierWorker::add(const Tier& tier) {
  MutexLock lock(mutex_);
  const int32_t count = num_tiers_.load();
  if (count == kMaxTiers) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the cache has %d tiers, and more are not supported", count);
  }
  for (int* event : {&work_event_, &done_event_}) {
    if (*event >= 0) continue;
    *event = open_event();
    if (*event < 0) {
      return Status::error(KVC_ERROR_OUT_OF_MEMORY, "an event: %s", std::strerror(errno));
    }
  }
  tiers_[count] = tier;
  num_tiers_.store(count + 1, std::memory_order_release);
  return Status();
}

int32_t TierWorker::num_by_io_uring() const noexcept {
  return static_cast<int32_t>(std::count_if(tiers_, tiers_ + num_tiers(), [](const Tier& tier) {
    return (tier.table.flags & KVC_TIER_READS_BY_IO_URING) != 0;
  }));
}

void TierWorker::lookup(std::span<const kvc_tier_key> keys, std::span<Found> found) {
  std::fill(found.begin(), found.end(), Found{});
  if (in_child_) return;
  std::vector<kvc_tier_found> answers(keys.size());
  for (int32_t t = 0; t < num_tiers(); ++t) {
    const kvc_tier& table = tiers_[t].table;
    table.lookup(table.self, static_cast<int64_t>(keys.size()), keys.data(), answers.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      const int32_t answer = answers[i].result;
      const auto bit = static_cast<uint8_t>(1 << t);
      if (answer == KVC_TIER_HIT) found[i].hits |= bit;
      if (answer == KVC_TIER_MISS) found[i].misses |= bit;
      if (found[i].tier < 0 && answer == KVC_TIER_HIT) {
        found[i].tier = t;
        found[i].pending = false;
        found[i].bytes = answers[i].bytes;
      }
      if (found[i].tier < 0 && answer != KVC_TIER_MISS) found[i].pending = true;
    }
  }
}

bool TierWorker::is_pending(const kvc_tier_key& key) const {
  bool pending = false;
  for (int32_t t = 0; t < num_tiers(); ++t) {
    kvc_tier_found answer = {};
    tiers_[t].table.lookup(tiers_[t].table.self, 1, &key, &answer);
    if (answer.result == KVC_TIER_HIT) return false;
    pending = pending || answer.result != KVC_TIER_MISS;
  }
  return pending;
}

TierWorker::Speed TierWorker::speed(int32_t tier) const {
  kvc_tier_stats stats;
  kvc_tier_stats_init(&stats);
  const kvc_tier& table = tiers_[tier].table;
  table.stats(table.self, &stats);
  return {stats.load_latency_ns, stats.load_bytes_per_second};
}

int64_t TierWorker::Speed::load_ns(int64_t bytes) const noexcept {
  if (bytes == 0 || bytes_per_second <= 0) return 0;
  const double transfer = 1e9 * static_cast<double>(bytes) / static_cast<double>(bytes_per_second);
  return latency_ns + static_cast<int64_t>(std::min(transfer, 1e18));
}

bool TierWorker::store(int32_t tier, TierPage page) {
  if (in_child_) return false;
  {
    MutexLock lock(mutex_);
    Work& work = *work_;
    if (static_cast<int64_t>(work.queued.size()) >= kMaxQueued || !start_thread().ok()) {
      ++work.counts.dropped_pages;
      return false;
    }
    const uint64_t number = ++work.last_number;
    const uint64_t place = place_of(tier, page.group, page.page);
    if (!work.queued.emplace(place, number).second) return true;
    work.queue.push_back({std::move(page), tier, number});
  }
  wake();
  return true;
}

void TierWorker::forget(int32_t group, int32_t page) {
  if (in_child_) return;
  MutexLock lock(mutex_);
  Work& work = *work_;
  if (work.queued.empty() && work.reading == 0) return;
  for (int32_t t = 0; t < num_tiers_; ++t) {
    const uint64_t place = place_of(t, group, page);
    work.counts.dropped_pages += static_cast<int64_t>(work.queued.erase(place));
    if (work.reading == place) reading_valid_ = false;
  }
}

int32_t TierWorker::next_tier(int32_t tier) const noexcept {
  do ++tier;
  while (tier < num_tiers() && tiers_[tier].stores == Stores::kNothing);
  return tier < num_tiers() ? tier : -1;
}

Status TierWorker::store_all(std::vector<LoadPage> pages, uint64_t* load) {
  Load made;
  made.work = TierWork::kStore;
  made.pages = std::move(pages);
  return add_load(std::move(made), load);
}

void TierWorker::remove(std::vector<LoadPage> pages) {
  std::erase_if(pages, [](const LoadPage& page) { return page.found.tier < 0; });
  if (in_child_ || pages.empty()) return;
  Load made;
  made.work = TierWork::kRemove;
  made.pages = std::move(pages);
  uint64_t load = 0;
  (void)add_load(std::move(made), &load).ok();  // cannot fail: the thread runs already
}

Status TierWorker::load(std::vector<LoadPage> pages, uint64_t* load, std::shared_ptr<LoadProgress> progress) {
  Load made;
  made.pages = std::move(pages);
  made.progress = std::move(progress);
  return add_load(std::move(made), load);
}

void TierWorker::load_by_group(uint64_t id, int64_t limit_ns) {
  if (in_child_) return;
  {
    MutexLock lock(mutex_);
    const auto found = work_->loads.find(id);
    if (found == work_->loads.end()) return;
    Load& load = found->second;
    const LoadProgress& progress = *load.progress;
    if (limit_ns > 0) {
      const int64_t now = steady_ns();
      load.cancel_at_ns = std::min(load.cancel_at_ns, limit_ns > INT64_MAX - now ? INT64_MAX : now + limit_ns);
    }
    std::sort(load.pages.begin() + static_cast<ptrdiff_t>(load.next), load.pages.end(),
              [&](const LoadPage& a, const LoadPage& b) {
                const int32_t first = progress.first_layer(a.page.group), second = progress.first_layer(b.page.group);
                return first != second ? first < second : a.page.block < b.page.block;
              });
  }
  wake();  // for the time limit
}

Status TierWorker::search(std::vector<kvc_tier_key> keys, uint64_t* load) {
  Load made;
  made.searched = std::move(keys);
  made.search_until_ns = steady_ns() + kSearchNs;
  return add_load(std::move(made), load);
}

Status TierWorker::add_load(Load load, uint64_t* id) {
  *id = 0;
  if (in_child_) return Status();  // poll_load then reports a failure
  {
    MutexLock lock(mutex_);
    KVC_TRY(start_thread());
    const auto count = static_cast<int64_t>(load.pages.size());
    const TierWork work = load.work;
    const bool done = load.done();
    work_->loads[work_->last_load + 1] = std::move(load);
    if (work == TierWork::kLoad) work_->counts.loading_pages += count;
    if (work == TierWork::kStore) work_->counts.queued += count;
    *id = ++work_->last_load;
    if (done) write_event(done_event_);
  }
  wake();
  return Status();
}

TierWorker::Loaded TierWorker::poll_load(uint64_t id) {
  if (in_child_) return {true, true, 0, {}};
  MutexLock lock(mutex_);
  const auto found = work_->loads.find(id);
  if (found == work_->loads.end()) return {};
  Load& load = found->second;
  Loaded result{true, load.done(), load.first_failed, {}};
  if (!result.done) return result;
  if (load.cancelled && load.next < load.pages.size()) {
    int64_t& left = load.work == TierWork::kLoad ? work_->counts.loading_pages : work_->counts.queued;
    left -= static_cast<int64_t>(load.pages.size() - load.next);
    for (size_t i = load.next; i < load.pages.size(); ++i) {
      result.first_failed = std::min(result.first_failed, load.pages[i].page.block);
    }
  }
  if (load.work == TierWork::kStore) result.pages = std::move(load.pages);
  work_->loads.erase(found);
  const bool more =
      std::any_of(work_->loads.begin(), work_->loads.end(), [](const auto& l) { return l.second.done(); });
  if (!more) clear_event(done_event_);
  return result;
}

void TierWorker::cancel_load(uint64_t id) {
  if (in_child_) return;
  MutexLock lock(mutex_);
  const auto found = work_->loads.find(id);
  if (found == work_->loads.end()) return;
  found->second.cancelled = true;
  if (found->second.progress) found->second.progress->fail(true);
  if (found->second.done()) write_event(done_event_);
}

TierWorker::Counts TierWorker::counts() {
  if (in_child_) return {};
  MutexLock lock(mutex_);
  Counts counts = work_->counts;
  counts.queued += static_cast<int64_t>(work_->queued.size());
  return counts;
}

Status TierWorker::start_thread() {
  if (started_) return Status();
  const int failed = kvc::start_thread(&thread_, thread_main, this, ThreadSignals::kNone);
  if (failed != 0) return Status::error(KVC_ERROR_OUT_OF_MEMORY, "a thread cannot start: %s", std::strerror(failed));
  started_ = true;
  return Status();
}

void TierWorker::wake() noexcept {
  if (work_event_ >= 0) write_event(work_event_);
}

}  // namespace kvc
