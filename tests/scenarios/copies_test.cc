// Copies that are large enough for several threads. With any number of threads, the stored tokens are those of the
// model.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "play.h"

namespace kvt {
namespace {

using Parents = std::vector<int32_t>;
constexpr int kSequences = 8, kNodes = 192;

// Every second node is on the path, from node 1 on. So slots move one at a time, and most targets were sources before.
Parents every_second() {
  Parents parents;
  for (int node = 0; node < kNodes; node++) parents.push_back(node % 2 == 0 || node == 1 ? KVC_TREE_ROOT : node - 2);
  return parents;
}

// The second half is the path. It moves in runs of slots to the place of the first half.
Parents second_half() {
  Parents parents;
  for (int node = 0; node < kNodes; node++) parents.push_back(node <= kNodes / 2 ? KVC_TREE_ROOT : node - 1);
  return parents;
}

struct CopyGeometry {
  const char *name;
  int hkv, d, dv, latent;
  DType dtype;
};
constexpr CopyGeometry kGeometries[] = {
    {"heads", 8, 64, 64, 0, DType::kF32},
    {"one_head", 1, 256, 128, 0, DType::kF32},
    {"int8", 6, 128, 128, 0, DType::kI8},
    {"latent", 1, 320, 0, 256, DType::kBF16},
};

CacheSpec spec_of(const CopyGeometry &g) {
  CacheSpec spec;
  spec.max_sequences = 2 * kSequences;
  spec.max_batch_tokens = kSequences * kNodes;
  spec.max_tree_nodes = kNodes;
  spec.rollback = 16;
  spec.groups = {{0, 2 * kSequences * (kNodes + 48) / spec.page_size}};
  LayerSpec layer;
  layer.hq = layer.hkv = g.hkv;
  layer.d = g.d;
  layer.dv = g.dv;
  layer.latent = g.latent;
  layer.dtype = g.dtype;
  if (g.latent) layer.scale = 0.1;
  spec.layers = {layer, layer};
  return spec;
}

Options options_of(int threads) {
  Options options;
  options.threads = threads;
  options.attend_checks = 0;  // other tests attend; this one compares every stored K and V
  options.seed = 900 + static_cast<uint64_t>(threads);
  return options;
}

// Prompts that end inside a page, their forks (each copies a page), and trees of both kinds. Then all of it again on
// the forks, after a step.
void copy_much(Play &p) {
  std::vector<Play::Append> prompts, more;
  std::vector<Play::Fork> forks;
  std::vector<Play::Grow> trees, forks_trees;
  std::vector<std::pair<int, int32_t>> leaves, forks_leaves;
  for (int s = 0; s < kSequences; s++) {
    const int child = kSequences + s;
    prompts.push_back({s, 9 + 2 * s});
    forks.push_back({child, s, Play::kEnd});
    more.push_back({child, 1 + s});
    trees.push_back({s, s % 2 ? every_second() : second_half()});
    forks_trees.push_back({child, s % 2 ? second_half() : every_second()});
    leaves.push_back({s, kNodes - 1});
    forks_leaves.push_back({child, kNodes - 1});
  }
  p.step(prompts);
  p.fork(forks);
  p.grow(trees);
  p.commit(leaves);
  p.step(more);
  p.grow(forks_trees);
  p.commit(forks_leaves);
  p.verify_all();
}

class Copies : public testing::TestWithParam<CopyGeometry> {};

TEST_P(Copies, AnyNumberOfThreadsStoresWhatTheModelSays) {
  for (int threads : {1, 2, 5, 17}) {
    EXPECT_EQ(mismatch_of([&] {
                Play p(spec_of(GetParam()), options_of(threads));
                copy_much(p);
              }),
              "")
        << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Copies, testing::ValuesIn(kGeometries),
                         [](const auto &info) { return std::string(info.param.name); });

// A pool of the host whose loops may call the cache. Copies run under the cache's lock, so they must not use this pool.
struct HostPool {
  std::atomic<bool> copying{false};
  std::atomic<int> loops_while_copying{0};

  static void run(void *self, int64_t n, void (*item)(void *, int64_t), void *arg) {
    HostPool &pool = *static_cast<HostPool *>(self);
    if (pool.copying) pool.loops_while_copying += static_cast<int>(n);
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < n; i++) threads.emplace_back(item, arg, i);
    item(arg, 0);
    for (std::thread &thread : threads) thread.join();
  }
};

TEST(CopiesOnAHostsPool, StayOnTheCallersThread) {
  EXPECT_EQ(mismatch_of([] {
              HostPool pool;
              Options options = options_of(4);
              options.parallel_for = &HostPool::run;
              options.parallel_for_user = &pool;
              Play p(spec_of(kGeometries[0]), options);
              std::vector<Play::Append> prompts;
              std::vector<Play::Grow> trees;
              std::vector<int> handles;
              for (int s = 0; s < kSequences; s++) {
                prompts.push_back({s, 9});
                trees.push_back({s, second_half()});
              }
              p.step(prompts);
              p.grow(trees);
              for (int s = 0; s < kSequences; s++) handles.push_back(p.handle(s));
              pool.copying = true;
              if (p.harness().commit(handles, std::vector<int32_t>(kSequences, kNodes - 1))) {
                throw Mismatch("scenario: a commit was refused");
              }
              pool.copying = false;
              if (pool.loops_while_copying != 0) throw Mismatch("scenario: the host's threads copied");
              p.verify_all();
            }),
            "");
}

}  // namespace
}  // namespace kvt
