// Random calls over pending sequences, with a tier that completes in any order, loses pages and damages objects. All
// that a forward computes is right, whatever fails, and nothing leaks.
#include <optional>
#include <random>

#include "pending_fixture.h"

namespace kvt {
namespace {

class PendingModel {
 public:
  PendingModel(uint64_t seed, const TieredSpec &spec) : e(spec, 61), random(seed) {
    prompts.push_back(e.prompt);
    for (const int32_t shared : {8, 20, 40}) {  // prompts that share their first tokens
      Tokens other = e.prompt;
      for (size_t i = static_cast<size_t>(shared); i < other.size(); i++) other[i] += 1000 * shared;
      e.store(other);
      prompts.push_back(other);
    }
  }

  void step() {
    switch (random() % 14) {
      case 0:
        return attach();
      case 1:
        return disturb();
      case 3:
        return poll(random() % 8 == 0);
      case 4:
        return remove_one();
      case 5:
      case 6:
        return begin();
      case 7:
        return close();
      default:
        return run();
    }
  }
  void end() {
    e.tier.release();
    while (!live.empty()) remove(live.size() - 1);
    while (!jobs.empty()) poll_job(jobs.begin()->first, true);
    e.engine.forget_all();
    for (size_t g = 0; g < e.engine.spec.groups.size(); g++) {
      if (e.engine.spec.groups[g].row != KVC_ROW_STATE) {
        EXPECT_EQ(e.engine.available_pages(static_cast<int32_t>(g)), e.engine.spec.pages);
      }
    }
    EXPECT_EQ(e.engine.traffic().pages_loading, 0);
  }
  void check() { EXPECT_EQ(kvc_cache_check_invariants(e.engine.cache(), nullptr), KVC_OK); }

  int64_t ran = 0, pended = 0, failed = 0, ended = 0, shortened = 0, attached = 0;

 private:
  struct Live {
    kvc_seq seq = 0;
    kvc_job job = 0;
    size_t prompt = 0;
    int64_t length = 0;
    int32_t ready = 0;
    std::unique_ptr<PendingStep> step;
    std::vector<bool> done;  // [layers] of the step
  };

  size_t layers() const { return e.engine.spec.num_layers(); }
  Live *some() { return live.empty() ? nullptr : &live[random() % live.size()]; }
  bool pends(const Live &l) { return e.info(l.seq).job != 0; }

  void attach() {
    if (live.size() >= 3 || jobs.size() >= 2) return;
    const size_t which = random() % prompts.size();
    if (random() % 2 == 0) e.engine.forget_all();
    e.hold(static_cast<int64_t>(random() % 6));
    const kvc_prefix_query query = Prefix::query(prompts[which]);
    kvc_job job = 0;
    const kvc_status started = kvc_prefix_load(e.engine.cache(), &query, nullptr, nullptr, &job, nullptr);
    ASSERT_TRUE(started == KVC_OK || started == KVC_ERROR_OUT_OF_PAGES || started == KVC_ERROR_TOO_MANY_SEQUENCES);
    if (job == 0) return;
    jobs[job] = which;
    for (uint64_t i = 0, n = 1 + random() % 2; i < n; i++) {
      Live l;
      l.job = job;
      l.prompt = which;
      const kvc_status status =
          e.attach(job, &l.seq, &l.length, 0, random() % 4 == 0 ? 1 + static_cast<int64_t>(random() % 2'000'000) : 0);
      if (status == KVC_ERROR_TOO_MANY_SEQUENCES) return;
      ASSERT_EQ(status, KVC_OK);
      ++attached;
      live.push_back(std::move(l));
    }
  }
  void disturb() {
    std::lock_guard lock(e.tier.mutex);
    e.tier.holds = random() % 3 != 0;
    e.tier.allowed = static_cast<int64_t>(random() % 6);
    e.tier.newest_first = random() % 2 == 0;
    e.tier.fail_load = random() % 3 == 0 ? e.tier.loads + static_cast<int64_t>(random() % 20) : -1;
  }
  void poll(bool cancels) {
    if (jobs.empty()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(300));  // the worker polls the tier each millisecond
    auto job = jobs.begin();
    std::advance(job, random() % jobs.size());
    if (cancels) {
      EXPECT_EQ(kvc_job_cancel(e.engine.cache(), job->first, nullptr), KVC_OK);
    }
    poll_job(job->first, false);
  }
  void poll_job(kvc_job job, bool until_done) {
    kvc_job_info info;
    kvc_job_info_init(&info);
    do {
      ASSERT_EQ(kvc_job_poll(e.engine.cache(), job, &info, nullptr), KVC_OK);
      if (until_done && info.done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    } while (until_done && info.done == 0);
    if (info.done == 0) return;
    jobs.erase(job);
    for (Live &l : live) {
      if (l.job != job || l.step) continue;
      note_length(l);
      check_contents(l);
    }
  }
  // After the end of its load, a sequence that is in no forward has only what was loaded.
  void note_length(Live &l) {
    if (pends(l)) return;
    const int64_t length = e.length(l.seq);
    EXPECT_LE(length, l.length);
    shortened += length < l.length;
    l.length = length;
  }
  void check_contents(Live &l) {
    if (!pends(l)) e.engine.check(l.seq, prompts[l.prompt], l.length);
  }
  void begin() {
    Live *l = some();
    const bool open = std::any_of(live.begin(), live.end(), [](const Live &o) { return o.step != nullptr; });
    if (l == nullptr || open || l->length >= static_cast<int64_t>(prompts[l->prompt].size())) return;
    note_length(*l);
    auto step = std::make_unique<PendingStep>(e.engine, l->seq, prompts[l->prompt], l->length, l->length + 1);
    const kvc_status begun = step->begun;
    if (begun == KVC_ERROR_IO || begun == KVC_ERROR_CANCELLED) {
      EXPECT_EQ(e.info(l->seq).failed, 1);
      return;
    }
    if (begun == KVC_ERROR_OUT_OF_PAGES) return;
    ASSERT_EQ(begun, KVC_OK) << step->error.message;
    l->step = std::move(step);
    l->done.assign(layers(), false);
  }
  Live *with_step() {
    for (Live &l : live) {
      if (l.step) return &l;
    }
    return nullptr;
  }
  void run() {
    Live *l = with_step();
    if (l == nullptr) return;
    const auto layer = static_cast<size_t>(std::find(l->done.begin(), l->done.end(), false) - l->done.begin());
    if (layer == layers()) return;
    const int32_t ready = e.info(l->seq).ready_layers;
    EXPECT_GE(ready, l->ready);
    const kvc_status status = l->step->run(layer);
    if (static_cast<int32_t>(layer) < ready) {
      EXPECT_EQ(status, KVC_OK) << l->step->error.message;
    }
    ASSERT_TRUE(status == KVC_OK || status == KVC_ERROR_PENDING || status == KVC_ERROR_IO ||
                status == KVC_ERROR_CANCELLED)
        << l->step->error.message;
    l->done[layer] = status == KVC_OK;
    ++(status == KVC_OK ? ran : status == KVC_ERROR_PENDING ? pended : failed);
  }
  void close() {
    Live *l = with_step();
    if (l == nullptr) return;
    const bool all = std::find(l->done.begin(), l->done.end(), false) == l->done.end();
    if (all) {
      EXPECT_EQ(l->step->finish(), KVC_OK) << l->step->error.message;
      ++ended;
      ++l->length;
    } else if (random() % 3 == 0) {
      EXPECT_NE(l->step->finish(), KVC_OK);
      EXPECT_EQ(l->step->abort(), KVC_OK);
    } else {
      return;
    }
    l->step.reset();
    note_length(*l);
    check_contents(*l);
  }
  void remove_one() {
    if (!live.empty() && random() % 2 == 0) remove(random() % live.size());
  }
  void remove(size_t index) {
    Live &l = live[index];
    const bool before = random() % 2 == 0;
    if (before) e.engine.remove(l.seq);
    if (l.step) {
      EXPECT_EQ(l.step->abort(), KVC_OK);
    }
    if (!before) e.engine.remove(l.seq);
    live.erase(live.begin() + static_cast<ptrdiff_t>(index));
  }

  PendingEngine e;
  std::mt19937_64 random;
  std::vector<Tokens> prompts;
  std::vector<Live> live;
  std::map<kvc_job, size_t> jobs;
};

TEST(TiersPendingModel, ForwardsSeeOnlyWhatWasLoaded) {
  TieredSpec small = two_groups(), mixed = full_window_states();
  small.pages = 44;
  mixed.pages = 44;
  int64_t ran = 0, pended = 0, failed = 0, ended = 0, shortened = 0;
  for (uint64_t seed = 1; seed <= 6 && !::testing::Test::HasFailure(); seed++) {
    PendingModel model(seed, seed % 2 == 0 ? small : mixed);
    for (int i = 0; i < 6000 && !::testing::Test::HasFailure(); i++) {
      model.step();
      if (i % 20 == 0) model.check();
    }
    model.end();
    ran += model.ran, pended += model.pended, failed += model.failed, ended += model.ended;
    shortened += model.shortened;
  }
  EXPECT_GT(ran, 300);  // the calls reached what they are about
  EXPECT_GT(pended, 100);
  EXPECT_GT(failed, 20);
  EXPECT_GT(ended, 50);
  EXPECT_GT(shortened, 20);
}

}  // namespace
}  // namespace kvt
