// Calls in the wrong order.
#include "fixture.h"

namespace kvt {
namespace {

const Statuses kOrder{KVC_ERROR_ORDER}, kStale{KVC_ERROR_STALE_ID}, kCancelled{KVC_ERROR_CANCELLED},
    kBusy{KVC_ERROR_BUSY};

TEST(Order, EndNamesTheMissingLayer) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {2});
  std::vector<LayerTensors> t;
  for (const LayerSpec &l : w.spec.layers) t.emplace_back(l, 2);
  auto missing = [&](int64_t layer) {
    const kvc_error error =
        refused(w.cache, kOrder, "kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, f, e); },
                {"layer " + std::to_string(layer)});
    EXPECT_EQ(error.index, layer);
  };
  missing(0);
  kvc_append_args append = t[0].append_args();
  ASSERT_EQ(kvc_forward_append(w.cache, f, 0, &append, nullptr), KVC_OK);
  missing(1);
  append = t[2].append_args();
  ASSERT_EQ(kvc_forward_append(w.cache, f, 2, &append, nullptr), KVC_OK);
  missing(1);
  kvc_attend_args attend = t[1].attend_args();
  ASSERT_EQ(kvc_forward_attend(w.cache, f, 1, &attend, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(w.length(w.seq), 22);
}

TEST(Order, EachLayerOnce) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {2});
  LayerTensors t(w.spec.layers[0], 2);
  const kvc_append_args append = t.append_args();
  const kvc_attend_args fused = t.attend_args(), alone = t.attend_args(false);
  refused(w.cache, kOrder, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &alone, e); });  // nothing was appended yet
  ASSERT_EQ(kvc_forward_append(w.cache, f, 0, &append, nullptr), KVC_OK);
  const std::vector<uint8_t> clean = t.out.bytes();
  refused(w.cache, kOrder, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &append, e); });
  refused(w.cache, kOrder, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &fused, e); });
  EXPECT_EQ(clean, t.out.bytes());
  ASSERT_EQ(kvc_forward_attend(w.cache, f, 0, &alone, nullptr), KVC_OK);
  for (const kvc_attend_args *args : {&fused, &alone}) {
    refused(w.cache, kOrder, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, args, e); });
  }
  refused(w.cache, kOrder, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &append, e); });
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Order, AfterEndAndAfterAbort) {
  for (bool abort : {false, true}) {
    World w;
    const kvc_forward f = w.begin({w.seq}, {2});
    w.attend_all(f, 2);
    ASSERT_EQ(abort ? kvc_forward_abort(w.cache, f, nullptr) : kvc_forward_end(w.cache, f, nullptr), KVC_OK);
    LayerTensors t(w.spec.layers[0], 2);
    const kvc_append_args append = t.append_args();
    const kvc_attend_args attend = t.attend_args();
    refused(w.cache, kStale, "kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, f, e); });
    refused(w.cache, kStale, "kvc_forward_abort", [&](kvc_error *e) { return kvc_forward_abort(w.cache, f, e); });
    refused(w.cache, kStale, "kvc_forward_cancel", [&](kvc_error *e) { return kvc_forward_cancel(w.cache, f, e); });
    refused(w.cache, kStale, "kvc_forward_append",
            [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &append, e); });
    refused(w.cache, kStale, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &attend, e); });
    EXPECT_EQ(w.length(w.seq), abort ? 20 : 22);
  }
}

TEST(Order, AfterCancelOnlyAbortIsLeft) {
  World w;
  const uint64_t before = w.digest();
  const kvc_forward f = w.begin({w.seq}, {2});
  LayerTensors t(w.spec.layers[0], 2);
  const kvc_append_args append = t.append_args();
  const kvc_attend_args attend = t.attend_args();
  ASSERT_EQ(kvc_forward_append(w.cache, f, 1, nullptr, nullptr), KVC_ERROR_NULL_ARGUMENT);
  ASSERT_EQ(kvc_forward_cancel(w.cache, f, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_cancel(w.cache, f, nullptr), KVC_OK) << "cancelling twice changes nothing";
  refused(w.cache, kCancelled, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(w.cache, f, 0, &append, e); });
  refused(w.cache, kCancelled, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &attend, e); });
  refused(w.cache, kCancelled, "kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, f, e); });
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(w.length(w.seq), 20);
  (void)before;
  w.step(w.seq, 2);  // the sequence is free again
}

TEST(Order, LayersOutOfRangeAndRangesOfLayers) {
  World w;
  const kvc_seq seq = w.seq;
  const int32_t two = 2;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &two;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  for (auto [begin, end] : {std::pair{-1, 2}, {0, 4}, {2, 2}, {2, 1}, {3, 4}, {0, -1}, {INT32_MIN, INT32_MAX}}) {
    batch.layer_begin = begin;
    batch.layer_end = end;
    const Statuses range{KVC_ERROR_OUT_OF_RANGE};
    refused(w.cache, range, "kvc_forward_begin",
            [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); });
    refused(w.cache, range, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &batch, e); });
  }
  batch.layer_begin = 1;
  batch.layer_end = 2;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  LayerTensors t(w.spec.layers[1], 2);
  const kvc_append_args append = t.append_args();
  const kvc_attend_args attend = t.attend_args();
  for (int32_t layer : {-1, 0, 2, 3, INT32_MAX, INT32_MIN}) {
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_forward_append",
            [&](kvc_error *e) { return kvc_forward_append(w.cache, f, layer, &append, e); }, {std::to_string(layer)});
    refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, layer, &attend, e); }, {std::to_string(layer)});
  }
  ASSERT_EQ(kvc_forward_attend(w.cache, f, 1, &attend, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
}

TEST(Order, ABusySequenceRefusesEverythingButQueriesAndRemove) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {2});
  int64_t number = 7, before = 0, after = 0;
  kvc_seq child = 0, both[2] = {w.forked, w.seq};
  const int64_t lengths[2] = {20, 20};
  const int32_t ones[2] = {1, 1};
  EXPECT_EQ(refused(w.cache, kBusy, "kvc_seq_fork",
                    [&](kvc_error *e) { return kvc_seq_fork(w.cache, 1, &w.seq, nullptr, &child, nullptr, e); })
                .index,
            0);
  EXPECT_EQ(refused(w.cache, kBusy, "kvc_seq_truncate",
                    [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 2, both, lengths, e); })
                .index,
            1);
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = both;
  batch.append_lengths = ones;
  batch.num_sequences = 2;
  kvc_forward g = 0;
  EXPECT_EQ(refused(w.cache, kBusy, "kvc_forward_begin",
                    [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &g, e); })
                .index,
            1);
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.position_begin = 16;
  DLManagedTensorVersioned *k = nullptr;
  refused(w.cache, kBusy, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &k, nullptr, nullptr, e); });
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
  refused(w.cache, kBusy, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &import, nullptr, e); });
  refused(w.cache, kBusy, "kvc_cache_clear", [&](kvc_error *e) { return kvc_cache_clear(w.cache, e); });
  // Queries.
  EXPECT_EQ(w.length(w.seq), 20) << "without the tokens of the open forward";
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, nullptr, 0, &number, nullptr), KVC_OK);
  EXPECT_EQ(number, 5);
  EXPECT_EQ(kvc_seq_max_append(w.cache, 1, &w.seq, &number, nullptr), KVC_OK);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(kvc_seq_nearest_position(w.cache, w.seq, 20, &before, &after, nullptr), KVC_OK);
  EXPECT_EQ(before, 20);
  EXPECT_EQ(after, 20);
  // A remove takes effect when the forward closes.
  ASSERT_EQ(kvc_seq_remove(w.cache, 1, &w.seq, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_lengths(w.cache, 1, &w.seq, &number, nullptr), KVC_ERROR_STALE_ID);
  w.attend_all(f, 2);
  EXPECT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
}

// Positions in freed pages are refused, because nothing is stored there. That holds even where a query sees only itself
// (a window of 1, or the first token of a chunk). A position inside the last remaining page works, and the sequence
// continues from there.
TEST(Order, NoCutInsideFreedPagesWhateverAQueryThereSees) {
  for (const GroupSpec &group : {GroupSpec{1, 40}, GroupSpec{0, 40, 6}}) {
    CacheSpec spec = World::default_spec();
    spec.groups[1] = group;
    World w(spec);  // 20 tokens in pages of 4: group 1 has freed all, or (chunks of 6) those before 16
    const int64_t behind = group.window ? 20 : 18;
    int64_t before = -1, after = -1;
    for (int64_t position : {4, 6, 12}) {
      refused(w.cache, {KVC_ERROR_EVICTED}, "kvc_seq_truncate",
              [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 1, &w.seq, &position, e); }, {"group 1"});
      kvc_seq child = 0;
      refused(w.cache, {KVC_ERROR_EVICTED}, "kvc_seq_fork",
              [&](kvc_error *e) { return kvc_seq_fork(w.cache, 1, &w.seq, &position, &child, nullptr, e); });
      ASSERT_EQ(kvc_seq_nearest_position(w.cache, w.seq, position, &before, &after, nullptr), KVC_OK);
      EXPECT_EQ(before, 0);
      EXPECT_EQ(after, behind);
    }
    ASSERT_EQ(kvc_seq_truncate(w.cache, 1, &w.seq, &behind, nullptr), KVC_OK);
    w.step(w.seq, 3);
    EXPECT_EQ(w.length(w.seq), behind + 3);
  }
}

}  // namespace
}  // namespace kvt
