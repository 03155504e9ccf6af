// Invalid ids: stale, zero, of another cache, of another kind, or invented.
#include <algorithm>

#include "fixture.h"

namespace kvt {
namespace {

const Statuses kStale{KVC_ERROR_STALE_ID};

void every_sequence_call(World &w, kvc_seq bad, bool zero) {
  int64_t number = 0, lengths[2] = {0, 0};
  kvc_seq pair[2] = {w.seq, bad}, children[2] = {0, 0};
  const int32_t ones[2] = {1, 1};
  auto at_one = [](const kvc_error &e) { EXPECT_EQ(e.index, 1) << e.message; };
  at_one(refused(w.cache, kStale, "kvc_seq_remove", [&](kvc_error *e) { return kvc_seq_remove(w.cache, 2, pair, e); }));
  at_one(refused(w.cache, kStale, "kvc_seq_fork",
                 [&](kvc_error *e) { return kvc_seq_fork(w.cache, 2, pair, nullptr, children, nullptr, e); }));
  at_one(refused(w.cache, kStale, "kvc_seq_truncate",
                 [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 2, pair, lengths, e); }));
  at_one(refused(w.cache, kStale, "kvc_seq_lengths",
                 [&](kvc_error *e) { return kvc_seq_lengths(w.cache, 2, pair, lengths, e); }));
  at_one(refused(w.cache, kStale, "kvc_seq_max_append",
                 [&](kvc_error *e) { return kvc_seq_max_append(w.cache, 2, pair, lengths, e); }));
  at_one(refused(w.cache, kStale, "kvc_seq_exclusive_pages",
                 [&](kvc_error *e) { return kvc_seq_exclusive_pages(w.cache, 0, 2, pair, lengths, e); }));
  int32_t nodes[2] = {0, 0};
  at_one(refused(w.cache, kStale, "kvc_seq_tree_nodes",
                 [&](kvc_error *e) { return kvc_seq_tree_nodes(w.cache, 2, pair, nodes, e); }));
  kvc_seq first_bad[1] = {bad};  // w.seq has no tree
  refused(w.cache, kStale, "kvc_seq_commit",
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 1, first_bad, nodes, nullptr, e); });
  refused(w.cache, kStale, "kvc_seq_pages",
          [&](kvc_error *e) { return kvc_seq_pages(w.cache, bad, 0, nullptr, 0, &number, e); });
  refused(w.cache, kStale, "kvc_seq_nearest_position",
          [&](kvc_error *e) { return kvc_seq_nearest_position(w.cache, bad, 0, &number, nullptr, e); });
  kvc_export_args exports;
  kvc_export_args_init(&exports);
  DLManagedTensorVersioned *k = nullptr;
  refused(w.cache, kStale, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, bad, &exports, &k, nullptr, nullptr, e); });
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  std::vector<const DLTensor *> ks, vs;
  for (LayerTensors &t : tensors) {
    ks.push_back(t.k.dl());
    vs.push_back(t.v.dl());
  }
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.num_layers = 3;
  import.k = ks.data();
  import.v = vs.data();
  refused(w.cache, kStale, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, bad, &import, nullptr, e); });
  EXPECT_EQ(children[0], 0u) << "outputs are left alone";
  if (zero) return;  // in a batch, 0 is an inert row
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = pair;
  batch.append_lengths = ones;
  batch.num_sequences = 2;
  kvc_forward f = 0;
  at_one(refused(w.cache, kStale, "kvc_cache_can_fit",
                 [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &batch, e); }));
  at_one(refused(w.cache, kStale, "kvc_forward_begin",
                 [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); }));
  EXPECT_EQ(f, 0u);
}

void every_forward_call(World &w, kvc_forward bad) {
  LayerTensors t(w.spec.layers[0], 4);
  const kvc_append_args append = t.append_args();
  const kvc_attend_args attend = t.attend_args();
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  int64_t length = 0;
  refused(w.cache, kStale, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, bad, 0, &append, e); });
  refused(w.cache, kStale, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, bad, 0, &attend, e); });
  refused(w.cache, kStale, "kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, bad, e); });
  refused(w.cache, kStale, "kvc_forward_abort", [&](kvc_error *e) { return kvc_forward_abort(w.cache, bad, e); });
  refused(w.cache, kStale, "kvc_forward_cancel", [&](kvc_error *e) { return kvc_forward_cancel(w.cache, bad, e); });
  refused(w.cache, kStale, "kvc_forward_get_info",
          [&](kvc_error *e) { return kvc_forward_get_info(w.cache, bad, &info, e); });
  refused(w.cache, kStale, "kvc_forward_describe",
          [&](kvc_error *e) { return kvc_forward_describe(w.cache, bad, nullptr, 0, &length, e); });
}

TEST(Ids, AreInRange) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {1});
  for (uint64_t id : {w.seq, w.forked, f}) {
    EXPECT_NE(id, 0u);
    EXPECT_LT(id, 1ull << 63);
  }
}

TEST(Ids, Sequences) {
  World w, other;
  const kvc_forward f = w.begin({w.forked}, {1});
  kvc_seq gone = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &gone, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_remove(w.cache, 1, &gone, nullptr), KVC_OK);
  kvc_seq reused = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &reused, nullptr), KVC_OK);  // likely the same slot, another generation
  EXPECT_NE(reused, gone);
  struct {
    const char *what;
    kvc_seq id;
  } bad[] = {{"0", 0},
             {"removed", gone},
             {"another cache's", other.seq},
             {"another cache's fork", other.forked},
             {"a forward", f},
             {"1", 1},
             {"all bits", UINT64_MAX},
             {"the top bit", w.seq | 1ull << 63},
             {"2^62", 1ull << 62},
             {"a slot beyond", w.seq + 5000},
             {"another generation", w.seq ^ (1ull << 30)}};
  for (const auto &b : bad) {
    SCOPED_TRACE(b.what);
    every_sequence_call(w, b.id, b.id == 0);
  }
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Ids, Forwards) {
  World w, other;
  const kvc_forward ended = w.begin({w.seq}, {4});
  w.attend_all(ended, 4);
  ASSERT_EQ(kvc_forward_end(w.cache, ended, nullptr), KVC_OK);
  const kvc_forward aborted = w.begin({w.seq}, {4});
  ASSERT_EQ(kvc_forward_abort(w.cache, aborted, nullptr), KVC_OK);
  const kvc_forward elsewhere = other.begin({other.seq}, {4}), open = w.begin({w.seq}, {4});
  for (kvc_forward id : std::vector<kvc_forward>{0, ended, aborted, elsewhere, w.seq, w.forked, 1, UINT64_MAX,
                                                 open | 1ull << 63, open ^ (1ull << 30)}) {
    SCOPED_TRACE(id);
    every_forward_call(w, id);
  }
  w.attend_all(open, 4);
  EXPECT_EQ(kvc_forward_end(w.cache, open, nullptr), KVC_OK);
}

TEST(Ids, AllSequencesOfAClearedCacheAreStale) {
  World w;
  ASSERT_EQ(kvc_cache_clear(w.cache, nullptr), KVC_OK);
  const kvc_seq old = w.seq;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &w.seq, nullptr), KVC_OK);
  every_sequence_call(w, old, false);
  every_sequence_call(w, w.forked, false);
}

// However often a slot is used again, an old id never becomes valid.
TEST(Ids, GenerationsDoNotComeBackSoon) {
  CacheSpec spec = World::default_spec();
  spec.max_sequences = 2;
  World w(spec);
  ASSERT_EQ(kvc_seq_remove(w.cache, 1, &w.forked, nullptr), KVC_OK);
  const kvc_seq old = w.forked;
  for (int i = 0; i < 100000; i++) {
    kvc_seq id = 0;
    ASSERT_EQ(kvc_seq_add(w.cache, 1, &id, nullptr), KVC_OK);
    ASSERT_NE(id, old);
    ASSERT_EQ(kvc_seq_remove(w.cache, 1, &id, nullptr), KVC_OK);
  }
  every_sequence_call(w, old, false);
}

}  // namespace
}  // namespace kvt
