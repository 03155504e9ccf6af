// Transfers between caches of one process: the received sequence continues as the sender's.
#include <thread>

#include "transfer_fixture.h"

namespace kvt {
namespace {

TEST(Transfer, DecodingGoesOnInEveryGroupAndPageSize) {
  const Bytes expected = Engine::expected({}, 23, 6);
  for (const int page_size : {4, 1, 2, 8, 16}) {
    Engine prefill({.flags = KVC_CACHE_NO_ROLLBACK}), decode({.page_size = page_size, .flags = KVC_CACHE_NO_ROLLBACK});
    const kvc_seq seq = prefill.add();
    prefill.step(seq, 19);
    prefill.step(seq, 4);
    kvc_transfer in = 0, out = 0;
    ASSERT_EQ(decode.receive(23, &in), KVC_OK) << decode.error.message;
    ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
    Ends ends = finish(decode, in, prefill, out);
    ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
    ASSERT_EQ(ends.sent, KVC_OK) << prefill.error.message;
    EXPECT_EQ(ends.in.tokens, 23);
    EXPECT_EQ(ends.out.tokens, 23);
    EXPECT_EQ(ends.in.bytes, ends.out.bytes);
    EXPECT_GT(ends.in.bytes, 0);
    decode.check();
    prefill.check();
    EXPECT_EQ(decode.length(ends.in.sequence), 23);
    EXPECT_EQ(decode.steps(ends.in.sequence, 6), expected) << "pages of " << page_size;
    EXPECT_EQ(prefill.steps(seq, 6), expected);  // and the sender's sequence is as it was
    decode.remove(ends.in.sequence);
    EXPECT_EQ(decode.used_pages(), 0);
    EXPECT_EQ(prefill.poll(out, &ends.out), KVC_ERROR_STALE_ID);
  }
}

TEST(Transfer, LayersLeaveWhileTheStepComputes) {
  Engine prefill, decode;
  const kvc_seq seq = prefill.add();
  prefill.step(seq, 9);
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(20, &in), KVC_OK);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
  kvc_transfer_info sent, received;
  int64_t before = 0;
  std::vector<int64_t> bytes;
  prefill.step(seq, 11, [&](size_t) {
    EXPECT_EQ(prefill.poll(out, &sent), KVC_OK) << prefill.error.message;
    EXPECT_EQ(decode.poll(in, &received), KVC_OK) << decode.error.message;
    bytes.push_back(sent.bytes - before);
    before = sent.bytes;
  });
  // The first poll sends the 9 tokens of all layers, and of its own layer 11 more. A layer that stores nothing sends
  // nothing. The states come with the end of the step.
  ASSERT_EQ(bytes.size(), prefill.layers.size());
  for (size_t layer = 1; layer < bytes.size(); layer++) {
    const bool stores = prefill.layers[layer].kv_layer == 0 && prefill.kinds[layer] != kState;
    EXPECT_EQ(bytes[layer] > 0, stores) << layer;
  }
  const Ends ends = finish(decode, in, prefill, out);
  ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
  ASSERT_EQ(ends.sent, KVC_OK) << prefill.error.message;
  EXPECT_EQ(ends.out.bytes - before, 2 * 5 * 4);  // the states alone
  EXPECT_EQ(decode.steps(ends.in.sequence, 6), Engine::expected({}, 20, 6));
}

TEST(Transfer, AnAbortedForwardIsSentAgain) {
  Engine prefill, decode;
  const kvc_seq seq = prefill.add();
  prefill.step(seq, 6);
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(15, &in), KVC_OK);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK);
  kvc_transfer_info info;
  // Other tokens are computed and sent first.
  const kvc_forward f = prefill.begin(seq, 9);
  Bytes ignored;
  for (size_t layer = 0; layer < prefill.layers.size(); layer++) {
    prefill.run_layer(f, layer, 6, 9, 3, &ignored);
    EXPECT_EQ(prefill.poll(out, &info), KVC_OK);
    EXPECT_EQ(decode.poll(in, &info), KVC_OK);
  }
  ASSERT_EQ(kvc_forward_abort(prefill.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(prefill.poll(out, &info), KVC_OK);
  EXPECT_EQ(info.tokens, 6);
  prefill.step(seq, 9);
  const Ends ends = finish(decode, in, prefill, out);
  ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
  EXPECT_EQ(decode.steps(ends.in.sequence, 6), Engine::expected({}, 15, 6));
}

TEST(Transfer, TruncatedTokensAreSentAgain) {
  const EngineConfig config{.groups = kFull | kLatent};
  Engine prefill(config), decode(config);
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(15, &in), KVC_OK);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK);
  kvc_transfer_info info;
  prefill.step(seq, 5);
  prefill.step(seq, 8, {}, 7);
  EXPECT_EQ(prefill.poll(out, &info), KVC_OK);
  EXPECT_EQ(info.tokens, 13);
  EXPECT_EQ(decode.poll(in, &info), KVC_OK);
  EXPECT_EQ(info.tokens, 13);
  ASSERT_EQ(prefill.truncate(seq, 5), KVC_OK);
  prefill.step(seq, 10);  // without a poll between
  const Ends ends = finish(decode, in, prefill, out);
  ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
  EXPECT_EQ(decode.steps(ends.in.sequence, 6), Engine::expected(config, 15, 6));
}

TEST(Transfer, WindowsSendOnlyTheirLivePages) {
  const EngineConfig config{.groups = kWindow, .capacity_tokens = 128, .flags = KVC_CACHE_NO_ROLLBACK};
  Engine prefill(config), decode(config);
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(100, &in), KVC_OK) << decode.error.message;
  EXPECT_LE(decode.used_pages(), 3);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
  kvc_transfer_info info;
  for (int i = 0; i < 20; i++) {
    prefill.step(seq, 5);
    EXPECT_EQ(prefill.poll(out, &info), KVC_OK);
  }
  const Ends ends = finish(decode, in, prefill, out);
  ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
  EXPECT_EQ(ends.in.bytes, 8 * 2 * 2 * 16 * 4);  // tokens 92..99: K and V, 2 heads of 16 float32
  EXPECT_EQ(decode.steps(ends.in.sequence, 6), prefill.steps(seq, 6));
  decode.check();
}

TEST(Transfer, OnlyTheTailOfAPrefixTravels) {
  const EngineConfig config{.groups = kFull | kWindow | kLatent};
  for (const int32_t prefix_length : {1, 4, 7, 16, 21}) {
    Engine prefill(config), decode(config);
    const kvc_seq seq = prefill.add(), prefix = decode.add();
    prefill.step(seq, 22);
    decode.step(prefix, prefix_length);
    const int64_t used = decode.used_pages();
    kvc_transfer in = 0, out = 0;
    ASSERT_EQ(decode.receive(22, &in, 0, prefix), KVC_OK) << decode.error.message;
    decode.check();
    ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
    const Ends ends = finish(decode, in, prefill, out);
    ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
    decode.check();
    EXPECT_EQ(decode.steps(prefix, 3), Engine::expected(config, prefix_length, 3));  // as it was
    decode.remove(prefix);
    EXPECT_EQ(decode.steps(ends.in.sequence, 6), Engine::expected(config, 22, 6)) << prefix_length;
    decode.remove(ends.in.sequence);
    EXPECT_EQ(decode.used_pages(), 0);
    EXPECT_GT(used, 0);
  }
}

// Groups with a row for several tokens: chunks, an aborted step and dropped tokens on the way, and a prefix.
TEST(Transfer, RowsOfSeveralTokens) {
  EngineConfig config{.groups = kFull | kRows};
  for (const int32_t tokens : {1, 2, 23, 24}) {
    const Bytes expected = Engine::expected(config, tokens, 6);
    for (const int page_size : {4, 2, 8, 16}) {
      for (const int32_t prefix_length : {0, 5, 16}) {
        if (prefix_length >= tokens) continue;
        Engine prefill(config), decode({.groups = config.groups, .page_size = page_size});
        const kvc_seq seq = prefill.add(), prefix = prefix_length > 0 ? decode.add() : 0;
        if (prefix_length > 0) decode.step(prefix, prefix_length);
        kvc_transfer in = 0, out = 0;
        ASSERT_EQ(decode.receive(tokens, &in, 0, prefix), KVC_OK) << decode.error.message;
        ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
        kvc_transfer_info info;
        const auto poll = [&](size_t) {
          EXPECT_EQ(prefill.poll(out, &info), KVC_OK) << prefill.error.message;
          EXPECT_EQ(decode.poll(in, &info), KVC_OK) << decode.error.message;
        };
        if (tokens > 20) {
          prefill.step(seq, 9, poll);
          const kvc_forward aborted = prefill.begin(seq, 8);
          Bytes ignored;
          for (size_t layer = 0; layer < prefill.layers.size(); layer++) {
            prefill.run_layer(aborted, layer, 9, 8, 3, &ignored);
            poll(layer);
          }
          ASSERT_EQ(kvc_forward_abort(prefill.cache, aborted, nullptr), KVC_OK);
          prefill.step(seq, 3, poll, 5);
          ASSERT_EQ(prefill.truncate(seq, 9), KVC_OK);
        }
        while (prefill.length(seq) < tokens) {
          prefill.step(seq, static_cast<int32_t>(std::min<int64_t>(3, tokens - prefill.length(seq))), poll);
        }
        const Ends ends = finish(decode, in, prefill, out);
        ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
        EXPECT_EQ(ends.in.tokens, tokens);
        EXPECT_EQ(decode.steps(ends.in.sequence, 6), expected)
            << tokens << " tokens, pages of " << page_size << ", prefix " << prefix_length;
        EXPECT_EQ(prefill.steps(seq, 6), expected);
        decode.check();
      }
    }
  }
}

TEST(Transfer, SeveralAtOnceOverOneTransport) {
  Engine prefill, decode;
  std::vector<kvc_seq> seqs;
  std::vector<kvc_transfer> in(3), out(3);
  for (size_t i = 0; i < 3; i++) {
    seqs.push_back(prefill.add());
    ASSERT_EQ(decode.receive(10 + static_cast<int64_t>(i), &in[i]), KVC_OK);
    ASSERT_EQ(prefill.send(seqs[i], decode.describe(in[i]), &out[i]), KVC_OK);
  }
  kvc_transfer_info info;
  for (size_t i = 0; i < 3; i++) {
    prefill.step(seqs[i], 10 + static_cast<int32_t>(i), [&](size_t layer) {
      EXPECT_EQ(prefill.poll(out[layer % 3], &info), KVC_OK) << prefill.error.message;
    });
  }
  for (const size_t i : {2, 0, 1}) {
    const Ends ends = finish(decode, in[i], prefill, out[i]);
    ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
    ASSERT_EQ(ends.sent, KVC_OK) << prefill.error.message;
    EXPECT_EQ(decode.steps(ends.in.sequence, 3), Engine::expected({}, 10 + static_cast<int32_t>(i), 3));
  }
}

// One thread computes, and two poll: those of the sender, and the receiver's.
TEST(Transfer, SidesOnThreadsOfTheirOwn) {
  Engine prefill, decode;
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(60, &in), KVC_OK);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK);
  const auto poll_to_end = [](kvc_cache *cache, kvc_transfer transfer, kvc_transfer_info *info) {
    kvc_transfer_info_init(info);
    while (info->done == 0) {
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_transfer_poll(cache, transfer, info, &error), KVC_OK) << error.message;
      std::this_thread::yield();
    }
  };
  kvc_transfer_info sent, received;
  std::thread sender([&] { poll_to_end(prefill.cache, out, &sent); });
  std::thread receiver([&] { poll_to_end(decode.cache, in, &received); });
  for (int i = 0; i < 12; i++) prefill.step(seq, 5);
  sender.join();
  receiver.join();
  EXPECT_EQ(sent.bytes, received.bytes);
  EXPECT_EQ(decode.steps(received.sequence, 6), Engine::expected({}, 60, 6));
}

TEST(Transfer, WithinOneCache) {
  Engine engine;
  const kvc_seq seq = engine.add();
  engine.step(seq, 17);
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(engine.receive(17, &in), KVC_OK);
  ASSERT_EQ(engine.send(seq, engine.describe(in), &out), KVC_OK);
  const Ends ends = finish(engine, in, engine, out);
  ASSERT_EQ(ends.received, KVC_OK) << engine.error.message;
  EXPECT_EQ(engine.steps(ends.in.sequence, 6), Engine::expected({}, 17, 6));
}

TEST(Transfer, MoreThanThePollsAndBuffersHold) {
  EngineConfig config{.groups = kFull, .page_size = 16, .capacity_tokens = 40000, .max_sequences = 1};
  Engine prefill(config), decode(config);
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  constexpr int64_t kTokens = 38400;
  ASSERT_EQ(decode.receive(kTokens, &in), KVC_OK) << decode.error.message;
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK);
  while (prefill.length(seq) < kTokens) {
    const kvc_forward f = prefill.begin(seq, 64);
    for (int32_t layer = 0; layer < 4; layer++) {  // without attention, which takes long
      Tensor k(DType::kF32, {64, 2, 16}), v(DType::kF32, {64, 2, 16});
      Engine::fill(&k, prefill.length(seq), layer + 10);
      Engine::fill(&v, prefill.length(seq), layer + 20);
      kvc_append_args args;
      kvc_append_args_init(&args);
      args.k = k.dl();
      if (layer != 3) args.v = v.dl();
      ASSERT_EQ(kvc_forward_append(prefill.cache, f, layer, &args, &prefill.error), KVC_OK) << prefill.error.message;
    }
    ASSERT_EQ(kvc_forward_end(prefill.cache, f, nullptr), KVC_OK);
  }
  const Ends ends = finish(decode, in, prefill, out);
  ASSERT_EQ(ends.received, KVC_OK) << decode.error.message;
  EXPECT_GT(ends.in.bytes, 16 << 20);
  EXPECT_EQ(decode.step(ends.in.sequence, 2), prefill.step(seq, 2));
}

}  // namespace
}  // namespace kvt
