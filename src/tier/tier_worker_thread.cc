// The thread of a TierWorker.
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

#include "base/steady_clock.h"
#include "system/wake_event.h"
#include "tier/tier_worker.h"

namespace kvc {
namespace {

constexpr int kShortWaitMs = 1;  // see wait_for_work

}  // namespace

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
    progress = cancel_late() || progress;
    if (submit_refused()) {
      // Queued stores come last, because a request waits for the pages of a load or of store_all.
      for (Item* item = free_item(); item != nullptr && (start_page(*item) || start_store(*item));) {
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
  const bool removing = std::any_of(work_->loads.begin(), work_->loads.end(),
                                    [](const auto& l) { return l.second.work == TierWork::kRemove; });
  return work_->stopping && !removing && std::none_of(items_.get(), items_.get() + kMaxOpenItems, in_use);
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
          continue;  // the tier returned a wrong completion
        finish(item, done[i].result);
      }
    }
  }
  return some;
}

// Submits refused items again. Returns whether no item was refused.
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
  const bool removes = item.work == TierWork::kRemove;
  item.buffer = {item.object.data(), item.bytes};
  item.item = {item.page.key, removes ? nullptr : &item.buffer, removes ? 0 : 1, 0, item.buffer.bytes};
  const bool keeps = item.load != 0 && item.work == TierWork::kStore && (table.flags & KVC_TIER_KEEPS) != 0;
  if (keeps) item.item.flags = KVC_TIER_ITEM_KEEP;  // store_all: a page of a suspended sequence
  item.job = ++last_job_ * kMaxOpenItems + static_cast<uint64_t>(&item - items_.get());
  item.state = Item::State::kOpen;
  kvc_error error = KVC_ERROR_INIT;
  const auto call = item.work == TierWork::kLoad ? table.load : removes ? table.remove : table.store;
  const int32_t result = call(table.self, item.job, 1, &item.item, &error);
  if (result == KVC_TIER_OK) return;
  if (result == KVC_TIER_RETRY) {
    item.state = Item::State::kRefused;
  } else {
    finish(item, result);
  }
}

// Drops from each search the keys that are no longer PENDING in a tier. A search ends when it has no key left, or after
// kSearchNs. Returns whether it dropped such a key.
bool TierWorker::search() {
  const int64_t now = steady_ns();
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

// Returns how many leading pages of store_all fit in the tiers. Tiers other than host tiers evict what they must.
size_t TierWorker::count_fitting(const std::vector<LoadPage>& pages) const noexcept {
  int32_t tier = -1;
  int64_t room = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    const int64_t bytes = pages[i].found.bytes;
    while (tier < 0 || room < tiers_[tier].host->rounded(bytes)) {
      if ((tier = next_tier(tier)) < 0) return i;
      if (tiers_[tier].host == nullptr) return pages.size();
      room = tiers_[tier].host->room_to_keep();
    }
    room -= tiers_[tier].host->rounded(bytes);
  }
  return pages.size();
}

// Cancels the loads whose time limit has passed. Returns whether there was one.
bool TierWorker::cancel_late() {
  bool any = false;
  limited_ = false;
  MutexLock lock(mutex_);
  for (auto& [id, load] : work_->loads) {
    if (load.cancel_at_ns == INT64_MAX || load.cancelled || load.done()) continue;
    limited_ = true;
    if (steady_ns() < load.cancel_at_ns) continue;
    load.cancelled = any = true;
    load.progress->fail(true);
    if (load.done()) write_event(done_event_);
  }
  return any;
}

// Starts the next page of a load, of store_all or of a removal. Returns whether there was one.
bool TierWorker::start_page(Item& item) {
  item.made = false;
  {
    MutexLock lock(mutex_);
    const bool stopping = work_->stopping;
    const auto load = std::find_if(work_->loads.begin(), work_->loads.end(), [=](const auto& l) {
      const bool wanted = l.second.work == TierWork::kRemove || !stopping;
      return wanted && !l.second.cancelled && l.second.next < l.second.pages.size();
    });
    if (load == work_->loads.end()) return false;
    if (load->second.pages[load->second.next].page.block >= load->second.first_failed) {
      // After a page that failed, later blocks are of no use. Earlier blocks of other groups are.
      ++load->second.next;
      work_->counts.loading_pages -= load->second.work == TierWork::kLoad;
      if (load->second.done()) write_event(done_event_);
      return true;
    }
    item.work = load->second.work;
    if (item.work == TierWork::kStore && load->second.next == 0) {
      const std::vector<LoadPage>& pages = load->second.pages;
      if (const size_t fitting = count_fitting(pages); fitting < pages.size()) {
        load->second.next = fitting;  // poll_load reports this page as the first one that was not stored
        load->second.cancelled = true;
        work_->counts.queued -= static_cast<int64_t>(fitting);
        write_event(done_event_);
        return true;
      }
    }
    item.index = load->second.next;
    const LoadPage& next = load->second.pages[load->second.next++];
    ++load->second.open;
    item.page = next.page;
    item.tier = item.work == TierWork::kStore ? next_tier(-1) : next.found.tier;
    item.load = load->first;
    item.bytes = item.work == TierWork::kLoad ? next.found.bytes : 0;
  }
  if (item.work == TierWork::kStore) item.bytes = owner_.object_bytes(item.page);
  static const std::atomic<bool> valid = true;  // store_all: no call releases the page (invariant 1)
  if (!start(item, valid)) end_page(item, false);
  return true;
}

// Starts an item in its tier, and also ends it if the tier is a host tier. Returns false if a page cannot be read, or
// if there is no memory for the object.
bool TierWorker::start(Item& item, const std::atomic<bool>& valid) {
  HostStore* const host = tiers_[item.tier].host;
  if (host != nullptr && item.work != TierWork::kRemove) {
    int32_t result = KVC_TIER_OK;
    if (item.work == TierWork::kStore && !store_in_place(*host, item, valid, &result)) return false;
    finish(item, result);
    return true;
  }
  try {
    item.object.resize(static_cast<size_t>(item.bytes));
  } catch (const std::exception&) {  // the tier returned a size that is too large for this process
    return false;
  }
  if (item.work == TierWork::kStore && !item.made) {
    if (!owner_.read_page(item.page, valid, ObjectMemory::of(item.object))) return false;
    item.made = true;
  }
  submit(item);
  return true;
}

// Makes the object of a page in the memory of a host tier. Returns false if the page cannot be read. Else *result is as
// in a completion.
bool TierWorker::store_in_place(HostStore& host, const Item& item, const std::atomic<bool>& valid, int32_t* result) {
  const bool kept = item.load != 0;  // store_all: a page of a suspended sequence
  try {
    HostStore::Place place;
    *result = host.begin_store(item.page.key, item.bytes, kept, &place);
    if (*result != KVC_TIER_OK) return true;
    const bool read = owner_.read_page(item.page, valid, place.memory());
    host.end_store(&place, read);
    return read;
  } catch (const std::bad_alloc&) {
    host.count_failure(ENOMEM);
    *result = KVC_TIER_FAILED;
    return true;
  }
}

// Starts the next store of the queue. Returns whether there was one. Pages with PENDING keys stay in their places in
// the queue.
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
      while (next != work.queue.end() && !is_waiting(*next)) next = work.queue.erase(next);  // dropped by `forget`
      searching_ = searching_ || searched > 0;
      if (next == work.queue.end() || searched == kMaxSearched) return false;
      const kvc_tier& table = tiers_[next->tier].table;
      table.lookup(table.self, 1, &next->page.key, &known);
      if (known.result == KVC_TIER_MISS || known.result == KVC_TIER_HIT) break;
    }
    item.tier = next->tier;
    item.page = std::move(next->page);
    item.load = 0;
    item.work = TierWork::kStore;
    work.queue.erase(next);
    work.reading = place_of(item.tier, item.page.group, item.page.page);
    work.queued.erase(work.reading);
    ++work.counts.queued;  // counted until it is stored
    reading_valid_ = true;
  }
  const bool wanted = known.result == KVC_TIER_MISS;
  if (!wanted) owner_.changed(item.tier, item.page, true);
  if (wanted) {
    item.made = false;
    item.bytes = owner_.object_bytes(item.page);
  }
  const bool started = wanted && start(item, reading_valid_);
  MutexLock lock(mutex_);
  work_->reading = 0;
  if (!started) {
    --work_->counts.queued;
    work_->counts.dropped_pages += wanted;
  }
  return true;
}

void TierWorker::finish(Item& item, int32_t result) {
  item.state = Item::State::kFree;
  bool ok = result == KVC_TIER_OK;
  if (item.load != 0) {
    const int32_t next = item.work == TierWork::kStore && !ok ? next_tier(item.tier) : -1;
    if (next >= 0) {
      static const std::atomic<bool> valid = true;  // as in start_page
      item.tier = next;
      if (!start(item, valid)) end_page(item, false);
      return;
    }
    if (item.work == TierWork::kLoad) {
      if (result == KVC_TIER_MISS) owner_.changed(item.tier, item.page, false);
      ok = ok && write(item);
    }
    end_page(item, ok);
    return;
  }
  if (ok) owner_.changed(item.tier, item.page, true);
  MutexLock lock(mutex_);
  --work_->counts.queued;
  ++(ok ? work_->counts.stored_pages : work_->counts.failed_stores);
}

// Writes a loaded object to its page. If the object is not that of the page, removes it from the tier in the
// background. Otherwise the tier would never get the right object, because it already has one with this key.
bool TierWorker::write(Item& item) {
  Owner::Written written = Owner::Written::kFailed;
  if (HostStore* const host = tiers_[item.tier].host) {
    try {
      HostStore::Place place;
      if (host->begin_load(item.page.key, item.bytes, &place) != KVC_TIER_OK) {
        owner_.changed(item.tier, item.page, false);
        return false;
      }
      written = owner_.write_page(item.page, place.memory());
      host->end_load(&place, written == Owner::Written::kYes);
    } catch (const std::bad_alloc&) {
      return false;
    }
  } else {
    written = owner_.write_page(item.page, ObjectMemory::of(item.object));
  }
  if (written == Owner::Written::kOtherObject && item.page.tokens != nullptr &&
      tiers_[item.tier].stores != Stores::kNothing) {
    try {
      remove({{item.page, {.tier = item.tier}}});
    } catch (const std::bad_alloc&) {  // a later load removes it
    }
  }
  return written == Owner::Written::kYes;
}

void TierWorker::end_page(const Item& item, bool ok) {
  if (ok && item.work == TierWork::kRemove) owner_.changed(item.tier, item.page, false);
  MutexLock lock(mutex_);
  const auto found = work_->loads.find(item.load);
  Load& load = found->second;
  --load.open;
  if (load.work == TierWork::kRemove) {
    if (load.done()) work_->loads.erase(found);
    return;
  }
  Counts& counts = work_->counts;
  if (load.work == TierWork::kLoad) {
    --counts.loading_pages;
    ++(ok ? counts.loaded_pages : counts.failed_loads);
    if (load.progress && ok) load.progress->loaded(item.page.group);
    if (load.progress && !ok) load.progress->fail(false);
  } else {
    --counts.queued;
    ++(ok ? counts.stored_pages : counts.failed_stores);
    if (ok) load.pages[item.index].found = {.tier = item.tier, .bytes = item.bytes};
  }
  if (!ok) {
    load.first_failed = std::min(load.first_failed, item.page.block);
    // The later pages are of no use without this one. But a load may still have earlier blocks of other groups to load.
    load.cancelled = load.cancelled || load.work == TierWork::kStore;
  }
  if (load.done()) write_event(done_event_);
}

// Waits until there is work, or a tier's descriptor is readable. Waits only kShortWaitMs while a key is PENDING, while
// an item is refused, while a load has a time limit, or while items are open and some tier has no descriptor.
void TierWorker::wait_for_work() {
  int events[kMaxTiers + 1] = {work_event_};
  size_t count = 1;
  const auto any = [this](Item::State state) {
    return std::any_of(items_.get(), items_.get() + kMaxOpenItems, [=](const Item& i) { return i.state == state; });
  };
  bool short_wait = searching_ || limited_ || any(Item::State::kRefused);
  for (int32_t t = 0; t < num_tiers(); ++t) {
    const int event = tiers_[t].table.descriptor(tiers_[t].table.self);
    if (event >= 0) {
      events[count++] = event;
    } else {
      short_wait = short_wait || any(Item::State::kOpen);
    }
  }
  if (wait_for_events({events, count}, short_wait ? kShortWaitMs : -1)) clear_event(work_event_);
}

}  // namespace kvc
