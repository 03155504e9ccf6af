#include "cache/tier_jobs.h"

#include <algorithm>
#include <cinttypes>
#include <new>
#include <utility>

#include "base/assert.h"

namespace kvc {
namespace {

// The largest number of blocks of a group in one lookup. If a group needs every page, no further lookup is made after
// the first one that finds a missing block.
constexpr int64_t kLookupBlocks = 256;

// As KVC_TIER_STORE_EVICTED says. The limit bounds the time of a call.
constexpr int64_t kLeastFree = 1024;

static_assert(TierWorker::kMaxTiers <= 8);
constexpr uint8_t bit_of(int32_t tier) { return static_cast<uint8_t>(1 << tier); }

}  // namespace

Status TierJobs::create(CacheCore* core, std::unique_ptr<TierJobs>* out) {
  std::unique_ptr<TierJobs> jobs(new TierJobs(core));
  KVC_TRY(jobs->stream_.open(core->context));
  KVC_TRY(PageObjects::create(core->layers, *core->geometry.fingerprint, &jobs->objects_));
  KVC_TRY(make_suspend_key(&jobs->suspend_key_));
  jobs->core_.mutex.assert_held();
  for (int32_t g = 0; g < core->num_groups(); ++g) {
    jobs->handed_.emplace_back(core->store.table(g).num_pages());
    jobs->wanted_.emplace_back(core->store.table(g).num_pages());
  }
  jobs->listed_.resize(jobs->handed_.size());
  core->prefixes->set_watcher(jobs.get());
  *out = std::move(jobs);
  return Status();
}

Status TierJobs::add(const TierWorker::Tier& tier) {
  if (tier.host != nullptr && tier.host->pinned()) KVC_TRY(objects_->prepare_pinned());
  if (watch_.is_on()) TierWatch::begin(tier.table);
  return worker_.add(tier);
}

KeyedQuery TierJobs::keyed(const PrefixQuery& query, uint64_t session) const {
  const TokenRuns::Key& key = query.key;
  KeyedQuery keyed;
  keyed.tokens = std::make_shared<const std::vector<int32_t>>(key.tokens.begin(), key.tokens.end());
  keyed.salt = key.salt;
  keyed.salt_begin = key.salt_begin;
  keyed.context = ContextRef(key.context);
  if (watch_.is_on()) {
    keyed.terms = std::make_shared<const PageTerms>(
        PageTerms{keyed.context, session, key.salt != 0 ? key.salt_begin : INT64_MAX});
  }
  const int64_t page_size = core_.geometry.page_size;
  keyed.keys.resize(key.tokens.size() / static_cast<size_t>(page_size));
  uint8_t salt[8];
  for (int i = 0; i < 8; ++i) salt[i] = static_cast<uint8_t>(key.salt >> (8 * i));
  KeyedTokens in;
  in.fingerprint = *core_.geometry.fingerprint;
  if (key.salt != 0) in.salt = salt;
  in.salt_begin = key.salt_begin;
  in.adapter = PrefixContext::adapter_of(key.context);
  in.media = PrefixContext::media_of(key.context);
  in.page_size = page_size;
  in.tokens = *keyed.tokens;
  static_assert(sizeof(PageKey) == kPageKeyBytes);
  if (!keyed.keys.empty()) page_keys(in, keyed.keys[0].data());
  return keyed;
}

TierPage TierJobs::page_of(const KeyedQuery& query, int32_t group, int64_t block) const {
  TierPage page;
  page.group = group;
  page.block = block;
  page.page_key = query.keys[static_cast<size_t>(block)];
  if (block > 0) page.parent_key = query.keys[static_cast<size_t>(block - 1)];
  page.key = objects_->key_of(group, page.page_key);
  page.tokens = query.tokens;
  page.terms = query.terms;
  return page;
}

// ---- Stores -------------------------------------------------------------------------------------------------------

// Queues a page for the tiers that want it and for which it was not queued before. reused: the index had the page
// before.
void TierJobs::queue_page(const KeyedQuery& query, int32_t group, int64_t block, int32_t number, bool reused) {
  for (int32_t t = 0; t < num_tiers(); ++t) {
    const TierWorker::Tier& tier = worker_.tier(t);
    if (static_cast<int64_t>(query.tokens->size()) < tier.min_tokens) continue;
    if (tier.stores == TierWorker::Stores::kEvicted) wanted(group, number) |= bit_of(t);
    const bool now =
        tier.stores == TierWorker::Stores::kPublished || (tier.stores == TierWorker::Stores::kReused && reused);
    if (!now || (handed(group, number) & bit_of(t)) != 0) continue;
    TierPage page = page_of(query, group, block);
    page.page = number;
    hand(t, std::move(page));
  }
}

void TierJobs::hand(int32_t tier, TierPage page) {
  uint8_t& was_handed = handed(page.group, page.page);
  if (worker_.store(tier, std::move(page))) was_handed |= bit_of(tier);
}

// Queues the pages that a group will evict next, if too few of its pages are free. So that a call seldom lists pages,
// it does so only when the last list is older than some pages.
void TierJobs::queue_next(int32_t group) {
  const PageTable& table = core_.store.table(group);
  const PrefixIndex& index = core_.prefixes->index();
  const int64_t least = std::min(std::min(table.num_pages(), index.capacity(group)) / 4, kLeastFree);
  const int64_t free = std::min(table.free_pages(), index.room(group)), step = std::max<int64_t>(1, least / 16);
  const int64_t wanted_pages = std::min(table.available_pages() - table.free_pages(), 2 * least - free);
  Listed& listed = listed_[static_cast<size_t>(group)];
  if (free >= least) return;
  if (wanted_pages < listed.pages + step && listed.released < step) {
    listed.pages = std::min(listed.pages, wanted_pages);
    return;
  }
  listed = {wanted_pages, 0};
  for (const NamedPage& name : core_.prefixes->list_next(group, wanted_pages)) {
    const int missing = wanted(name.group, name.page) & ~handed(name.group, name.page);
    for (int32_t t = 0; missing != 0 && t < num_tiers(); ++t) {
      if ((missing & bit_of(t)) == 0) continue;
      TierPage page;
      page.group = name.group;
      page.page = name.page;
      page.block = name.index;
      page.page_key = *name.key;
      if (name.parent != nullptr) page.parent_key = *name.parent;
      page.key = objects_->key_of(name.group, page.page_key);
      std::vector<int32_t> tokens(static_cast<size_t>(core_.geometry.page_size));
      index.read_block(name.block, tokens);
      page.tokens_begin = name.index * core_.geometry.page_size;
      page.tokens = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
      if (watch_.is_on()) {
        page.terms = std::make_shared<const PageTerms>(
            PageTerms{ContextRef(name.context), name.session, name.salted ? 0 : INT64_MAX});
      }
      hand(t, std::move(page));
    }
  }
}

void TierJobs::evicted() noexcept {
  core_.mutex.assert_held();
  bool any = false;
  for (int32_t t = 0; t < num_tiers(); ++t) any = any || worker_.tier(t).stores == TierWorker::Stores::kEvicted;
  try {
    for (int32_t g = 0; any && g < core_.num_groups(); ++g) {
      if (!core_.rules(g).holds_encoder()) queue_next(g);
    }
  } catch (const std::bad_alloc&) {  // these pages are not stored
  }
}

void TierJobs::queue_published(uint64_t sequence, const KeyedQuery& query, int64_t published, int64_t known) {
  core_.mutex.assert_held();
  known = std::min(known, known_before_.try_emplace(sequence, known).first->second);
  const int64_t page_size = core_.geometry.page_size;
  const PrefixIndex::Match match = core_.prefixes->match(query.key(published), published);
  const PrefixSource& source = core_.prefixes->matched();
  const int64_t blocks = match.tokens / page_size;
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    const GroupRules& rules = core_.rules(g);
    for (int64_t b = rules.holds_encoder() ? blocks : 0; b < blocks; ++b) {
      const int32_t number = rules.holds_state() ? core_.prefixes->index().matched_state_after(g, b) : source.at(g, b);
      if (number >= 0) queue_page(query, g, b, number, (b + 1) * page_size <= known);
    }
  }
  evicted();
}

void TierJobs::released(int32_t group, int32_t page) noexcept {
  core_.mutex.assert_held();
  ++listed_[static_cast<size_t>(group)].released;
  wanted(group, page) = 0;
  if (handed(group, page) == 0) return;
  handed(group, page) = 0;
  worker_.forget(group, page);
}

bool TierJobs::read_page(const TierPage& page, const std::atomic<bool>& valid, const ObjectMemory& object) {
  try {
    {
      // While the lock is held, the page is not released, and no call writes to a published page. Work of later calls
      // is ordered after the read that is enqueued here.
      MutexLock lock(core_.mutex);
      if (!valid || !core_.order.enter(stream_.get()).ok()) return false;
      const bool begun = objects_->begin_read(page, stream_.get()).ok();
      if (!core_.order.leave(stream_.get()).ok() || !begun) return false;
    }
    return objects_->end_read(page, stream_.get(), object).ok();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// ---- Loads --------------------------------------------------------------------------------------------------------

// Returns the largest number of tokens that can be attached from the pools, in whole pages and at most `tokens`. After
// the call, this prefix is the last match of the index (PrefixStore::matched).
int64_t TierJobs::match_whole_pages(const KeyedQuery& query, int64_t tokens) {
  const int64_t page_size = core_.geometry.page_size;
  for (int64_t most = tokens / page_size * page_size;;) {
    const int64_t found = core_.prefixes->match(query.key(), most).tokens;
    if (found == most) return found;
    most = found / page_size * page_size;
  }
}

// Looks up the blocks [first, end) of a group. until_miss: make no further lookup after one that has found a missing
// block.
TierJobs::GroupPages TierJobs::look_up(const KeyedQuery& query, int32_t group, int64_t first, int64_t end,
                                       bool until_miss) {
  GroupPages pages;
  std::vector<kvc_tier_key> keys;
  for (bool missed = false; first < end && !(missed && until_miss);) {
    const int64_t count = std::min(kLookupBlocks, end - first);
    keys.clear();
    for (int64_t b = first; b < first + count; ++b) {
      keys.push_back(objects_->key_of(group, query.keys[static_cast<size_t>(b)]));
    }
    const size_t begin = pages.found.size();
    pages.found.resize(begin + keys.size());
    worker_.lookup(keys, std::span(pages.found).subspan(begin));
    for (size_t i = 0; watch_.is_on() && i < keys.size(); ++i) {
      watch_.looked_up(keys[i], pages.found[begin + i],
                       [&] { return page_of(query, group, first + static_cast<int64_t>(i)); });
    }
    first += count;
    missed = std::any_of(pages.found.begin() + static_cast<ptrdiff_t>(begin), pages.found.end(),
                         [](const TierWorker::Found& f) { return f.tier < 0 && !f.pending; });
  }
  int64_t run = 0;
  for (const TierWorker::Found& found : pages.found) pages.run.push_back(run = found.tier >= 0 ? run + 1 : 0);
  return pages;
}

// Looks up the blocks from `first` on, and lowers *end to the first block that some group lacks, if the group needs all
// blocks.
TierJobs::Stored TierJobs::look_up_all(const KeyedQuery& query, int64_t first, int64_t* end) {
  Stored stored{core_, first, 0, std::vector<GroupPages>(static_cast<size_t>(core_.num_groups()))};
  // Groups whose queries see all tokens need every page. So these groups are looked up first. If one of them lacks a
  // block, the lookups of the other groups end before this block.
  for (const bool all : {true, false}) {
    for (int32_t g = 0; g < core_.num_groups(); ++g) {
      if (core_.rules(g).holds_encoder() || core_.rules(g).keeps_all() != all) continue;
      GroupPages& pages = stored.groups[static_cast<size_t>(g)] = look_up(query, g, first, *end, all);
      if (!all) continue;
      const auto missing = std::find_if(pages.found.begin(), pages.found.end(),
                                        [](const TierWorker::Found& f) { return f.tier < 0 && !f.pending; });
      *end = std::min(*end, first + (missing - pages.found.begin()));
    }
  }
  return stored;
}

int64_t TierJobs::Stored::first_loaded(int32_t group, int64_t end) const noexcept {
  return std::max(first, core.rules(group).first_needed(end, core.geometry.page_size));
}

bool TierJobs::Stored::serves(int64_t end) const noexcept {
  const int64_t page_size = core.geometry.page_size;
  for (int32_t g = 0; g < core.num_groups(); ++g) {
    // If attach may not find the last token, a state after it is of no use, and a window may need one more page.
    const GroupRules& rules = core.rules(g);
    if (end * page_size > most_tokens) {
      if (rules.holds_state()) return false;
      const int64_t seen = rules.holds_tokens() ? rules.first_visible(most_tokens) / page_size : end;
      if (seen >= first && seen < first_loaded(g, end)) return false;
    }
    const int64_t needed = end - first_loaded(g, end);
    if (needed > 0 && groups[static_cast<size_t>(g)].run[static_cast<size_t>(end - 1 - first)] < needed) return false;
  }
  return true;
}

void TierJobs::Stored::sum_bytes(int32_t num_tiers) {
  for (GroupPages& group : groups) {
    group.sums.assign(static_cast<size_t>(num_tiers), {0});
    for (const TierWorker::Found& found : group.found) {
      for (std::vector<int64_t>& sums : group.sums) sums.push_back(sums.back());
      if (found.tier >= 0) group.sums[static_cast<size_t>(found.tier)].back() += found.bytes;
    }
  }
}

int64_t TierJobs::Stored::bytes(int32_t tier, int64_t end) const noexcept {
  int64_t bytes = 0;
  for (int32_t g = 0; g < core.num_groups(); ++g) {
    const int64_t begin = first_loaded(g, end);
    if (begin == end) continue;
    const std::vector<int64_t>& sums = groups[static_cast<size_t>(g)].sums[static_cast<size_t>(tier)];
    bytes += sums[static_cast<size_t>(end - first)] - sums[static_cast<size_t>(begin - first)];
  }
  return bytes;
}

int32_t TierJobs::Stored::last_tier(int64_t block, int64_t end) const noexcept {
  int32_t tier = -1;
  for (int32_t g = 0; g < core.num_groups(); ++g) {
    if (block < first_loaded(g, end)) continue;
    tier = std::max(tier, groups[static_cast<size_t>(g)].found[static_cast<size_t>(block - first)].tier);
  }
  return tier;
}

// Returns the estimated time to load a prefix of `end` blocks.
int64_t TierJobs::load_ns(const Stored& stored, int64_t end, const std::vector<TierWorker::Speed>& speeds) {
  int64_t ns = 0;
  for (size_t t = 0; t < speeds.size(); ++t) ns += speeds[t].load_ns(stored.bytes(static_cast<int32_t>(t), end));
  return ns;
}

TierJobs::Plan TierJobs::plan(const KeyedQuery& query, const PrefixIndex::Match& match, const Gate& gate) {
  core_.mutex.assert_held();
  const int64_t page_size = core_.geometry.page_size;
  take_removals();
  Plan plan;
  plan.found = plan.tokens = match_whole_pages(query, match.tokens);
  const int64_t first = plan.found / page_size;
  int64_t end = query.num_blocks();
  Stored stored = look_up_all(query, first, &end);
  stored.most_tokens = gate.most_tokens;
  const auto num_groups = core_.num_groups();
  for (int32_t g = 0; g < num_groups; ++g) {
    const auto& found = stored.groups[static_cast<size_t>(g)].found;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].pending) plan.searched.push_back(objects_->key_of(g, query.keys[static_cast<size_t>(first) + i]));
    }
  }
  while (end > first && !stored.serves(end)) --end;
  // A block without pages, which is before the windows of all groups, counts with the block after it.
  for (int64_t b = end, tier = 0; b-- > first;) {
    if (const int32_t last = stored.last_tier(b, end); last >= 0) tier = last;
    const int64_t begin = std::max(b * page_size, match.tokens), most = std::min((b + 1) * page_size, gate.most_tokens);
    plan.tier_tokens[static_cast<size_t>(tier)] += std::max<int64_t>(0, most - begin);
  }
  stored.sum_bytes(num_tiers());
  std::vector<TierWorker::Speed> speeds;
  for (int32_t t = 0; t < num_tiers(); ++t) speeds.push_back(worker_.speed(t));
  // Finds the prefix that saves most time. A shorter prefix saves at most what it would save if its load took no time.
  double most_saved = 0;
  for (int64_t b = std::exchange(end, first); b > first; --b) {
    if (gate.saved_ns(b * page_size, match.tokens, 0) <= most_saved) break;
    const double saved = gate.saved_ns(b * page_size, match.tokens, load_ns(stored, b, speeds));
    if (saved <= most_saved || !stored.serves(b)) continue;
    most_saved = saved;
    end = b;
  }
  if (end == first) return plan;
  plan.tokens = end * page_size;
  plan.ns = load_ns(stored, end, speeds);
  // The pages are ordered by block, so that a load that ends early has read a prefix.
  for (int64_t b = first; b < end; ++b) {
    for (int32_t g = 0; g < num_groups; ++g) {
      if (b < stored.first_loaded(g, end)) continue;
      plan.pages.push_back(
          {page_of(query, g, b), stored.groups[static_cast<size_t>(g)].found[static_cast<size_t>(b - first)]});
    }
  }
  return plan;
}

Status TierJobs::start(Request request, Plan plan, uint64_t* job) {
  core_.mutex.assert_held();
  *job = 0;
  if (plan.searched.empty() && plan.tokens == plan.found) return Status();
  Job& made = jobs_[last_job_ + 1];
  made.request = std::move(request);
  made.searching = !plan.searched.empty();
  Status begun = made.searching ? worker_.search(std::move(plan.searched), &made.load)
                                : begin_load(last_job_ + 1, &made, std::move(plan));
  if (!begun.ok()) {
    jobs_.erase(last_job_ + 1);
    return begun;
  }
  *job = ++last_job_;
  return Status();
}

// Allocates pages for a plan, and starts to fill them.
Status TierJobs::begin_load(uint64_t id, Job* job, Plan plan) {
  KVC_ASSERT(plan.tokens > plan.found, plan.tokens, plan.found);
  job->searching = false;
  job->found = match_whole_pages(job->request.query, plan.found);
  job->tokens = plan.tokens;
  job->progress = make_progress(id, plan.pages);
  uint64_t sequence = 0;
  KVC_TRY(core_.prefixes->begin_fill(job->found, job->tokens, &sequence));
  const int32_t slot = core_.store.slot_of(sequence);
  for (TierWorker::LoadPage& load : plan.pages) {
    const int32_t group = load.page.group;
    load.page.page = core_.store.page_at(slot, group, load.page.block, job->tokens);
    KVC_ASSERT(load.page.page >= 0, group, load.page.block);
  }
  Status begun = worker_.load(std::move(plan.pages), &job->load, job->progress);
  if (begun.ok()) {
    job->sequence = sequence;
    return begun;
  }
  core_.store.finish_fill(sequence);
  KVC_TRY(core_.store.remove({&sequence, 1}));
  return begun;
}

Status TierJobs::poll(uint64_t id, bool* done, int64_t* tokens) {
  core_.mutex.assert_held();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", id);
  TierWorker::Loaded loaded = worker_.poll_load(found->second.load);
  *done = loaded.done;
  *tokens = 0;
  if (!loaded.done) return Status();
  if (found->second.searching && !found->second.cancelled) {
    const Request& request = found->second.request;
    const PrefixIndex::Match match = core_.prefixes->match(request.query.key(), request.gate.most_tokens);
    Plan now = plan(request.query, match, request.gate);
    // If there is no room for the pages, the job ends without a load.
    *done = now.tokens == now.found || !begin_load(id, &found->second, std::move(now)).ok();
    if (!*done) return Status();
  }
  const Job job = std::move(found->second);
  jobs_.erase(found);
  if (job.kind == Job::Kind::kSuspend) return finish_suspend(job, std::move(loaded), tokens);
  if (job.kind == Job::Kind::kResume) return finish_resume(job, loaded, tokens);
  return job.sequence == 0 ? Status() : finish_load(job, loaded.first_failed, tokens);
}

// Publishes the prefix that a load has filled.
Status TierJobs::finish_load(const Job& job, int64_t first_failed, int64_t* tokens) {
  core_.store.finish_fill(job.sequence);
  const int64_t page_size = core_.geometry.page_size;
  int64_t end = job.tokens;
  if (first_failed < job.tokens / page_size) {
    end = first_failed * page_size;
    // Groups with windows or states may lack what the shorter prefix needs. Then nothing is published, and the engine
    // must compute these tokens.
    const int64_t loaded = end;
    if (end > job.found && !core_.store.truncate({&job.sequence, 1}, {&end, 1}).ok()) end = job.found;
    core_.pending.shorten(*job.progress, loaded);
  }
  core_.pending.settle(&core_.store, &core_.sent);
  Status status;
  if (end > job.found) {
    PrefixStore::Published published;
    status = core_.prefixes->publish(job.sequence, job.request.query.key(end), job.request.terms, &published);
    if (status.ok()) *tokens = std::max<int64_t>(0, published.known - job.found);
  }
  KVC_TRY(core_.store.remove({&job.sequence, 1}));
  return status;
}

Status TierJobs::cancel(uint64_t id) {
  core_.mutex.assert_held();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", id);
  found->second.cancelled = true;
  worker_.cancel_load(found->second.load);
  return Status();
}

TierWorker::Owner::Written TierJobs::write_page(const TierPage& page, const ObjectMemory& object) {
  try {
    const Status checked = objects_->check(page, object);
    if (!checked.ok()) return PageObjects::is_other(checked.code()) ? Written::kOtherObject : Written::kFailed;
    {
      // Only this load uses the page now, but reads of its earlier contents may be in flight. So the write is ordered
      // after these reads.
      MutexLock lock(core_.mutex);
      if (!core_.order.enter(stream_.get()).ok()) return Written::kFailed;
    }
    const bool written = objects_->write(page, stream_.get()).ok();
    MutexLock lock(core_.mutex);
    return core_.order.leave(stream_.get()).ok() && written ? Written::kYes : Written::kFailed;
  } catch (const std::bad_alloc&) {
    return Written::kFailed;
  }
}

void TierJobs::changed(int32_t tier, const TierPage& page, bool has) {
  if (page.terms == nullptr) return;
  MutexLock lock(core_.mutex);
  watch_.changed(tier, page, has);
  watch_.take_removals();
}

void TierJobs::take_removals() {
  core_.mutex.assert_held();
  if (watch_.is_on()) watch_.take_removals();
}

void TierJobs::in_child() noexcept { new (&core_.mutex) Mutex; }

}  // namespace kvc
