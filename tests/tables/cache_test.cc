// Tables of a cache's forwards, compared with the definitions: every kind of group, streams and trees, in random steps
// with forks and truncates. kvc_seq_pages and the slot mappings give the slots. In a graph the tables are read through
// what the first step returned: addresses and shapes never change, and unused parts are inert.
#include <map>
#include <random>

#include "fixture.h"
#include "reader.h"

namespace kvt {
namespace {

kvc_tables ask(kvc_cache *cache, kvc_forward forward, int32_t group, int32_t part = KVC_TABLES_WHOLE,
               uint32_t flags = 0, int32_t pad = 0) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.part = part;
  tables.flags = flags;
  tables.pad_value = pad;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_tables(cache, forward, group, &tables, &error), KVC_OK) << error.message;
  return tables;
}

// A sequence as the test models it: slots of its tokens in each group (of freed pages too), and uncommitted nodes.
struct Known {
  std::vector<Slots> slots;
  std::vector<int32_t> parents, depths;
  int64_t length = 0, sinks = 0, stream = 0;
};

struct CacheTables : testing::TestWithParam<std::tuple<int, bool>> {
  int page = std::get<0>(GetParam());
  kvc_forward graph = 0;
  std::map<std::tuple<int32_t, int32_t, uint32_t>, kvc_tables> recorded;  // of a graph: of each table the first step's
  CacheSpec spec;
  ContextPtr context = make_context();
  CachePtr owner;
  kvc_cache *cache = nullptr;
  std::map<kvc_seq, Known> known;
  std::mt19937 rng{static_cast<uint32_t>(page)};

  CacheTables() {
    spec.page_size = page;
    spec.max_sequences = 12;
    spec.max_batch_tokens = 64;
    spec.rollback = 8;
    spec.max_tree_nodes = 24;
    spec.streaming = true;
    spec.groups = {{0, 3000}, {11, 3000}, {0, 3000, 7}};
    for (int g = 0; g < 3; g++) spec.layers.push_back(LayerSpec{g, 2, 1, 4});
    spec.layers.erase(spec.layers.begin());
    owner = make_cache(context.get(), spec);
    cache = owner.get();
    if (!std::get<1>(GetParam())) return;
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    config.max_sequences = kGraphRows;
    config.max_tokens = kGraphTokens;
    config.max_pages_per_row = 1000;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_graph_create(cache, &config, &graph, &error), KVC_OK) << error.message;
  }
  static constexpr int kGraphRows = 10;
  static constexpr int32_t kGraphTokens = 60;

  // A table of the step. In a graph it is what a kernel sees that was recorded in the first step.
  kvc_tables look(kvc_forward f, int32_t group, int32_t part, uint32_t flags = 0, int32_t pad = 0) {
    const kvc_tables now = ask(cache, f, group, part, flags, pad);
    if (!graph) return now;
    const auto [at, fresh] = recorded.try_emplace({group, part, flags}, now);
    kvc_tables then = at->second;
    const auto old_tensors = tensors(then), new_tensors = tensors(now);
    for (size_t i = 0; i < old_tensors.size(); i++) {
      EXPECT_EQ(old_tensors[i]->data, new_tensors[i]->data) << "tensor " << i << " moved";
      EXPECT_EQ(old_tensors[i]->ndim, new_tensors[i]->ndim);
      for (int d = 0; d < old_tensors[i]->ndim; d++) EXPECT_EQ(old_tensors[i]->shape[d], new_tensors[i]->shape[d]);
    }
    EXPECT_EQ(then.max_seqlen_q, now.max_seqlen_q);
    EXPECT_EQ(then.max_seqlen_k, now.max_seqlen_k);
    EXPECT_EQ(then.causal, now.causal);
    EXPECT_EQ(static_cast<uint64_t>(int_at(then.generation_word, 0)), now.generation);
    EXPECT_GT(now.generation, 0u);
    then.num_rows = static_cast<int32_t>(then.cache_seqlens.shape[0]);
    for (int32_t r = now.num_rows; r < then.num_rows; r++) {
      EXPECT_EQ(int_at(then.cache_seqlens, r), 0);
      EXPECT_EQ(int_at(then.batch_rows, r), -1);
    }
    for (int64_t i = int_at(then.indptr, then.num_rows); i < now.num_pages + 64; i++) {
      EXPECT_EQ(int_at(then.indices, i), pad);
    }
    return then;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); }
  kvc_seq add() {
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
    known[seq].slots.resize(3);
    return seq;
  }
  bool sees(const Known &k, int group, int64_t query, int64_t key) const {
    if (group == 1) return key > query - 11;
    if (group == 2) return key / 7 == query / 7;
    return k.stream == 0 || key < k.sinks || key > query - (k.stream - k.sinks);
  }
  // The windows that a kernel gets for rows of several queries, if all rows agree.
  int64_t kernel_window(int group, const std::vector<kvc_seq> &seqs) const {
    if (group == 1) return 11;
    for (const kvc_seq seq : seqs) {
      if (group == 0 && seq && known.at(seq).stream) return known.at(seq).stream - known.at(seq).sinks;
    }
    return 0;
  }

  // A step of rows (sequence or 0, tokens), with trees if parents are given; compares the tables of every group.
  void step(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths,
            const std::vector<int32_t> &parents) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    batch.tree_parents = parents.empty() ? nullptr : parents.data();
    batch.graph = graph;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    for (const kvc_seq seq : seqs) {
      if (seq) relocate(seq);  // begin may have copied a shared page
    }
    for (int group = 0; group < 3; group++) {
      const kvc_tables tokens = look(f, group, parents.empty() ? KVC_TABLES_WHOLE : KVC_TABLES_PREFIX);
      size_t token = 0;
      for (size_t i = 0; i < seqs.size(); i++) {
        for (int t = 0; t < lengths[i]; t++, token++) {
          const int64_t slot = int_at(tokens.slot_mapping, static_cast<int64_t>(token));
          if (seqs[i] == 0) {
            EXPECT_EQ(slot, -1);
            continue;
          }
          Known &k = known[seqs[i]];
          k.slots[static_cast<size_t>(group)].push_back(slot);
          if (group > 0 || parents.empty() || parents[token] == KVC_TREE_NONE) continue;
          k.parents.push_back(parents[token]);
          k.depths.push_back(parents[token] < 0 ? 0 : k.depths[static_cast<size_t>(parents[token])] + 1);
        }
      }
      compare(f, group, seqs, lengths, !parents.empty());
      if (HasFatalFailure()) return;
    }
    // Tables that a device may replay have the sizes of the graph.
    const int64_t sizes = graph && test_device().device_type == kDLCUDA ? kGraphTokens : total;
    for (size_t l = 0; l < spec.layers.size(); l++) {
      LayerTensors t(spec.layers[l], sizes);
      const kvc_append_args args = t.append_args();
      ASSERT_EQ(kvc_forward_append(cache, f, static_cast<int32_t>(l), &args, nullptr), KVC_OK);
    }
    if (graph) {
      EXPECT_EQ(f, graph);
      check_tokens(seqs.size(), total);
    }
    ASSERT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
    for (const auto &[key, tables] : recorded) EXPECT_EQ(int_at(tables.generation_word, 0), 0) << "after the step";
    for (size_t i = 0; i < seqs.size(); i++) {
      if (seqs[i] && known[seqs[i]].parents.empty()) known[seqs[i]].length += lengths[i];
      if (seqs[i]) check_pages(seqs[i]);
    }
  }
  // In a graph, tokens and rows that the step does not have are inert.
  void check_tokens(size_t rows, int64_t total) {
    kvc_forward_info info;
    kvc_forward_info_init(&info);
    ASSERT_EQ(kvc_forward_get_info(cache, graph, &info, nullptr), KVC_OK);
    EXPECT_EQ(info.num_tokens, total);
    EXPECT_EQ(info.positions.shape[0], 60);
    EXPECT_EQ(info.last_rows.shape[0], kGraphRows);
    for (const auto &[key, t] : recorded) {
      EXPECT_EQ(t.positions.data, info.positions.data);
      EXPECT_EQ(t.last_rows.data, info.last_rows.data);
      EXPECT_EQ(t.slot_mapping.shape[0], 60);
      for (int64_t i = total; i < 60; i++) {
        ASSERT_EQ(int_at(t.slot_mapping, i), -1);
        ASSERT_EQ(int_at(t.positions, i), 0);
      }
      for (int64_t r = static_cast<int64_t>(rows); r < kGraphRows; r++) ASSERT_EQ(int_at(t.last_rows, r), -1);
    }
  }
  // Slots of committed tokens, by the pages that the sequence has.
  void relocate(kvc_seq seq) {
    Known &k = known[seq];
    for (int group = 0; group < 3; group++) {
      int32_t pages[1024];
      int64_t count = 0;
      ASSERT_EQ(kvc_seq_pages(cache, seq, group, pages, 1024, &count, nullptr), KVC_OK);
      for (int64_t p = 0; p < k.length; p++) {
        if (pages[p / page] >= 0)
          k.slots[static_cast<size_t>(group)][static_cast<size_t>(p)] = int64_t{pages[p / page]} * page + p % page;
      }
    }
  }
  // The tokens of the remaining pages of a sequence have their slots in these pages.
  void check_pages(kvc_seq seq) {
    const Known &k = known[seq];
    for (int group = 0; group < 3; group++) {
      int32_t pages[1024];
      int64_t count = 0;
      ASSERT_EQ(kvc_seq_pages(cache, seq, group, pages, 1024, &count, nullptr), KVC_OK);
      for (int64_t p = 0; p < k.length; p++) {
        const int32_t id = pages[p / page];
        if (id < 0) continue;
        ASSERT_EQ(k.slots[static_cast<size_t>(group)][static_cast<size_t>(p)], int64_t{id} * page + p % page);
      }
    }
  }

  void compare(kvc_forward f, int group, const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths,
               bool trees) {
    std::vector<Slots> wanted;
    std::vector<int64_t> positions;
    for (size_t i = 0; i < seqs.size(); i++) {
      for (int t = 0; t < lengths[i]; t++) {
        wanted.emplace_back();
        positions.push_back(0);
        if (seqs[i] == 0) continue;
        const Known &k = known[seqs[i]];
        const Slots &slots = k.slots[static_cast<size_t>(group)];
        const auto entry = static_cast<int64_t>(slots.size()) - lengths[i] + t;
        const int64_t node = k.parents.empty() ? -1 : entry - k.length;
        const int64_t position = node < 0 ? entry : k.length + k.depths[static_cast<size_t>(node)];
        positions.back() = position;
        for (int64_t p = 0; p < (node < 0 ? entry + 1 : k.length); p++) {
          if (sees(k, group, position, p)) wanted.back().push_back(slots[static_cast<size_t>(p)]);
        }
        for (int64_t a = node; a >= 0; a = k.parents[static_cast<size_t>(a)]) {
          if (sees(k, group, position, k.length + k.depths[static_cast<size_t>(a)]))
            wanted.back().push_back(slots[static_cast<size_t>(k.length + a)]);
        }
      }
    }
    const auto total = static_cast<int64_t>(wanted.size());
    for (const uint32_t flags : {0u, uint32_t{KVC_TABLES_SLOTS}, uint32_t{KVC_TABLES_PAD_VALUE}}) {
      if (graph && flags == KVC_TABLES_PAD_VALUE) continue;  // tables of a graph have one padding value
      const int32_t pad = flags & KVC_TABLES_PAD_VALUE ? 77 : 0;
      std::vector<std::vector<Slots>> seen;
      for (const int32_t part : trees ? std::vector<int32_t>{KVC_TABLES_PREFIX, KVC_TABLES_BRANCHES}
                                      : std::vector<int32_t>{KVC_TABLES_WHOLE}) {
        const kvc_tables t = look(f, group, part, flags, pad);
        seen.push_back(read_tables(t, total, trees || group == 2 ? 0 : kernel_window(group, seqs)));
        std::vector<int64_t> shown = ints(t.positions);
        shown.resize(positions.size());
        EXPECT_EQ(shown, positions);
        for (int64_t r = 0; r < t.num_rows; r++) {
          const int64_t used = (int_at(t.cache_seqlens, r) + t.page_size - 1) / t.page_size;
          ASSERT_TRUE(all_are(graph || pad ? pad : -1, t.block_table, r, used, t.max_pages))
              << "row " << r << ", padded from column " << used;
        }
      }
      for (size_t q = 0; q < wanted.size(); q++) {
        Slots all;
        for (const auto &part : seen) all.insert(all.end(), part[q].begin(), part[q].end());
        std::sort(all.begin(), all.end());
        Slots sorted = wanted[q];
        std::sort(sorted.begin(), sorted.end());
        ASSERT_EQ(all, sorted) << "group " << group << " query " << q << " flags " << flags;
      }
    }
  }
};

TEST_P(CacheTables, PlainRowsWithForksAndTruncates) {
  std::vector<kvc_seq> seqs{add(), add(), add()};
  for (int round = 0; round < 60; round++) {
    std::vector<kvc_seq> rows;
    std::vector<int32_t> lengths;
    for (const kvc_seq seq : seqs) {
      if (below(4) == 0) continue;
      rows.push_back(below(8) == 0 ? 0 : seq);
      lengths.push_back(static_cast<int32_t>(below(3) ? 1 + below(9) : 1));
    }
    step(rows, lengths, {});
    if (HasFailure()) FAIL() << "round " << round;
    if (round % 7 == 3 && seqs.size() < 9) {  // a fork at the end shares all pages but the last one
      const kvc_seq parent = seqs[static_cast<size_t>(below(static_cast<int64_t>(seqs.size())))];
      kvc_seq child = 0;
      ASSERT_EQ(kvc_seq_fork(cache, 1, &parent, nullptr, &child, nullptr, nullptr), KVC_OK);
      known[child] = known[parent];
      seqs.push_back(child);
    }
    if (round % 7 == 5) {
      const kvc_seq seq = seqs[0];
      const int64_t length = std::max<int64_t>(0, known[seq].length - below(4));
      if (kvc_seq_truncate(cache, 1, &seq, &length, nullptr) == KVC_OK) {
        known[seq].length = length;
        for (Slots &slots : known[seq].slots) slots.resize(static_cast<size_t>(length));
      }
    }
  }
}

// Sinks, a hole and the pages of the window; also rows that are not longer than their window.
TEST_P(CacheTables, Streams) {
  std::vector<kvc_seq> seqs{add(), add(), add()};
  for (const kvc_seq seq : seqs) {
    const int64_t sinks = 4, window = 4 + 21;
    ASSERT_EQ(kvc_seq_set_streaming(cache, 1, &seq, &sinks, &window, 0, nullptr), KVC_OK);
    known[seq].sinks = sinks;
    known[seq].stream = window;
  }
  bool streamed = false;
  for (int round = 0; round < 80; round++) {
    std::vector<int32_t> lengths;
    for (size_t i = 0; i < seqs.size(); i++) lengths.push_back(static_cast<int32_t>(below(2) ? 1 + below(11) : 1));
    if (round % 2) lengths[0] = lengths[2] = 1;
    step(seqs, lengths, {});
    if (HasFailure()) FAIL() << "round " << round;
    streamed = streamed || known[seqs[0]].length > 60;
  }
  EXPECT_TRUE(streamed);
}

// Trees of several rounds beside plain rows, in all groups, and over streams; commits move nodes.
TEST_P(CacheTables, Trees) {
  std::vector<kvc_seq> seqs{add(), add(), add()};
  const int64_t sinks = 2, window = 30;
  ASSERT_EQ(kvc_seq_set_streaming(cache, 1, &seqs[2], &sinks, &window, 0, nullptr), KVC_OK);
  known[seqs[2]].sinks = sinks;
  known[seqs[2]].stream = window;
  step({seqs[0]}, {static_cast<int32_t>(1 + below(40))}, {});
  step({seqs[2]}, {1}, {});
  for (int round = 0; round < 80; round++) {
    std::vector<int32_t> lengths, parents;
    for (const kvc_seq seq : seqs) {
      Known &k = known[seq];
      const bool plain = k.parents.empty() && below(3) == 0;
      auto n = static_cast<int32_t>(1 + below(5));
      const auto nodes = static_cast<int32_t>(k.parents.size());
      for (int32_t i = 0; i < n; i++) {
        parents.push_back(plain ? KVC_TREE_NONE : static_cast<int32_t>(below(nodes + i + 1)) - 1);
      }
      lengths.push_back(n);
    }
    step(seqs, lengths, parents);
    if (HasFailure()) FAIL() << "round " << round;
    for (const kvc_seq seq : seqs) {
      Known &k = known[seq];
      if (k.parents.empty() || (below(2) && k.parents.size() < 18)) continue;
      const auto leaf = static_cast<int32_t>(below(static_cast<int64_t>(k.parents.size()) + 1)) - 1;
      ASSERT_EQ(kvc_seq_commit(cache, 1, &seq, &leaf, nullptr, nullptr), KVC_OK);
      k.length += leaf < 0 ? 0 : k.depths[static_cast<size_t>(leaf)] + 1;
      k.parents.clear();
      k.depths.clear();
      for (Slots &slots : k.slots) slots.resize(static_cast<size_t>(k.length));
      relocate(seq);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, CacheTables, testing::Combine(testing::Values(1, 3, 16, 64), testing::Bool()),
                         [](const auto &info) {
                           return "page" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_graph" : "");
                         });

// A chain of drafts needs one table. A tree with branches has no single table.
TEST(ForwardTables, ChainsAreWholeAndTreesAreNot) {
  World w;
  for (const bool chain : {true, false}) {
    const std::vector<int32_t> parents =
        chain ? std::vector<int32_t>{-1, 0, 1, -2, -2} : std::vector<int32_t>{-1, 0, 0, -2, -2};
    const std::vector<kvc_seq> seqs{w.seq, w.forked};
    const int32_t lengths[] = {3, 2};
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths;
    batch.num_sequences = 2;
    batch.tree_parents = parents.data();
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
    kvc_tables tables;
    kvc_tables_init(&tables);
    if (chain) {
      EXPECT_EQ(kvc_forward_tables(w.cache, f, 0, &tables, nullptr), KVC_OK);
      EXPECT_EQ(ints(tables.cache_seqlens), (std::vector<int64_t>{23, 22}));
      EXPECT_EQ(tables.causal, 1u);
    } else {
      refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_tables",
              [&](kvc_error *e) { return kvc_forward_tables(w.cache, f, 0, &tables, e); }, {"branches"});
    }
    ASSERT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
  }
}

// A table of a cross group has all keys of the encoder for every query. A recurrent group has no table.
TEST(ForwardTables, CrossGroups) {
  kvc_layer_config layers[3];
  kvc_group_config groups[3];
  kvc_state_config state;
  kvc_state_config_init(&state);
  state.rank = 1;
  state.shape[0] = 2;
  for (int i = 0; i < 3; i++) {
    kvc_layer_config_init(&layers[i]);
    kvc_group_config_init(&groups[i]);
    layers[i].group = i;
    if (i < 2) layers[i].num_q_heads = layers[i].num_kv_heads = 1, layers[i].head_dim = 4;
  }
  layers[2].num_states = 1;
  layers[2].states = &state;
  groups[1].visibility = KVC_VISIBLE_ENCODER;
  groups[2].row = KVC_ROW_STATE;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.groups = groups;
  config.num_layers = config.num_groups = 3;
  config.page_size = 4;
  config.capacity_tokens = 256;
  ContextPtr context = make_context();
  kvc_cache *cache = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_cache_create(context.get(), &config, &cache, &error), KVC_OK) << error.message;
  const CachePtr owner(cache);
  kvc_seq seqs[3];
  ASSERT_EQ(kvc_seq_add(cache, 3, seqs, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t frames[] = {5, 8}, lengths[] = {2, 3, 1};
  batch.sequences = seqs;
  batch.append_lengths = frames;
  batch.num_sequences = 2;
  batch.encoder_group = 2;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
  const Slots stored = ints(ask(cache, f, 1).slot_mapping);
  refused(cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_tables", [&](kvc_error *e) {
    kvc_tables tables;
    kvc_tables_init(&tables);
    return kvc_forward_tables(cache, f, 0, &tables, e);
  });
  LayerTensors t(LayerSpec{1, 1, 1, 4}, 13);
  const kvc_append_args args = t.append_args();
  ASSERT_EQ(kvc_forward_append(cache, f, 1, &args, &error), KVC_OK) << error.message;
  ASSERT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
  batch.append_lengths = lengths;
  batch.num_sequences = 3;
  batch.encoder_group = 0;
  ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
  const kvc_tables tables = ask(cache, f, 1);
  EXPECT_EQ(tables.causal, 0u);
  EXPECT_EQ(tables.slot_mapping.ndim, 0);
  EXPECT_EQ(ints(tables.last_rows), (std::vector<int64_t>{1, 4, 5}));
  const Slots first(stored.begin(), stored.begin() + 5), second(stored.begin() + 5, stored.end());
  EXPECT_EQ(read_tables(tables, 6, 0), (std::vector<Slots>{first, first, second, second, second, {}}));
  refused(cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_tables",
          [&](kvc_error *e) {
            kvc_tables none;
            kvc_tables_init(&none);
            return kvc_forward_tables(cache, f, 2, &none, e);
          },
          {"recurrent"});
}

}  // namespace
}  // namespace kvt
