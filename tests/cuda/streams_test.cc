// Work of a cache on several streams, while the device is late. In any order that the events allow, the results are
// those of the CPU, where every call has finished when it returns. A missing wait gives a wrong number.
#include <set>
#include <thread>

#include "lockstep.h"

namespace kvt {
namespace {

class Streams : public testing::TestWithParam<unsigned> {
 protected:
  static constexpr int kStreams = 3;
  Streams() {
    for (cudaStream_t& stream : streams_) cudaStreamCreate(&stream);
    cuda_emulation::set_order(GetParam());
  }
  ~Streams() override {
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  cudaStream_t stream(Lockstep& lockstep) { return streams_[lockstep.random() % kStreams]; }

  cudaStream_t streams_[kStreams];
};

// A step of one sequence, on a stream.
void run(Lockstep& lockstep, int sequence, int32_t tokens, cudaStream_t stream) {
  Lockstep::Step step;
  ASSERT_EQ(lockstep.begin({sequence}, {tokens}, {}, stream, &step), KVC_OK) << lockstep.message();
  for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(lockstep.attend(step, layer), KVC_OK) << lockstep.message();
  ASSERT_EQ(lockstep.end(step), KVC_OK);
}

// The parent's step is in flight. A fork copies its last page on another stream. The parent is truncated, and appends
// again on a third stream. The copy must have the old contents.
TEST_P(Streams, ForkThenTruncateAndAppend) {
  Lockstep lockstep;
  const int parent = lockstep.add();
  run(lockstep, parent, 6, streams_[0]);
  int child = -1;
  ASSERT_EQ(lockstep.fork(parent, 6, streams_[1], &child), KVC_OK);
  ASSERT_EQ(lockstep.truncate(parent, 4), KVC_OK);
  run(lockstep, parent, 3, streams_[2]);
  lockstep.export_rows(child, 0, streams_[0]);
  lockstep.export_rows(parent, 1, streams_[1]);
  run(lockstep, child, 2, streams_[0]);
  lockstep.compare();
}

// A stream is destroyed while its work is queued, and a new stream has its handle. The new one waits for that work.
TEST_P(Streams, HandlesAreUsedAgain) {
  Lockstep lockstep;
  const int sequence = lockstep.add();
  for (int32_t tokens : {6, 1, 5}) {
    run(lockstep, sequence, tokens, streams_[0]);
    cudaStream_t const before = streams_[0];
    cudaStreamDestroy(streams_[0]);
    cudaStreamCreate(&streams_[0]);
    ASSERT_EQ(streams_[0], before);
  }
  lockstep.export_rows(sequence, 0, streams_[0]);
  lockstep.compare();
}

// Pages of an aborted step and of a removed sequence are given to others while their writers are still queued.
TEST_P(Streams, FreedPagesAreUsedAtOnce) {
  Lockstep lockstep({.num_pages = 4});
  const int first = lockstep.add(), second = lockstep.add();
  run(lockstep, first, 12, streams_[0]);
  ASSERT_EQ(lockstep.remove(first), KVC_OK);
  Lockstep::Step step;
  ASSERT_EQ(lockstep.begin({second}, {9}, {}, streams_[1], &step), KVC_OK);
  for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(lockstep.attend(step, layer), KVC_OK);
  ASSERT_EQ(lockstep.abort(step), KVC_OK);
  run(lockstep, second, 14, streams_[2]);
  lockstep.export_rows(second, 1, streams_[0]);
  ASSERT_EQ(lockstep.truncate(second, 3), KVC_OK);
  run(lockstep, second, 5, streams_[1]);
  lockstep.compare();
}

// Random calls, two steps open at a time, on any streams.
class RandomCalls {
 public:
  RandomCalls(Lockstep& lockstep, const cudaStream_t* streams, int num_streams)
      : lockstep_(lockstep), streams_(streams), num_streams_(num_streams) {
    for (int i = 0; i < 4; ++i) alive_.push_back({lockstep.add(), 0, 0, false});
  }

  void call() {
    switch (pick(10)) {
      case 0:
      case 1:
      case 2:
        return begin();
      case 3:
      case 4:
      case 5:
        return go_on();
      case 6:
        return fork();
      case 7:
        return drop();
      case 8:
        return commit();
      default:
        return read();
    }
  }
  void finish() {
    while (!open_.empty()) go_on();
  }

 private:
  struct Sequence {
    int index;
    int64_t length;
    int32_t nodes;
    bool busy;
  };
  struct Open {
    Lockstep::Step step;
    std::vector<int> rows;
    std::vector<int32_t> lengths;
    bool tree;
    int layers = 0;
  };

  int pick(int n) { return static_cast<int>(lockstep_.random() % static_cast<unsigned>(n)); }
  cudaStream_t stream() { return streams_[pick(num_streams_)]; }
  Sequence& of(int index) {
    return *std::find_if(alive_.begin(), alive_.end(), [&](const Sequence& s) { return s.index == index; });
  }
  Sequence* idle(bool without_tree) {
    std::vector<Sequence*> found;
    for (Sequence& s : alive_) {
      if (!s.busy && (!without_tree || s.nodes == 0)) found.push_back(&s);
    }
    return found.empty() ? nullptr : found[static_cast<size_t>(pick(static_cast<int>(found.size())))];
  }

  void begin() {
    if (open_.size() == 2) return;
    Open open;
    Sequence* const tree = pick(4) == 0 ? idle(false) : nullptr;
    open.tree = tree != nullptr && tree->length > 0 && tree->nodes < 4;
    if (open.tree) {
      open.rows = {tree->index};
      open.lengths = {1 + pick(4)};
    } else {
      for (int i = 0; i < 1 + pick(3); ++i) {
        Sequence* const s = idle(true);
        if (s == nullptr || s->length > 40 ||
            std::find(open.rows.begin(), open.rows.end(), s->index) != open.rows.end()) {
          continue;
        }
        open.rows.push_back(s->index);
        open.lengths.push_back(pick(3) == 0 ? 1 + pick(9) : 1);
      }
    }
    if (open.rows.empty()) return;
    std::vector<int32_t> parents;
    for (int32_t i = 0; open.tree && i < open.lengths[0]; ++i) {
      parents.push_back(pick(of(open.rows[0]).nodes + i + 1) - 1);
    }
    if (lockstep_.begin(open.rows, open.lengths, parents, stream(), &open.step) != KVC_OK) return;
    for (const int row : open.rows) of(row).busy = true;
    open_.push_back(open);
  }
  void go_on() {
    if (open_.empty()) return;
    const size_t index = static_cast<size_t>(pick(static_cast<int>(open_.size())));
    Open& open = open_[index];
    if (open.layers < kLayers && pick(8) != 0) {
      ASSERT_EQ(lockstep_.attend(open.step, open.layers++), KVC_OK) << lockstep_.message();
      return;
    }
    const bool keep = open.layers == kLayers && pick(5) != 0;
    ASSERT_EQ(keep ? lockstep_.end(open.step) : lockstep_.abort(open.step), KVC_OK) << lockstep_.message();
    for (size_t i = 0; i < open.rows.size(); ++i) {
      Sequence& s = of(open.rows[i]);
      s.busy = false;
      if (keep && open.tree) s.nodes += open.lengths[i];
      if (keep && !open.tree) s.length += open.lengths[i];
    }
    open_.erase(open_.begin() + static_cast<int64_t>(index));
  }
  void fork() {
    Sequence* const s = idle(true);
    if (s == nullptr || s->length == 0 || alive_.size() >= 8) return;
    const int64_t position = 1 + pick(static_cast<int>(s->length));
    int child = -1;
    if (lockstep_.fork(s->index, position, stream(), &child) == KVC_OK) alive_.push_back({child, position, 0, false});
  }
  void drop() {
    Sequence* const s = idle(true);
    if (s == nullptr) return;
    if (pick(2) == 0 && s->length > 0) {
      const int64_t length = pick(static_cast<int>(s->length) + 1);
      if (lockstep_.truncate(s->index, length) == KVC_OK) s->length = length;
      return;
    }
    lockstep_.remove(s->index);
    *s = {lockstep_.add(), 0, 0, false};
  }
  void commit() {
    for (Sequence& s : alive_) {
      if (s.busy || s.nodes == 0) continue;
      const int32_t leaf = pick(s.nodes + 1) - 1;
      ASSERT_EQ(lockstep_.commit(s.index, leaf, stream()), KVC_OK) << lockstep_.message();
      s.nodes = 0;
      int64_t length = 0;
      lockstep_.both([&](kvc_cache* c, int side) {
        return kvc_seq_lengths(c, 1, &lockstep_.sequences[static_cast<size_t>(s.index)].ids[side], &length,
                               lockstep_.error());
      });
      s.length = length;
    }
  }
  void read() {
    const Sequence* const s = idle(true);
    if (s != nullptr && s->length > 0) lockstep_.export_rows(s->index, 0, stream());
  }

  Lockstep& lockstep_;
  const cudaStream_t* streams_;
  const int num_streams_;
  std::vector<Sequence> alive_;
  std::vector<Open> open_;
};

void random_calls(const LockstepOptions& options, const cudaStream_t* streams, int num_streams, unsigned seed) {
  Lockstep lockstep(options);
  lockstep.random.seed(seed);
  RandomCalls calls(lockstep, streams, num_streams);
  for (int i = 0; i < 150; ++i) {
    calls.call();
    lockstep.compare_digests();
    if (testing::Test::HasFailure()) return;
  }
  calls.finish();
  lockstep.compare();
}

TEST_P(Streams, RandomCalls) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    random_calls({.num_pages = 24}, streams_, kStreams, 100 * GetParam() + seed);
    if (HasFailure()) return;
    random_calls({.num_pages = 24, .window_tokens = 9, .rope = true}, streams_, kStreams, 100 * GetParam() + seed);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Streams,
                         testing::Values(cuda_emulation::kInTurn, cuda_emulation::kNewestFirst, cuda_emulation::kRandom,
                                         cuda_emulation::kRandom + 1, cuda_emulation::kRandom + 2));

// cudaStreamPerThread is one name for many streams. Calls of two threads on it are ordered like those on any two
// streams.
TEST(StreamOfEachThread, IsAnotherStream) {
  cuda_emulation::set_order(cuda_emulation::kNewestFirst);
  Lockstep lockstep({.num_pages = 60});
  const int a = lockstep.add();
  std::thread([&] { lockstep.fill(a, 19, 64, cudaStreamPerThread); }).join();
  std::thread([&] {
    for (int layer = 0; layer < kLayers; ++layer) lockstep.export_rows(a, layer, cudaStreamPerThread);
  }).join();
  lockstep.compare();
  cuda_emulation::set_order(cuda_emulation::kAtOnce);
}

// After every buffer has been used once, a decode step makes no copy and allocates nothing. The host waits for nothing
// while fewer steps are in flight than there are staging buffers of a forward.
TEST(SteadySteps, NoCopyNoAllocationNoWait) {
  Lockstep lockstep({.num_pages = 200, .rope = true});
  std::vector<int> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(lockstep.add());
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  const auto decode = [&] {
    Lockstep::Step step;
    ASSERT_EQ(lockstep.begin(rows, {1, 1, 1, 1}, {}, stream, &step), KVC_OK);
    for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(lockstep.attend(step, layer), KVC_OK);
    ASSERT_EQ(lockstep.end(step), KVC_OK);
  };
  for (int i = 0; i < 3; ++i) decode();
  cuda_emulation::set_order(cuda_emulation::kInTurn);
  constexpr int kBehind = 4;
  for (int round = 0; round < 4; ++round) {
    const cuda_emulation::Counts before = cuda_emulation::counts();
    for (int i = 0; i < kBehind; ++i) decode();
    const cuda_emulation::Counts after = cuda_emulation::counts();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.host_waits, before.host_waits);
    EXPECT_EQ(after.copies, before.copies);  // kernels read the arrays
    cudaDeviceSynchronize();
  }
  const cuda_emulation::Counts before = cuda_emulation::counts();
  for (int i = 0; i < kBehind + 1; ++i) decode();
  EXPECT_EQ(cuda_emulation::counts().host_waits,
            before.host_waits + 1);  // one step too many: for the first one's arrays
  cuda_emulation::set_order(cuda_emulation::kAtOnce);
  lockstep.compare();
  cudaStreamDestroy(stream);
}

// A step that changes more nodes of page lists than its staging buffer holds sends several. Every fork rewrites a path
// of nodes.
TEST(SteadySteps, ManyChanges) {
  constexpr int kForks = 90;
  Lockstep lockstep({.num_pages = 4000, .page_size = 1, .max_sequences = kForks + 1, .max_batch_tokens = 128});
  const int parent = lockstep.add();
  lockstep.fill(parent, 1300, 128, nullptr);
  std::vector<int> forks(kForks);
  for (int i = 0; i < kForks; ++i) {
    ASSERT_EQ(lockstep.fork(parent, 1295 - 2 * i, nullptr, &forks[static_cast<size_t>(i)]), KVC_OK);
  }
  const cuda_emulation::Counts before = cuda_emulation::counts();
  Lockstep::Step step;
  ASSERT_EQ(lockstep.begin({parent, forks[0], forks[44], forks[89]}, {1, 2, 1, 1}, {}, nullptr, &step), KVC_OK);
  EXPECT_EQ(cuda_emulation::counts().launches - before.launches, 2);
  for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(lockstep.attend(step, layer), KVC_OK);
  ASSERT_EQ(lockstep.end(step), KVC_OK);
  lockstep.compare();
}

}  // namespace
}  // namespace kvt
