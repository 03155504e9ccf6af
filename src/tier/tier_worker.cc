#include "tier/tier_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <new>

namespace kvc {
namespace {

constexpr int kShortWaitMs = 1;  // for a tier that is full of work, or that has no descriptor

int64_t now_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void write_event(int event) noexcept {
  const uint64_t one = 1;
  while (write(event, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void clear_event(int event) noexcept {
  uint64_t count = 0;
  while (read(event, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace

TierWorker::TierWorker(Owner* owner) : owner_(*owner), fork_watch_(child_of_fork, this) {}

TierWorker::~TierWorker() {
  if (in_child_) {
    (void)work_.release();  // the thread may have been changing it
    (void)items_.release();
  } else {
    bool started = false;
    {
      MutexLock lock(mutex_);
      work_->stopping = true;
      started = started_;
      for (auto& [id, load] : work_->loads) load.cancelled = true;
    }
    wake();
    if (started) pthread_join(thread_, nullptr);
  }
  for (int32_t i = 0; i < num_tiers_; ++i) tiers_[i].table.close(tiers_[i].table.self);
  for (const int event : {work_event_, done_event_}) {
    if (event >= 0) close(event);
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
    *event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*event < 0) {
      return Status::error(KVC_ERROR_OUT_OF_MEMORY, "eventfd: %s", std::strerror(errno));
    }
  }
  tiers_[count] = tier;
  num_tiers_.store(count + 1, std::memory_order_release);
  return Status();
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
      if (found[i].tier < 0 && answer == KVC_TIER_HIT) found[i] = {t, false, answers[i].bytes};
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

int64_t TierWorker::load_ns(int32_t tier, int64_t bytes) const {
  kvc_tier_stats stats;
  kvc_tier_stats_init(&stats);
  const kvc_tier& table = tiers_[tier].table;
  table.stats(table.self, &stats);
  if (stats.load_bytes_per_second <= 0) return 0;
  const double transfer = 1e9 * static_cast<double>(bytes) / static_cast<double>(stats.load_bytes_per_second);
  return stats.load_latency_ns + static_cast<int64_t>(std::min(transfer, 9e18));
}

void TierWorker::store(int32_t tier, TierPage page) {
  if (in_child_) return;
  {
    MutexLock lock(mutex_);
    Work& work = *work_;
    if (static_cast<int64_t>(work.queued.size()) >= kMaxQueued || !start_thread().ok()) {
      ++work.counts.dropped_pages;
      return;
    }
    const uint64_t number = ++work.last_number;
    const uint64_t place = place_of(tier, page.group, page.page);
    if (!work.queued.emplace(place, number).second) return;
    work.queue.push_back({std::move(page), tier, number});
  }
  wake();
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

Status TierWorker::load(std::vector<LoadPage> pages, uint64_t* load) {
  Load made;
  made.pages = std::move(pages);
  return add_load(std::move(made), load);
}

Status TierWorker::search(std::vector<kvc_tier_key> keys, uint64_t* load) {
  Load made;
  made.searched = std::move(keys);
  made.search_until_ns = now_ns() + kSearchNs;
  return add_load(std::move(made), load);
}

Status TierWorker::add_load(Load load, uint64_t* id) {
  {
    MutexLock lock(mutex_);
    KVC_TRY(start_thread());
    const auto count = static_cast<int64_t>(load.pages.size());
    work_->loads[work_->last_load + 1] = std::move(load);
    work_->counts.loading_pages += count;
    *id = ++work_->last_load;
  }
  wake();
  return Status();
}

TierWorker::Loaded TierWorker::poll_load(uint64_t id) {
  if (in_child_) return {true, true, 0};
  MutexLock lock(mutex_);
  const auto found = work_->loads.find(id);
  if (found == work_->loads.end()) return {};
  const Load& load = found->second;
  Loaded result{true, load.done(), load.first_failed};
  if (!result.done) return result;
  if (load.cancelled && load.next < load.pages.size()) {
    work_->counts.loading_pages -= static_cast<int64_t>(load.pages.size() - load.next);
    for (size_t i = load.next; i < load.pages.size(); ++i) {
      result.first_failed = std::min(result.first_failed, load.pages[i].page.block);
    }
  }
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
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&thread_, nullptr, thread_main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return Status::error(KVC_ERROR_OUT_OF_MEMORY, "a thread cannot start: %s", std::strerror(failed));
  started_ = true;
  return Status();
}

void TierWorker::wake() noexcept {
  if (work_event_ >= 0) write_event(work_event_);
}

// ---- The thread
// -------------------------------------------------------------------------------------------------------

void* TierWorker::thread_main(void* self) {
  pthread_setname_np(pthread_self(), "kvc-tier");
  static_cast<TierWorker*>(self)->run();
  return nullptr;
}

void TierWorker::run() {
  while (!may_stop()) {
    searching_ = false;
    bool progress = take_completions();
    progress = search() || progress;
    if (submit_refused()) {
      // Loads come first, because a request waits for them.
      for (Item* item = free_item(); item != nullptr && (start_load_page(*item) || start_store(*item));) {
        progress = true;
        item = submit_refused() ? free_item() : nullptr;
      }
    }
    if (!progress) wait_for_work();
  }
}

bool TierWorker::may_stop() {
  const auto in_use = [](const Item& item) { return item.state == Item::State::kOpen; };
  MutexLock lock(mutex_);
  return work_->stopping && std::none_of(items_.get(), items_.get() + kMaxOpenItems, in_use);
}

TierWorker::Item* TierWorker::free_item() noexcept {
  Item* const end = items_.get() + kMaxOpenItems;
  Item* const item = std::find_if(items_.get(), end, [](const Item& i) { return i.state == Item::State::kFree; });
  return item == end ? nullptr : item;
}

bool TierWorker::take_completions() {
  kvc_tier_completion done[16];
  bool some = false;
  for (int32_t t = 0; t < num_tiers(); ++t) {
    const kvc_tier& table = tiers_[t].table;
    int64_t count = 0;
    while ((count = table.poll(table.self, done, std::size(done))) > 0) {
      some = true;
      for (int64_t i = 0; i < std::min<int64_t>(count, std::size(done)); ++i) {
        Item& item = items_[done[i].job % kMaxOpenItems];
        if (item.state != Item::State::kOpen || item.job != done[i].job || item.tier != t)
          continue;  // a tier's mistake
        finish(item, done[i].result);
      }
    }
  }
  return some;
}

// True if no item waits for a tier that was full of work.
bool TierWorker::submit_refused() {
  for (int64_t i = 0; i < kMaxOpenItems; ++i) {
    if (items_[i].state != Item::State::kRefused) continue;
    submit(items_[i]);
    if (items_[i].state == Item::State::kRefused) return false;
  }
  return true;
}

void TierWorker::submit(Item& item) {
  const kvc_tier& table = tiers_[item.tier].table;
  item.buffer = {item.object.data(), static_cast<int64_t>(item.object.size())};
  item.item = {item.page.key, &item.buffer, 1, 0, item.buffer.bytes};
  item.job = ++last_job_ * kMaxOpenItems + static_cast<uint64_t>(&item - items_.get());
  item.state = Item::State::kOpen;
  kvc_error error = KVC_ERROR_INIT;
  const int32_t result = item.load != 0 ? table.load(table.self, item.job, 1, &item.item, &error)
                                        : table.store(table.self, item.job, 1, &item.item, &error);
  if (result == KVC_TIER_OK) return;
  if (result == KVC_TIER_RETRY) {
    item.state = Item::State::kRefused;
  } else {
    finish(item, result);
  }
}

// Ends searches whose keys are known, or that took too long. Whether there were such keys.
bool TierWorker::search() {
  const int64_t now = now_ns();
  int64_t known = 0;
  MutexLock lock(mutex_);
  for (auto& [id, load] : work_->loads) {
    std::vector<kvc_tier_key>& keys = load.searched;
    if (keys.empty() || load.cancelled) continue;
    if (now >= load.search_until_ns) keys.clear();
    for (; !keys.empty() && known < kMaxKnown && !is_pending(keys.back()); ++known) keys.pop_back();
    if (keys.empty()) write_event(done_event_);
    searching_ = searching_ || !keys.empty();
  }
  return known > 0;
}

// Whether there was a page to load.
bool TierWorker::start_load_page(Item& item) {
  int64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    if (work_->stopping) return false;
    const auto load = std::find_if(work_->loads.begin(), work_->loads.end(), [](const auto& l) {
      return !l.second.cancelled && l.second.next < l.second.pages.size();
    });
    if (load == work_->loads.end()) return false;
    const LoadPage& next = load->second.pages[load->second.next++];
    ++load->second.open;
    item.page = next.page;
    item.tier = next.found.tier;
    item.load = load->first;
    bytes = next.found.bytes;
  }
  try {
    item.object.resize(static_cast<size_t>(bytes));
  } catch (const std::exception&) {  // the tier's size is too large for this process
    end_page(item.load, item.page.block, false);
    return true;
  }
  submit(item);
  return true;
}

// Whether there was a page to store. Pages for which a tier still searches keep their places in the queue.
bool TierWorker::start_store(Item& item) {
  kvc_tier_found known = {};
  {
    MutexLock lock(mutex_);
    Work& work = *work_;
    if (work.stopping) return false;
    const auto is_waiting = [&work](const Queued& queued) {
      const auto place = work.queued.find(place_of(queued.tier, queued.page.group, queued.page.page));
      return place != work.queued.end() && place->second == queued.number;
    };
    auto next = work.queue.begin();
    for (size_t searched = 0;; ++searched, ++next) {
      while (next != work.queue.end() && !is_waiting(*next)) next = work.queue.erase(next);  // it was forgotten
      searching_ = searching_ || searched > 0;
      if (next == work.queue.end() || searched == kMaxSearched) return false;
      const kvc_tier& table = tiers_[next->tier].table;
      table.lookup(table.self, 1, &next->page.key, &known);
      if (known.result == KVC_TIER_MISS || known.result == KVC_TIER_HIT) break;
    }
    item.tier = next->tier;
    item.page = std::move(next->page);
    item.load = 0;
    work.queue.erase(next);
    work.reading = place_of(item.tier, item.page.group, item.page.page);
    work.queued.erase(work.reading);
    ++work.counts.queued;  // until it is stored
    reading_valid_ = true;
  }
  const bool wanted = known.result == KVC_TIER_MISS;
  const bool read = wanted && owner_.read_page(item.page, reading_valid_, &item.object);
  {
    MutexLock lock(mutex_);
    work_->reading = 0;
    if (!read) {
      --work_->counts.queued;
      work_->counts.dropped_pages += wanted;
    }
  }
  if (read) submit(item);
  return true;
}

void TierWorker::finish(Item& item, int32_t result) {
  item.state = Item::State::kFree;
  if (item.load != 0) {
    end_page(item.load, item.page.block, result == KVC_TIER_OK && owner_.write_page(item.page, item.object));
    return;
  }
  MutexLock lock(mutex_);
  --work_->counts.queued;
  ++(result == KVC_TIER_OK ? work_->counts.stored_pages : work_->counts.failed_stores);
}

void TierWorker::end_page(uint64_t load, int64_t block, bool ok) {
  MutexLock lock(mutex_);
  Load& known = work_->loads.at(load);
  --known.open;
  --work_->counts.loading_pages;
  ++(ok ? work_->counts.loaded_pages : work_->counts.failed_loads);
  if (!ok) {
    known.first_failed = std::min(known.first_failed, block);
    known.cancelled = true;  // what follows could not be used
  }
  if (known.done()) write_event(done_event_);
}

void TierWorker::wait_for_work() {
  struct pollfd waits[kMaxTiers + 1] = {{work_event_, POLLIN, 0}};
  nfds_t count = 1;
  const auto any = [this](Item::State state) {
    return std::any_of(items_.get(), items_.get() + kMaxOpenItems, [=](const Item& i) { return i.state == state; });
  };
  bool short_wait = searching_ || any(Item::State::kRefused);
  for (int32_t t = 0; t < num_tiers(); ++t) {
    const int fd = tiers_[t].table.descriptor(tiers_[t].table.self);
    if (fd >= 0) {
      waits[count++] = {fd, POLLIN, 0};
    } else {
      short_wait = short_wait || any(Item::State::kOpen);
    }
  }
  if (poll(waits, count, short_wait ? kShortWaitMs : -1) < 0) return;
  if (waits[0].revents != 0) clear_event(work_event_);
}

}  // namespace kvc
