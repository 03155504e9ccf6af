// Graphs of a cache: calls with fixed arguments are replayed while lengths grow, shrink to 0 and cross the edges of
// pages, windows and splits. They give the bits of plain forwards. Replays without an open step touch nothing.
#include <cstring>
#include <map>
#include <random>

#include "fixture.h"
#include "reader.h"

namespace kvt {
namespace {

constexpr int kForwardRows = 5, kTokens = 48;

CacheSpec mixed_spec() {
  CacheSpec spec;
  spec.page_size = 16;
  spec.max_sequences = 12;
  spec.max_batch_tokens = 4096;
  spec.rollback = 64;
  spec.groups = {{0, 3000}, {50, 3000}, {0, 3000, 33}, {0, 3000}};
  spec.layers = {LayerSpec{0, 4, 2, 16, 0, DType::kF32, KVC_ROPE_ON_APPEND}, LayerSpec{1, 2, 1, 8},
                 LayerSpec{2, 2, 2, 8, 12}, LayerSpec{3, 4, 1, 24}};
  spec.layers[3].latent = 16;
  spec.layers[3].scale = 0.2;
  return spec;
}

// A recorded model: tensors of a fixed size at fixed addresses, and calls whose arguments never change.
struct Program {
  kvc_cache *cache;
  kvc_forward forward;  // the graph
  std::vector<LayerTensors> tensors;
  std::vector<kvc_attend_args> calls;

  Program(const CacheSpec &spec, kvc_cache *its_cache, kvc_forward graph) : cache(its_cache), forward(graph) {
    for (const LayerSpec &l : spec.layers) tensors.emplace_back(l, kTokens);
    for (size_t l = 0; l < tensors.size(); l++) {
      calls.push_back(tensors[l].attend_args());
      if (spec.layers[l].latent) calls.back().v = nullptr;
    }
  }
  void fill(uint32_t seed) {
    std::mt19937 rng(seed);
    for (LayerTensors &t : tensors) {
      for (Tensor *x : {&t.q, &t.k, &t.v}) {
        auto *values = static_cast<float *>(x->data());
        for (int64_t i = 0; i < x->dim(0) * x->dim(1) * x->dim(2); i++) {
          values[i] = static_cast<float>(rng() % 1000) / 500 - 1;
        }
      }
      std::fill(t.out.bytes().begin(), t.out.bytes().end(), 0x5A);
      std::fill(t.lse.bytes().begin(), t.lse.bytes().end(), 0x5A);
    }
  }
  std::vector<kvc_status> replay(kvc_forward f, kvc_error *error = nullptr) {
    std::vector<kvc_status> statuses;
    for (size_t l = 0; l < calls.size(); l++) {
      statuses.push_back(kvc_forward_attend(cache, f, static_cast<int32_t>(l), &calls[l], error));
    }
    return statuses;
  }
  std::vector<std::vector<uint8_t>> outputs() const {
    std::vector<std::vector<uint8_t>> all;
    for (const LayerTensors &t : tensors) {
      all.push_back(t.out.bytes());
      all.push_back(t.lse.bytes());
    }
    return all;
  }
};

// The same steps in two caches, by a graph and by plain forwards. In both, long prompts use plain forwards.
struct Twins {
  CacheSpec spec = mixed_spec();
  ContextPtr context;
  CachePtr owners[2];
  kvc_forward graph = 0;
  std::unique_ptr<Program> programs[2];
  std::vector<kvc_seq> seqs[2];
  std::mt19937 rng{5};

  Twins(int threads, uint32_t flags) : context(make_context(threads)) {
    spec.flags = flags;
    for (CachePtr &owner : owners) owner = make_cache(context.get(), spec);
    graph = make_graph(owners[0].get(), kForwardRows, kTokens);
    for (int c = 0; c < 2; c++) {
      programs[c] = std::make_unique<Program>(spec, owners[c].get(), graph);
      seqs[c].resize(8);
      EXPECT_EQ(kvc_seq_add(owners[c].get(), 8, seqs[c].data(), nullptr), KVC_OK);
    }
  }
  void prompt(size_t i, int32_t tokens) {
    for (int c = 0; c < 2; c++) {
      const std::vector<kvc_seq> ids{seqs[c][i]};
      const std::vector<int32_t> lengths{tokens};
      const kvc_batch batch = batch_of(ids, lengths, 0);
      kvc_forward f = 0;
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_forward_begin(owners[c].get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
      for (size_t l = 0; l < spec.layers.size(); l++) {
        LayerTensors t(spec.layers[l], tokens);
        kvc_append_args args = t.append_args();
        if (spec.layers[l].latent) args.v = nullptr;
        ASSERT_EQ(kvc_forward_append(owners[c].get(), f, static_cast<int32_t>(l), &args, nullptr), KVC_OK);
      }
      ASSERT_EQ(kvc_forward_end(owners[c].get(), f, nullptr), KVC_OK);
    }
  }
  void step(const std::vector<int> &rows, const std::vector<int32_t> &lengths, uint32_t seed) {
    for (int c = 0; c < 2; c++) {
      std::vector<kvc_seq> ids;
      for (const int row : rows) ids.push_back(row < 0 ? 0 : seqs[c][static_cast<size_t>(row)]);
      const kvc_batch batch = batch_of(ids, lengths, c == 0 ? graph : 0);
      kvc_forward f = 0;
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_forward_begin(owners[c].get(), &batch, nullptr, &f, &error), KVC_OK) << error.message;
      ASSERT_EQ(f == graph, c == 0);
      programs[c]->fill(seed);
      for (const kvc_status status : programs[c]->replay(f, &error)) ASSERT_EQ(status, KVC_OK) << error.message;
      ASSERT_EQ(kvc_forward_end(owners[c].get(), f, nullptr), KVC_OK);
    }
    ASSERT_EQ(programs[0]->outputs(), programs[1]->outputs());  // poison after T and in inert rows included
  }
};

TEST(ForwardGraph, ReplaysGiveTheBitsOfPlainForwards) {
  for (const int threads : {1, 3}) {
    for (const uint32_t flags : {0u, uint32_t{KVC_CACHE_DETERMINISTIC}}) {
      Twins twins(threads, flags);
      twins.prompt(0, 3000);  // long enough for splits
      twins.prompt(1, 700);
      for (uint32_t round = 0; round < 60; round++) {
        std::vector<int> rows;
        std::vector<int32_t> lengths;
        int32_t left = kTokens;
        for (int i = 0; i < 8 && rows.size() < kForwardRows; i++) {
          if (twins.rng() % 2) continue;
          rows.push_back(twins.rng() % 7 == 0 ? -1 : i);
          lengths.push_back(std::min<int32_t>(left, twins.rng() % 4 ? 1 : 1 + static_cast<int32_t>(twins.rng() % 30)));
          if (lengths.back() == 0) lengths.pop_back(), rows.pop_back();
          if (!lengths.empty()) left -= lengths.back();
        }
        twins.step(rows, lengths, round);
        if (testing::Test::HasFailure()) FAIL() << "round " << round << " threads " << threads << " flags " << flags;
        if (round % 9 == 4) {  // shrink to nothing, or a little
          for (int c = 0; c < 2; c++) {
            const kvc_seq seq = twins.seqs[c][round % 8];
            int64_t length = 0;
            ASSERT_EQ(kvc_seq_lengths(twins.owners[c].get(), 1, &seq, &length, nullptr), KVC_OK);
            length = round % 2 ? 0 : std::max<int64_t>(0, length - 20);
            ASSERT_EQ(kvc_seq_truncate(twins.owners[c].get(), 1, &seq, &length, nullptr), KVC_OK);
          }
        }
      }
    }
  }
}

TEST(ForwardGraph, StaleReplaysTouchNothing) {
  World w;
  const kvc_forward graph = make_graph(w.cache, 4, 32);
  Program program(w.spec, w.cache, graph);
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  kvc_tables tables;
  kvc_tables_init(&tables);
  const auto stale = [&](const char *when) {
    SCOPED_TRACE(when);
    program.fill(1);
    const auto before = program.outputs();
    kvc_error error = KVC_ERROR_INIT;
    for (const kvc_status status : program.replay(graph, &error)) EXPECT_EQ(status, KVC_ERROR_STALE);
    EXPECT_EQ(program.outputs(), before);
    const kvc_append_args append = program.tensors[0].append_args();
    const Statuses wanted{KVC_ERROR_STALE};
    const std::vector<std::string> says{"no forward is open in graph"};
    refused(
        w.cache, wanted, "kvc_forward_append",
        [&](kvc_error *e) { return kvc_forward_append(w.cache, graph, 0, &append, e); }, says);
    refused(w.cache, wanted, "kvc_forward_end", [&](kvc_error *e) { return kvc_forward_end(w.cache, graph, e); }, says);
    refused(w.cache, wanted, "kvc_forward_abort", [&](kvc_error *e) { return kvc_forward_abort(w.cache, graph, e); });
    refused(w.cache, wanted, "kvc_forward_cancel", [&](kvc_error *e) { return kvc_forward_cancel(w.cache, graph, e); });
    refused(w.cache, wanted, "kvc_forward_get_info",
            [&](kvc_error *e) { return kvc_forward_get_info(w.cache, graph, &info, e); });
    refused(w.cache, wanted, "kvc_forward_tables",
            [&](kvc_error *e) { return kvc_forward_tables(w.cache, graph, 0, &tables, e); });
  };
  stale("before any step");
  kvc_forward f = 0;
  std::vector<kvc_seq> one{w.seq};
  std::vector<int32_t> length{1};
  const kvc_batch batch = batch_of(one, length, graph);
  for (const bool keep : {true, false}) {
    ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
    kvc_tables_init(&tables);
    ASSERT_EQ(kvc_forward_tables(w.cache, graph, 1, &tables, nullptr), KVC_OK);
    EXPECT_GT(int_at(tables.generation_word, 0), 0);
    for (const kvc_status status : program.replay(graph)) ASSERT_EQ(status, KVC_OK);
    const int64_t before = w.length(w.seq);
    ASSERT_EQ((keep ? kvc_forward_end : kvc_forward_abort)(w.cache, graph, nullptr), KVC_OK);
    EXPECT_EQ(w.length(w.seq), before + (keep ? 1 : 0));
    EXPECT_EQ(int_at(tables.generation_word, 0), 0);
    stale(keep ? "after end" : "after abort");
  }
  ASSERT_EQ(kvc_graph_destroy(w.cache, graph, nullptr), KVC_OK);
  for (const kvc_status status : program.replay(graph)) EXPECT_EQ(status, KVC_ERROR_STALE_ID) << "after destroy";
}

TEST(ForwardGraph, TablesOfAnEarlierStepAreStale) {
  World w;
  const kvc_forward graph = make_graph(w.cache, 4, 8);
  std::vector<kvc_seq> seqs{w.seq, w.forked};
  std::vector<int32_t> lengths{1, 2};
  const kvc_batch batch = batch_of(seqs, lengths, graph);
  kvc_forward f = 0;
  kvc_tables first, second;
  kvc_tables_init(&first);
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_tables(w.cache, f, 0, &first, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  EXPECT_EQ(int_at(first.generation_word, 0), 0) << "this step's tables were not asked for";
  kvc_tables_init(&second);
  ASSERT_EQ(kvc_forward_tables(w.cache, f, 0, &second, nullptr), KVC_OK);
  EXPECT_EQ(int_at(first.generation_word, 0), static_cast<int64_t>(second.generation));
  EXPECT_NE(first.generation, second.generation);
  kvc_tables other;
  kvc_tables_init(&other);
  other.flags = KVC_TABLES_PAD_VALUE;
  other.pad_value = 3;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_tables",
          [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, &other, e); }, {"padding 3", "padding 0"});
  ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

}  // namespace
}  // namespace kvt
