// Transfers between caches of several ranks of tensor parallelism: heads are cut again on the way.
#include <algorithm>
#include <memory>

#include "transfer_fixture.h"

namespace kvt {
namespace {

// One engine for each rank.
struct Ranks {
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<kvc_seq> sequences;

  Ranks(EngineConfig config, int size) {
    config.tp_size = size;
    for (config.tp_rank = 0; config.tp_rank < size; config.tp_rank++) {
      engines.push_back(std::make_unique<Engine>(config));
      sequences.push_back(0);
    }
  }
  size_t size() const { return engines.size(); }
  Engine &operator[](size_t rank) { return *engines[rank]; }
  // Computes a prompt on every rank.
  void prefill(int32_t tokens) {
    for (size_t r = 0; r < size(); r++) {
      sequences[r] = engines[r]->add();
      for (int32_t done = 0; done < tokens; done += 8) engines[r]->step(sequences[r], std::min(8, tokens - done));
    }
  }
};

// Gives the description of each receiver to each sender, as an engine does, and polls until all are done. Returns how
// many of the senders' transfers had anything to send.
int move(Ranks &from, Ranks &to, int32_t tokens) {
  struct Open {
    Engine *engine;
    kvc_transfer transfer;
    size_t rank;
    bool receives;
  };
  std::vector<Open> open;
  int sent = 0;
  for (size_t r = 0; r < to.size(); r++) {
    kvc_transfer in = 0;
    EXPECT_EQ(to[r].receive(tokens, &in), KVC_OK) << to[r].error.message;
    open.push_back({&to[r], in, r, true});
    const Bytes description = to[r].describe(in);
    for (size_t s = 0; s < from.size(); s++) {
      kvc_transfer out = 0;
      EXPECT_EQ(from[s].send(from.sequences[s], description, &out), KVC_OK) << from[s].error.message;
      open.push_back({&from[s], out, s, false});
    }
  }
  for (int tries = 0; !open.empty() && tries < 100000; tries++) {
    const size_t at = static_cast<size_t>(tries) % open.size();
    const Open &one = open[at];
    kvc_transfer_info info;
    const kvc_status status = one.engine->poll(one.transfer, &info);
    EXPECT_EQ(status, KVC_OK) << one.engine->error.message;
    if (status == KVC_OK && info.done == 0) continue;
    if (one.receives) to.sequences[one.rank] = info.sequence;
    EXPECT_EQ(info.tokens, tokens);
    sent += !one.receives && info.bytes > 0;
    open.erase(open.begin() + static_cast<ptrdiff_t>(at));
  }
  EXPECT_TRUE(open.empty());
  return sent;
}

void expect_decodes(Ranks &ranks, int32_t tokens) {
  for (size_t r = 0; r < ranks.size(); r++) {
    ranks[r].check();
    ASSERT_NE(ranks.sequences[r], 0u);
    EXPECT_EQ(ranks[r].steps(ranks.sequences[r], 5), Engine::expected(ranks[r].config, tokens, 5))
        << "rank " << r << " of " << ranks.size();
  }
}

constexpr int kNoStates = kAll & ~kState;

TEST(TransferRanks, HeadsAreCutAgain) {
  // {kv heads, sending ranks, receiving ranks, transfers of the senders}
  const int cases[][4] = {{2, 2, 1, 2}, {2, 1, 2, 2}, {4, 2, 4, 4}, {4, 4, 2, 4},
                          {4, 1, 4, 4}, {6, 2, 3, 4}, {6, 3, 2, 4}};
  for (const auto &[heads, senders, receivers, transfers] : cases) {
    SCOPED_TRACE(testing::Message() << heads << " heads from " << senders << " to " << receivers);
    const EngineConfig config{.groups = kNoStates, .flags = KVC_CACHE_NO_ROLLBACK, .kv_heads = heads};
    EngineConfig other = config;
    other.page_size = 2;
    Ranks from(config, senders), to(other, receivers);
    from.prefill(21);
    EXPECT_EQ(move(from, to, 21), transfers);
    expect_decodes(to, 21);
  }
}

TEST(TransferRanks, OfRanksWithTheSameHeadOneSendsIt) {
  // With 4 ranks and 2 heads, ranks 0 and 1 have head 0. The one row of MLA is on every rank.
  const int cases[][3] = {{4, 1, 2}, {1, 4, 4}, {4, 2, 2}, {2, 4, 4}, {4, 4, 4}};
  for (const auto &[senders, receivers, transfers] : cases) {
    SCOPED_TRACE(testing::Message() << "from " << senders << " to " << receivers);
    const EngineConfig config{.groups = kFull | kLatent, .flags = KVC_CACHE_NO_ROLLBACK};
    Ranks from(config, senders), to(config, receivers);
    from.prefill(13);
    EXPECT_EQ(move(from, to, 13), transfers);
    expect_decodes(to, 13);
  }
}

TEST(TransferRanks, StatesTravelBetweenEqualRanks) {
  Ranks from({.kv_heads = 2}, 2), to({.page_size = 2, .kv_heads = 2}, 2), one({}, 1);
  from.prefill(9);
  EXPECT_EQ(move(from, to, 9), 2);
  expect_decodes(to, 9);
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(one[0].receive(9, &in), KVC_OK);
  EXPECT_EQ(from[0].send(from.sequences[0], one[0].describe(in), &out), KVC_ERROR_LAYOUT);
  EXPECT_NE(std::string(from[0].error.message).find("tp_size 1 and the cache 2"), std::string::npos)
      << from[0].error.message;
}

TEST(TransferRanks, AReceiverWaitsForEveryRank) {
  const EngineConfig config{.groups = kFull, .flags = KVC_CACHE_NO_ROLLBACK, .kv_heads = 4};
  Ranks from(config, 2), to(config, 1);
  from.prefill(6);
  kvc_transfer in = 0, out[2];
  ASSERT_EQ(to[0].receive(6, &in, 200), KVC_OK);
  const Bytes description = to[0].describe(in);
  ASSERT_EQ(from[0].send(from.sequences[0], description, &out[0]), KVC_OK);
  kvc_transfer_info info;
  kvc_status received = KVC_OK;
  for (bool sent = false; received == KVC_OK;) {
    if (!sent) {
      ASSERT_EQ(from[0].poll(out[0], &info), KVC_OK) << from[0].error.message;
    }
    sent = sent || info.done != 0;  // its half is there
    received = to[0].poll(in, &info);
    EXPECT_EQ(info.done, 0);
    usleep(1000);
  }
  EXPECT_EQ(received, KVC_ERROR_IO);
  EXPECT_NE(std::string(to[0].error.message).find("was silent"), std::string::npos) << to[0].error.message;
  EXPECT_EQ(to[0].used_pages(), 0);
  // The rank that comes too late finds no transfer.
  ASSERT_EQ(from[1].send(from.sequences[1], description, &out[1]), KVC_OK);
  kvc_status late = KVC_OK;
  while ((late = from[1].poll(out[1], &info)) == KVC_OK && info.done == 0) to[0].poll(in, &info);
  EXPECT_EQ(late, KVC_ERROR_IO);
}

TEST(TransferRanks, AFailedRankEndsTheTransferOfAll) {
  const EngineConfig config{.groups = kFull, .flags = KVC_CACHE_NO_ROLLBACK, .kv_heads = 4};
  Ranks from(config, 2), to(config, 1);
  from.prefill(4);
  kvc_transfer in = 0, out[2];
  ASSERT_EQ(to[0].receive(8, &in), KVC_OK);
  const Bytes description = to[0].describe(in);
  for (size_t s = 0; s < 2; s++) ASSERT_EQ(from[s].send(from.sequences[s], description, &out[s]), KVC_OK);
  kvc_transfer_info info;
  for (int i = 0; i < 10; i++) {
    for (size_t s = 0; s < 2; s++) ASSERT_EQ(from[s].poll(out[s], &info), KVC_OK) << from[s].error.message;
    ASSERT_EQ(to[0].poll(in, &info), KVC_OK) << to[0].error.message;
    EXPECT_EQ(info.done, 0);
  }
  EXPECT_EQ(info.tokens, 4);
  ASSERT_EQ(kvc_transfer_cancel(from[1].cache, out[1], nullptr), KVC_OK);
  EXPECT_EQ(to[0].poll(in, &info), KVC_ERROR_IO);
  EXPECT_EQ(to[0].used_pages(), 0);
  EXPECT_EQ(from[0].poll(out[0], &info), KVC_ERROR_IO) << "the other sender is told";
}

TEST(TransferRanks, LateTwinsOfASenderAreIgnored) {
  const EngineConfig config{.groups = kFull, .flags = KVC_CACHE_NO_ROLLBACK, .kv_heads = 4};
  Ranks from(config, 2), others(config, 4), to(config, 1);
  from.prefill(5);
  others.prefill(5);
  kvc_transfer in = 0, out[2], twin = 0, other = 0;
  ASSERT_EQ(to[0].receive(5, &in), KVC_OK);
  const Bytes description = to[0].describe(in);
  for (size_t s = 0; s < 2; s++) ASSERT_EQ(from[s].send(from.sequences[s], description, &out[s]), KVC_OK);
  kvc_transfer_info info;
  ASSERT_EQ(from[0].poll(out[0], &info), KVC_OK);
  ASSERT_EQ(to[0].poll(in, &info), KVC_OK);  // rank 0 of 2 is accepted
  ASSERT_EQ(from[0].send(from.sequences[0], description, &twin), KVC_OK);
  ASSERT_EQ(others[1].send(others.sequences[1], description, &other), KVC_OK);
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(from[0].poll(twin, &info), KVC_OK);
    EXPECT_EQ(others[1].poll(other, &info), KVC_OK);
  }
  bool done = false;
  for (int i = 0; !done && i < 10000; i++) {
    for (size_t s = 0; s < 2; s++) from[s].poll(out[s], &info);
    ASSERT_EQ(to[0].poll(in, &info), KVC_OK) << to[0].error.message;
    done = info.done != 0;
  }
  ASSERT_TRUE(done);
  to.sequences[0] = info.sequence;
  expect_decodes(to, 5);
}

TEST(TransferRanks, OtherLayoutsAreRefused) {
  const auto refused = [](const EngineConfig &a, const EngineConfig &b, const char *message) {
    Engine sender(a), receiver(b);
    const kvc_seq seq = sender.add();
    kvc_transfer in = 0, out = 0;
    ASSERT_EQ(receiver.receive(4, &in), KVC_OK);
    EXPECT_EQ(sender.send(seq, receiver.describe(in), &out), KVC_ERROR_LAYOUT);
    EXPECT_NE(std::string(sender.error.message).find(message), std::string::npos) << sender.error.message;
  };
  refused({.groups = kFull, .kv_heads = 4}, {.groups = kFull, .kv_heads = 2}, "2 heads");
  refused({.groups = kFull, .kv_heads = 6}, {.groups = kFull, .kv_heads = 12, .tp_size = 2}, "12 heads");
}

// ---- The config
// ------------------------------------------------------------------------------------------------------

kvc_status create(int kv_heads, int total, int size, int rank, std::string *message, int row = KVC_ROW_KV) {
  ContextPtr context = make_context(1);
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = kv_heads;
  layer.num_kv_heads = kv_heads;
  layer.total_kv_heads = total;
  layer.head_dim = 16;
  if (row == KVC_ROW_LATENT) layer.latent_dim = 8, layer.softmax_scale = 1;
  kvc_group_config group;
  kvc_group_config_init(&group);
  group.row = row;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.groups = &group;
  config.num_layers = config.num_groups = 1;
  config.capacity_tokens = 64;
  config.tp_size = size;
  config.tp_rank = rank;
  kvc_cache *cache = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_cache_create(context.get(), &config, &cache, &error);
  CachePtr owner(cache);
  *message = error.message;
  return status;
}

TEST(TransferRanks, TheConfigIsChecked) {
  std::string message;
  const int right[][4] = {{2, 0, 0, 0}, {2, 2, 1, 0}, {2, 0, 4, 3}, {2, 8, 4, 3}, {1, 2, 4, 3}, {1, 1, 4, 0}};
  for (const auto &[heads, total, size, rank] : right) {
    EXPECT_EQ(create(heads, total, size, rank, &message), KVC_OK) << message;
  }
  EXPECT_EQ(create(1, 0, 8, 7, &message, KVC_ROW_LATENT), KVC_OK) << message;
  EXPECT_EQ(create(2, 4, 4, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "kvc_cache_create: layer 0: no rank of 4 has num_kv_heads 2 of total_kv_heads 4");
  EXPECT_EQ(create(2, 4, 0, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create(1, 3, 2, 0, &message), KVC_ERROR_INVALID_ARGUMENT);  // 3 heads cannot be halved
  EXPECT_EQ(create(1, 2, 3, 0, &message), KVC_ERROR_INVALID_ARGUMENT);  // 3 ranks cannot share 2 heads
  EXPECT_EQ(create(1, -1, 1, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create(32, 0, 4096, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create(1, 0, 4097, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "kvc_cache_create: tp_size 4097 is outside 1..4096");
  EXPECT_EQ(create(1, 0, -1, 0, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create(1, 0, 2, 2, &message), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(message, "kvc_cache_create: tp_rank 2 is outside 0..1");
  EXPECT_EQ(create(1, 0, 2, -1, &message), KVC_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace kvt
