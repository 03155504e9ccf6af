// Graphs: steps that exceed their capacity, and invalid ids. tests/tables/forward_graph_test.cc tests what replays
// compute.
#include <string>

#include "fixture.h"

namespace kvt {
namespace {

TEST(Graphs, NullAndStructs) {
  World w;
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  kvc_forward graph = 0;
  const Statuses null{KVC_ERROR_NULL_ARGUMENT};
  refused(nullptr, null, "kvc_graph_create",
          [&](kvc_error *e) { return kvc_graph_create(nullptr, &config, &graph, e); }, {"cache"});
  refused(w.cache, null, "kvc_graph_create",
          [&](kvc_error *e) { return kvc_graph_create(w.cache, nullptr, &graph, e); }, {"config"});
  refused(w.cache, null, "kvc_graph_create",
          [&](kvc_error *e) { return kvc_graph_create(w.cache, &config, nullptr, e); }, {"graph"});
  refused(nullptr, null, "kvc_graph_destroy", [&](kvc_error *e) { return kvc_graph_destroy(nullptr, 1, e); },
          {"cache"});
  refused(w.cache, {KVC_ERROR_STALE_ID}, "kvc_graph_destroy",
          [&](kvc_error *e) { return kvc_graph_destroy(w.cache, 0, e); });
  config.struct_size = 8;
  refused(w.cache, {KVC_ERROR_STRUCT_SIZE}, "kvc_graph_create",
          [&](kvc_error *e) { return kvc_graph_create(w.cache, &config, &graph, e); }, {"8"});
}

TEST(Graphs, RefusesWhatItHasNoRoomFor) {
  World w;
  const kvc_forward graph = make_graph(w.cache, 2, 6);
  kvc_forward f = 0;
  const auto begin = [&](const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths, kvc_status status,
                         const std::vector<std::string> &says) {
    const kvc_batch batch = batch_of(seqs, lengths, graph);
    refused(
        w.cache, {status}, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &batch, e); },
        says);
    return refused(
        w.cache, {status}, "kvc_forward_begin",
        [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); }, says);
  };
  kvc_error error = begin({w.seq, w.forked, 0}, {1, 1, 0}, KVC_ERROR_BATCH_TOO_LARGE, {"3 rows", "graph's", "2"});
  EXPECT_EQ(error.required, 3);
  EXPECT_EQ(error.available, 2);
  error = begin({w.seq, w.forked}, {4, 3}, KVC_ERROR_BATCH_TOO_LARGE, {"7 tokens", "graph's", "6"});
  EXPECT_EQ(error.index, 1);
  EXPECT_EQ(error.required, 7);
  EXPECT_EQ(error.available, 6);
  std::vector<kvc_seq> one{w.seq}, other{w.forked};
  std::vector<int32_t> length{1};
  const kvc_batch first = batch_of(one, length, graph);
  ASSERT_EQ(kvc_forward_begin(w.cache, &first, nullptr, &f, nullptr), KVC_OK);
  begin(other, length, KVC_ERROR_BUSY, {"open in graph"});
  refused(w.cache, {KVC_ERROR_BUSY}, "kvc_graph_destroy",
          [&](kvc_error *e) { return kvc_graph_destroy(w.cache, graph, e); });
  refused(w.cache, {KVC_ERROR_BUSY}, "kvc_cache_clear", [&](kvc_error *e) { return kvc_cache_clear(w.cache, e); });
  ASSERT_EQ(kvc_forward_abort(w.cache, graph, nullptr), KVC_OK);

  // The step of a graph does not count towards max_open_forwards (2). Ids of other forwards are no graphs.
  kvc_seq more = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &more, nullptr), KVC_OK);
  const kvc_forward plain = w.begin({w.seq}, {1}), second = w.begin({w.forked}, {1});
  std::vector<kvc_seq> third{more};
  const kvc_batch in_graph = batch_of(third, length, graph);
  ASSERT_EQ(kvc_forward_begin(w.cache, &in_graph, nullptr, &f, nullptr), KVC_OK);
  for (const kvc_forward id : {plain, kvc_forward{77}}) {
    const kvc_batch wrong = batch_of(other, length, id);
    refused(w.cache, {KVC_ERROR_STALE_ID}, "kvc_forward_begin",
            [&](kvc_error *e) { return kvc_forward_begin(w.cache, &wrong, nullptr, &f, e); }, {"no graph"});
    refused(w.cache, {KVC_ERROR_STALE_ID}, "kvc_graph_destroy",
            [&](kvc_error *e) { return kvc_graph_destroy(w.cache, id, e); });
  }
  for (const kvc_forward id : {plain, second, graph}) ASSERT_EQ(kvc_forward_abort(w.cache, id, nullptr), KVC_OK);

  // A row with more pages than the graph's tables have columns. The step is valid, but its tables are refused.
  kvc_graph_config narrow;
  kvc_graph_config_init(&narrow);
  narrow.max_pages_per_row = 2;
  kvc_forward columns = 0;
  ASSERT_EQ(kvc_graph_create(w.cache, &narrow, &columns, nullptr), KVC_OK);
  const kvc_batch wide = batch_of(one, length, columns);
  ASSERT_EQ(kvc_forward_begin(w.cache, &wide, nullptr, &f, nullptr), KVC_OK);
  kvc_tables tables;
  kvc_tables_init(&tables);
  error = refused(w.cache, {KVC_ERROR_BATCH_TOO_LARGE}, "kvc_forward_tables",
                  [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, &tables, e); }, {"pages"});
  EXPECT_EQ(error.available, 2);
  EXPECT_EQ(error.required, 6);
}

TEST(Graphs, ConfigsAndTheirNumber) {
  World w;
  kvc_forward graph = 0;
  kvc_graph_config config;
  const auto create = [&](kvc_error *e) { return kvc_graph_create(w.cache, &config, &graph, e); };
  for (int32_t kvc_graph_config::*field :
       {&kvc_graph_config::max_sequences, &kvc_graph_config::max_tokens, &kvc_graph_config::max_pages_per_row}) {
    for (const int32_t value : {-1, (1 << 26) + 1}) {
      kvc_graph_config_init(&config);
      config.*field = value;
      refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_graph_create", create, {std::to_string(value)});
    }
  }
  kvc_graph_config_init(&config);
  config.max_sequences = 7;
  refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_graph_create", create, {"max_sequences 7", "0..6"});
  kvc_graph_config_init(&config);
  config.flags = 4;
  refused(w.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_graph_create", create, {"flags 0x4"});
  EXPECT_EQ(graph, 0u);
  kvc_graph_config_init(&config);
  std::vector<kvc_forward> graphs(64);
  for (kvc_forward &g : graphs) ASSERT_EQ(kvc_graph_create(w.cache, &config, &g, nullptr), KVC_OK);
  refused(w.cache, {KVC_ERROR_TOO_MANY_FORWARDS}, "kvc_graph_create", create, {"64 graphs"});
  ASSERT_EQ(kvc_graph_destroy(w.cache, graphs[9], nullptr), KVC_OK);
  ASSERT_EQ(kvc_graph_create(w.cache, &config, &graph, nullptr), KVC_OK);
  EXPECT_NE(graph, graphs[9]) << "the id of a graph that is gone";
  refused(w.cache, {KVC_ERROR_STALE_ID}, "kvc_graph_destroy",
          [&](kvc_error *e) { return kvc_graph_destroy(w.cache, graphs[9], e); });
  World other;
  refused(other.cache, {KVC_ERROR_STALE_ID}, "kvc_graph_destroy",
          [&](kvc_error *e) { return kvc_graph_destroy(other.cache, graph, e); });
  const kvc_append_args append = LayerTensors(w.spec.layers[0], 1).append_args();
  refused(other.cache, {KVC_ERROR_STALE_ID}, "kvc_forward_append",
          [&](kvc_error *e) { return kvc_forward_append(other.cache, graph, 0, &append, e); });
}

}  // namespace
}  // namespace kvt
