// Shared prefixes end to end: caches that share by cost, never and always get the same calls, and agree.
#include <gtest/gtest.h>

#include <algorithm>

#include "replicas.h"

namespace kvt {
namespace {

constexpr uint32_t kSharing[] = {0, KVC_CACHE_NO_PREFIX_SHARING, KVC_CACHE_SHARE_ALL_PREFIXES};

int64_t prefix_groups(const std::string &plan) {
  int64_t sum = 0;
  const std::string key = "\"prefix_groups\": ";
  for (size_t at = plan.find(key); at != std::string::npos; at = plan.find(key, at + 1)) {
    sum += std::stoll(plan.substr(at + key.size()));
  }
  return sum;
}

// |a - b| <= tolerance, everywhere.
void expect_agree(const StepOutputs &a, const StepOutputs &b, float tolerance, const std::string &what) {
  for (size_t layer = 0; layer < a.out.size(); layer++) {
    const Tensor &x = a.out[layer], &y = b.out[layer];
    for (int64_t t = 0; t < x.dim(0); t++) {
      for (int64_t h = 0; h < x.dim(1); h++) {
        for (int64_t d = 0; d < x.dim(2); d++) {
          ASSERT_NEAR(x.at(t, h, d), y.at(t, h, d), tolerance) << what << " layer " << layer << " token " << t;
        }
        ASSERT_NEAR(a.lse[layer].at(t, h), b.lse[layer].at(t, h), 1e-4f) << what << " layer " << layer;
      }
    }
  }
}

CacheSpec spec_of(int page_size, DType dtype, int rope) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 24;
  spec.max_batch_tokens = 160;
  spec.groups = {{0, 12000 / page_size}, {30, 9000 / page_size}};
  LayerSpec full{0, 8, 2, 32, 0, dtype, rope}, sliding{1, 4, 4, 16, 0, DType::kF32, KVC_ROPE_NONE};
  if (dtype == DType::kE4M3) full.num_scales = 2;
  spec.layers = {full, sliding};
  return spec;
}

// The live sequences, which every replica has.
struct Living {
  int seq;
  int64_t length;
  int depth;
};

class Twins {
 public:
  Twins(const CacheSpec &spec, unsigned seed) : random_(seed) {
    for (int i = 0; i < 3; i++) {
      CacheSpec one = spec;
      one.flags |= kSharing[i];
      replicas_.push_back(std::make_unique<Replica>(one, 1 + i));
    }
    tolerance_ = spec.layers[0].dtype == DType::kBF16 ? 2e-2f : 5e-5f;  // P may be rounded to bf16
  }

  void run(int rounds) {
    add();
    for (int i = 0; i < rounds; i++) {
      const int64_t choice = below(10);
      if (living_.size() < 3 || (choice < 3 && living_.size() < 20)) {
        fork();
      } else if (choice == 3) {
        remove();
      } else if (choice == 4 && living_.size() < 20) {
        add();
      }
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(groups_, rounds / 2);
    EXPECT_GE(deepest_, 3);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <class Call>
  int all(Call call) {
    int seq = -1;
    for (auto &replica : replicas_) seq = call(*replica);
    return seq;
  }
  void add() {
    living_.push_back({all([](Replica &r) { return r.add(); }), 0, 0});
  }
  // A position at the end, or within the window's rollback. In most cases of the youngest sequence, so that forks get
  // deep.
  void fork() {
    Living parent = living_[static_cast<size_t>(below(2) == 0 ? below(static_cast<int64_t>(living_.size()))
                                                              : static_cast<int64_t>(living_.size()) - 1)];
    const int64_t position = parent.length;
    parent.seq = all([&](Replica &r) { return r.fork(parent.seq, position); });
    parent.depth += 1;
    deepest_ = std::max(deepest_, parent.depth);
    living_.push_back(parent);
  }
  void remove() {
    const auto at = living_.begin() + below(static_cast<int64_t>(living_.size()));
    all([&](Replica &r) {
      r.remove(at->seq);
      return 0;
    });
    living_.erase(at);
  }
  void step() {
    std::shuffle(living_.begin(), living_.end(), random_);
    std::vector<int> rows;
    std::vector<int32_t> lengths;
    std::vector<uint64_t> tags;
    for (Living &one : living_) {
      const int64_t most = one.length == 0 || below(12) == 0 ? 60 : below(3) == 0 ? 8 : 1;
      const auto length = static_cast<int32_t>(1 + below(most));
      if (static_cast<int64_t>(tags.size()) + length > 160) continue;
      rows.push_back(one.seq);
      lengths.push_back(length);
      for (int32_t i = 0; i < length; i++) tags.push_back(random_());
      one.length += length;
    }
    StepOptions options;
    options.softcap = below(3) == 0 ? 3.0 : 0.0;
    options.alibi = below(3) == 0;
    options.sinks = below(3) == 0;
    std::vector<StepOutputs> outputs;
    for (auto &replica : replicas_) outputs.push_back(replica->step(rows, lengths, tags, options));
    ASSERT_EQ(prefix_groups(outputs[1].plan), 0);
    ASSERT_GE(prefix_groups(outputs[2].plan), prefix_groups(outputs[0].plan));
    groups_ += prefix_groups(outputs[2].plan);
    expect_agree(outputs[0], outputs[1], tolerance_, "by cost, never:");
    expect_agree(outputs[2], outputs[1], tolerance_, "always, never:");
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Living> living_;
  int deepest_ = 0;
  float tolerance_ = 0;
  int64_t groups_ = 0;
};

TEST(Prefix, SharedOrNotIsTheSame) {
  unsigned seed = 1;
  for (int page_size : {1, 4, 16}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kE4M3}) {
      for (int rope : {KVC_ROPE_NONE, KVC_ROPE_ON_READ}) {
        SCOPED_TRACE("page " + std::to_string(page_size) + " " + name_of(dtype) + " rope " + std::to_string(rope));
        Twins(spec_of(page_size, dtype, rope), seed++).run(60);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// 16 sequences over one long prompt. The prompt is found in any order of rows, also after members were removed and
// forked again. A step reads the bytes of the prompt once.
TEST(Prefix, OnePromptIsReadOnce) {
  CacheSpec spec = spec_of(16, DType::kF32, KVC_ROPE_NONE);
  spec.groups = {{0, 600}, {30, 600}};
  Replica shared(spec, 2);
  spec.flags = KVC_CACHE_NO_PREFIX_SHARING;
  Replica apart(spec, 2);
  std::mt19937_64 random(4);
  std::vector<int> rows;
  for (Replica *r : {&shared, &apart}) {
    const int parent = r->add();
    for (int i = 0; i < 10; i++) {
      std::vector<uint64_t> tags;
      for (int t = 0; t < 100; t++) tags.push_back(static_cast<uint64_t>(i * 1000 + t));
      r->step({parent}, {100}, tags);
    }
    for (int i = 0; i < 16; i++) r->fork(parent, 1000);
    r->remove(3);
    r->remove(9);
    for (int i = 0; i < 2; i++) r->fork(5, 1000);
  }
  for (int i = 1; i <= 18; i++) {
    if (i != 3 && i != 9) rows.push_back(i);
  }
  for (int round = 0; round < 5; round++) {
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<uint64_t> tags;
    for (int row : rows) tags.push_back(static_cast<uint64_t>(row * 7919 + round));
    const std::vector<int32_t> ones(rows.size(), 1);
    const StepOutputs a = shared.step(rows, ones, tags), b = apart.step(rows, ones, tags);
    EXPECT_EQ(prefix_groups(a.plan), 1) << a.plan;
    EXPECT_EQ(prefix_groups(b.plan), 0) << b.plan;
    const auto bytes = [](const std::string &plan) {
      return std::stoll(plan.substr(plan.find("\"kv_bytes\": ") + 12));
    };
    EXPECT_EQ(bytes(a.plan), (992 + 16 * (8 + round + 1)) * 2 * 64 * 4) << a.plan;
    EXPECT_EQ(bytes(b.plan), 16 * (1000 + round + 1) * 2 * 64 * 4) << b.plan;
    expect_agree(a, b, 2e-5f, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kvt
