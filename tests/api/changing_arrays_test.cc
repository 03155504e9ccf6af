// Another thread of the caller writes to arrays while a call reads them. The call reads each element once, so it uses
// the values that it checked.
#include <atomic>
#include <thread>

#include "fixture.h"

namespace kvt {
namespace {

// Writes two values to an element in turn, as long as the object lives.
template <class T>
class Writer {
 public:
  Writer(T *element, T a, T b)
      : thread_([=, this] {
          started_.store(true);
          while (!done_.load(std::memory_order_relaxed)) {
            __atomic_store_n(element, b, __ATOMIC_RELAXED);
            __atomic_store_n(element, a, __ATOMIC_RELAXED);
          }
        }) {
    while (!started_.load()) std::this_thread::yield();
  }
  ~Writer() {
    done_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> started_{false}, done_{false};
  std::thread thread_;
};

constexpr int kRounds = 20000;

TEST(ChangingArrays, ABatch) {
  World w(World::default_spec(), 1, 0);
  const kvc_seq seq = w.seq;
  int32_t length = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  int begun = 0, refused = 0;
  {
    Writer<int32_t> writer(&length, 1, 2000);
    // On a busy machine all rounds may pass before the writer runs again.
    for (int i = 0; i < kRounds || ((begun == 0 || refused == 0) && i < 1000 * kRounds); i++) {
      kvc_forward f = 0;
      if (kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr)) {
        refused++;
        continue;
      }
      begun++;
      kvc_forward_info info;
      kvc_forward_info_init(&info);
      ASSERT_EQ(kvc_forward_get_info(w.cache, f, &info, nullptr), KVC_OK);
      ASSERT_EQ(info.num_tokens, 1);
      ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
    }
  }
  EXPECT_GT(begun, 0);
  EXPECT_GT(refused, 0) << "the array did not change";
}

TEST(ChangingArrays, ParentsAndSpansOfABatch) {
  World w(World::default_spec(), 1, 0);
  const kvc_seq seqs[2] = {w.seq, w.forked};
  const int32_t lengths[2] = {2, 1};
  int32_t parents[3] = {KVC_TREE_ROOT, 0, KVC_TREE_NONE}, spans[3] = {0, 0, 1};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = seqs;
  batch.append_lengths = lengths;
  batch.num_sequences = 2;
  batch.tree_parents = parents;
  batch.span_ids = spans;
  Writer<int32_t> parent(&parents[1], 0, 1 << 20), span(&spans[2], 1, -5);
  for (int i = 0; i < kRounds; i++) {
    kvc_forward f = 0;
    if (kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr)) continue;
    kvc_forward_info info;
    kvc_forward_info_init(&info);
    ASSERT_EQ(kvc_forward_get_info(w.cache, f, &info, nullptr), KVC_OK);
    ASSERT_EQ(info.positions_host[1], 1);
    ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  }
  EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
}

// With several sequences, the first one is checked long before it is changed.
TEST(ChangingArrays, SequencesAndLengths) {
  World w;
  kvc_seq seqs[6] = {w.seq, w.forked};
  ASSERT_EQ(kvc_seq_add(w.cache, 4, seqs + 2, nullptr), KVC_OK);
  const kvc_seq known = seqs[5];
  int64_t lengths[6] = {20, 20, 0, 0, 0, 0}, counts[6] = {};
  {
    // Not an id of this cache, but its low bits may name a slot.
    Writer<kvc_seq> writer(&seqs[5], known, (uint64_t{1} << 62) + 5);
    Writer<int64_t> lengths_writer(&lengths[0], 20, 21);
    for (int i = 0; i < 10 * kRounds; i++) {
      (void)kvc_seq_truncate(w.cache, 6, seqs, lengths, nullptr);
      (void)kvc_seq_lengths(w.cache, 6, seqs, counts, nullptr);
      (void)kvc_seq_max_append(w.cache, 6, seqs, counts, nullptr);
    }
  }
  EXPECT_EQ(w.length(w.seq), 20);
  EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
