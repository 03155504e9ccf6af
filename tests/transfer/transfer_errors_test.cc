// Transfers that are refused or fail: both caches are as they were, and nothing leaks.
#include "transfer_fixture.h"

namespace kvt {
namespace {

bool has(const kvc_error &error, const char *text) {
  return std::string(error.message).find(text) != std::string::npos;
}

// A transfer whose two sides are open, with some tokens sent.
struct Open {
  Engine prefill, decode;
  kvc_seq seq = 0;
  kvc_transfer in = 0, out = 0;
  kvc_transfer_info info;

  explicit Open(int32_t timeout_ms = 0, int32_t tokens = 12) {
    seq = prefill.add();
    prefill.step(seq, tokens);
    EXPECT_EQ(decode.receive(20, &in, timeout_ms), KVC_OK) << decode.error.message;
    EXPECT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK) << prefill.error.message;
    EXPECT_EQ(prefill.poll(out, &info), KVC_OK);
    EXPECT_EQ(decode.poll(in, &info), KVC_OK);
    EXPECT_EQ(info.tokens, 12);
  }
  kvc_status poll_until_it_ends(Engine &engine, kvc_transfer transfer) {
    kvc_status status = KVC_OK;
    for (info.done = 0; status == KVC_OK && info.done == 0;) status = engine.poll(transfer, &info);
    return status;
  }
  void check_receiver_is_empty() {
    EXPECT_EQ(decode.used_pages(), 0);
    decode.check();
    EXPECT_EQ(decode.poll(in, &info), KVC_ERROR_STALE_ID);
  }
  void check_sender_is_as_before() {
    prefill.check();
    EXPECT_EQ(prefill.poll(out, &info), KVC_ERROR_STALE_ID);
    EXPECT_EQ(prefill.steps(seq, 3), Engine::expected({}, 12, 3));
  }
};

TEST(TransferErrors, OtherLayoutsAndModelsAreShownBeforeAByteMoves) {
  Engine prefill;
  const kvc_seq seq = prefill.add();
  prefill.step(seq, 5);
  const auto refused = [&](const EngineConfig &config, const char *ours, const char *theirs) {
    Engine decode(config);
    kvc_transfer in = 0, out = 0;
    kvc_transfer_info info;
    EXPECT_EQ(decode.receive(5, &in), KVC_OK);
    EXPECT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_ERROR_LAYOUT);
    EXPECT_TRUE(has(prefill.error, ours) && has(prefill.error, theirs)) << prefill.error.message;
    EXPECT_EQ(out, 0u);
    EXPECT_EQ(decode.poll(in, &info), KVC_OK);
    EXPECT_EQ(info.bytes, 0);
  };
  refused({.window = 9}, "window 7", "window 9");
  refused({.latent = DType::kBF16}, "float32", "bfloat16");
  refused({.groups = kAll & ~kState}, "state", "nothing");
  refused({.fingerprint = std::vector<uint8_t>(32, 7)}, "none", "0707070707070707");
}

TEST(TransferErrors, DescriptionsAreChecked) {
  Engine prefill, decode;
  const kvc_seq seq = prefill.add();
  prefill.step(seq, 5);
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(5, &in), KVC_OK);
  const Bytes description = decode.describe(in);
  for (size_t bytes = 0; bytes < description.size(); bytes++) {
    const Bytes shorter(description.begin(), description.begin() + static_cast<int64_t>(bytes));
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_transfer_send(prefill.cache, seq, description.data(), static_cast<int64_t>(bytes), &out, &error),
              KVC_ERROR_CORRUPT)
        << bytes;
  }
  for (size_t bit = 0; bit < 8 * description.size(); bit++) {
    Bytes changed = description;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const kvc_status status = prefill.send(seq, changed, &out);
    EXPECT_TRUE(status == KVC_ERROR_CORRUPT || (bit / 32 == 2 && status == KVC_ERROR_UNSUPPORTED)) << bit;
  }
  Bytes longer = description;
  longer.push_back(0);
  EXPECT_EQ(prefill.send(seq, longer, &out), KVC_ERROR_CORRUPT);
  EXPECT_EQ(prefill.send(seq, description, &out), KVC_OK);
}

TEST(TransferErrors, Arguments) {
  Engine engine;
  const kvc_seq seq = engine.add();
  kvc_transfer transfer = 0;
  kvc_transfer_info info;
  EXPECT_EQ(engine.poll(1, &info), KVC_ERROR_STALE_ID);
  EXPECT_EQ(kvc_transfer_cancel(engine.cache, 1, &engine.error), KVC_ERROR_STALE_ID);
  EXPECT_EQ(engine.receive(0, &transfer), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(engine.receive(-1, &transfer), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(engine.receive(int64_t{1} << 40, &transfer), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(engine.receive(4, &transfer, -1), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(engine.receive(4, &transfer, 3600001), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_EQ(engine.receive(4, &transfer, 0, seq), KVC_ERROR_UNSUPPORTED);  // a group of states
  EXPECT_EQ(engine.receive(4, &transfer, 0, 77), KVC_ERROR_STALE_ID);
  EXPECT_EQ(engine.receive(2000, &transfer), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(engine.used_pages(), 0);
  ASSERT_EQ(engine.receive(4, &transfer), KVC_OK);
  EXPECT_EQ(engine.poll(transfer + 1, &info), KVC_ERROR_STALE_ID);
  int64_t bytes = 0;
  char small[16];
  EXPECT_EQ(kvc_transfer_describe(engine.cache, transfer, nullptr, 0, &bytes, nullptr), KVC_OK);
  EXPECT_GT(bytes, 100);
  EXPECT_EQ(kvc_transfer_describe(engine.cache, transfer, small, 16, &bytes, &engine.error),
            KVC_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(engine.error.required, bytes);
  EXPECT_EQ(kvc_cache_clear(engine.cache, &engine.error), KVC_ERROR_BUSY);
  kvc_transfer out = 0;
  EXPECT_EQ(engine.send(77, engine.describe(transfer), &out), KVC_ERROR_STALE_ID);
  engine.step(seq, 5);
  EXPECT_EQ(engine.send(seq, engine.describe(transfer), &out), KVC_ERROR_OUT_OF_RANGE);
  const kvc_seq other = engine.add();
  ASSERT_EQ(engine.send(other, engine.describe(transfer), &out), KVC_OK);
  EXPECT_EQ(kvc_transfer_describe(engine.cache, out, nullptr, 0, &bytes, &engine.error), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(kvc_transfer_cancel(engine.cache, transfer, nullptr), KVC_OK);
  EXPECT_EQ(kvc_transfer_cancel(engine.cache, out, nullptr), KVC_OK);
  EXPECT_EQ(kvc_cache_clear(engine.cache, &engine.error), KVC_OK) << engine.error.message;
  Engine full({.max_sequences = 1});
  full.add();
  EXPECT_EQ(full.receive(4, &transfer), KVC_ERROR_TOO_MANY_SEQUENCES);
  EXPECT_EQ(full.error.required, 1);
  EXPECT_EQ(full.error.available, 0);
}

TEST(TransferErrors, PrefixesAreChecked) {
  Engine engine({.groups = kFull});
  const kvc_seq prefix = engine.add();
  engine.step(prefix, 8);
  kvc_transfer in = 0;
  EXPECT_EQ(engine.receive(8, &in, 0, prefix), KVC_ERROR_INVALID_ARGUMENT);
  const kvc_forward f = engine.begin(prefix, 1);
  EXPECT_EQ(engine.receive(9, &in, 0, prefix), KVC_ERROR_BUSY);
  EXPECT_EQ(kvc_forward_abort(engine.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(engine.receive(9, &in, 0, prefix), KVC_OK);
}

TEST(TransferErrors, WindowsThatWereFreedAreNoticed) {
  const EngineConfig config{.groups = kWindow, .flags = KVC_CACHE_NO_ROLLBACK};
  Engine prefill(config), decode(config);
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(9, &in), KVC_OK);
  const Bytes description = decode.describe(in);
  // The sender frees pages while the transfer is open, since nothing polls.
  ASSERT_EQ(prefill.send(seq, description, &out), KVC_OK);
  for (int i = 0; i < 8; i++) prefill.step(seq, 5);
  kvc_transfer_info info;
  EXPECT_EQ(prefill.poll(out, &info), KVC_ERROR_EVICTED);
  EXPECT_EQ(prefill.poll(out, &info), KVC_ERROR_STALE_ID);
  // A sender with pages of another size may keep too little.
  Engine coarse({.groups = kWindow, .page_size = 16});
  ASSERT_EQ(coarse.receive(30, &in), KVC_OK);
  const kvc_seq other = prefill.add();
  EXPECT_EQ(prefill.send(other, coarse.describe(in), &out), KVC_ERROR_EVICTED);
  EXPECT_TRUE(has(prefill.error, "from 16 on") && has(prefill.error, "before 24")) << prefill.error.message;
}

TEST(TransferErrors, AStateThatIsGoneIsNoticed) {
  const EngineConfig config{.groups = kState};
  Engine prefill(config), decode(config);
  const kvc_seq seq = prefill.add();
  kvc_transfer in = 0, out = 0;
  ASSERT_EQ(decode.receive(9, &in), KVC_OK);
  ASSERT_EQ(prefill.send(seq, decode.describe(in), &out), KVC_OK);
  prefill.step(seq, 9);
  prefill.step(seq, 1);
  kvc_transfer_info info;
  EXPECT_EQ(prefill.poll(out, &info), KVC_ERROR_ORDER);
}

TEST(TransferErrors, ACancelledReceiverTellsTheSender) {
  Open s;
  EXPECT_EQ(kvc_transfer_cancel(s.decode.cache, s.in, nullptr), KVC_OK);
  s.check_receiver_is_empty();
  EXPECT_EQ(s.poll_until_it_ends(s.prefill, s.out), KVC_ERROR_IO);
  EXPECT_TRUE(has(s.prefill.error, "cancelled")) << s.prefill.error.message;
  s.check_sender_is_as_before();
}

TEST(TransferErrors, ACancelledSenderTellsTheReceiver) {
  Open s;
  EXPECT_EQ(kvc_transfer_cancel(s.prefill.cache, s.out, nullptr), KVC_OK);
  s.check_sender_is_as_before();
  EXPECT_EQ(s.poll_until_it_ends(s.decode, s.in), KVC_ERROR_IO);
  EXPECT_TRUE(has(s.decode.error, "cancelled")) << s.decode.error.message;
  s.check_receiver_is_empty();
}

TEST(TransferErrors, ARemovedSequenceEndsTheTransfer) {
  Open s;
  s.prefill.remove(s.seq);
  EXPECT_EQ(s.prefill.poll(s.out, &s.info), KVC_ERROR_STALE_ID);
  EXPECT_EQ(s.poll_until_it_ends(s.decode, s.in), KVC_ERROR_IO);
  s.check_receiver_is_empty();
}

TEST(TransferErrors, ACacheThatIsDestroyedIsNoticed) {
  Open s;
  s.prefill.owner.reset();
  EXPECT_EQ(s.poll_until_it_ends(s.decode, s.in), KVC_ERROR_IO);
  s.check_receiver_is_empty();
  Open t;
  t.decode.owner.reset();
  EXPECT_EQ(t.poll_until_it_ends(t.prefill, t.out), KVC_ERROR_IO);
  t.check_sender_is_as_before();
}

TEST(TransferErrors, SilentPeersAreGivenUp) {
  Open s(400);
  EXPECT_EQ(s.poll_until_it_ends(s.decode, s.in), KVC_ERROR_IO);
  EXPECT_TRUE(has(s.decode.error, "silent") && has(s.decode.error, "timeout_ms: 400 ms")) << s.decode.error.message;
  s.check_receiver_is_empty();
  Open t(400);
  EXPECT_EQ(t.poll_until_it_ends(t.prefill, t.out), KVC_ERROR_IO);
  EXPECT_TRUE(has(t.prefill.error, "silent")) << t.prefill.error.message;
  t.check_sender_is_as_before();
  // No sender came at all.
  Engine alone;
  kvc_transfer in = 0;
  ASSERT_EQ(alone.receive(8, &in, 20), KVC_OK);
  kvc_transfer_info info;
  kvc_status status = KVC_OK;
  while (status == KVC_OK) status = alone.poll(in, &info);
  EXPECT_EQ(status, KVC_ERROR_IO);
  EXPECT_EQ(alone.used_pages(), 0);
}

TEST(TransferErrors, PeersThatPollAreNotSilent) {
  Open s(1000);
  // Neither side has anything to send for several times timeout_ms.
  for (int i = 0; i < 60; i++) {
    usleep(40000);
    ASSERT_EQ(s.prefill.poll(s.out, &s.info), KVC_OK) << s.prefill.error.message;
    ASSERT_EQ(s.decode.poll(s.in, &s.info), KVC_OK) << s.decode.error.message;
  }
  s.prefill.step(s.seq, 8);
  const Ends ends = finish(s.decode, s.in, s.prefill, s.out);
  EXPECT_EQ(ends.received, KVC_OK) << s.decode.error.message;
}

TEST(TransferErrors, ADescriptionIsForOneSender) {
  Open s;
  const kvc_seq other = s.prefill.add();
  s.prefill.step(other, 20, {}, 5);
  kvc_transfer second = 0;
  ASSERT_EQ(s.prefill.send(other, s.decode.describe(s.in), &second), KVC_OK);
  EXPECT_EQ(s.prefill.poll(second, &s.info), KVC_OK);
  EXPECT_EQ(s.decode.poll(s.in, &s.info), KVC_OK);
  EXPECT_EQ(s.info.tokens, 12);
  s.prefill.step(s.seq, 8);
  const Ends ends = finish(s.decode, s.in, s.prefill, s.out);
  ASSERT_EQ(ends.received, KVC_OK) << s.decode.error.message;
  EXPECT_EQ(s.decode.steps(ends.in.sequence, 3), Engine::expected({}, 20, 3));
}

TEST(TransferErrors, UnusableCaches) {
  Engine engine;
  kvc_transport transport;
  kvc_transport_init(&transport);
  EXPECT_EQ(kvc_cache_set_transport(engine.cache, &transport, &engine.error), KVC_ERROR_INVALID_ARGUMENT);
  transport.version = 99;
  EXPECT_EQ(kvc_cache_set_transport(engine.cache, &transport, &engine.error), KVC_ERROR_UNSUPPORTED);
  kvc_transfer in = 0;
  ASSERT_EQ(engine.receive(4, &in), KVC_OK);
  EXPECT_EQ(kvc_transfer_cancel(engine.cache, in, nullptr), KVC_OK);
  // It has the transport of its first transfer now. Tests of combinations meet caches without pools and with encoders.
  kvc_transport other;
  kvc_transport_init(&other);
  other.name = "other";
  other.max_message_bytes = 65536;
  other.address = [](void *, void *, int64_t) -> int64_t { return -1; };
  other.connect = [](void *, const void *, int64_t, uint64_t *, kvc_error *) -> int32_t {
    return KVC_TRANSPORT_FAILED;
  };
  other.flush = [](void *, uint64_t, int64_t) { return int32_t{KVC_TRANSPORT_OK}; };
  other.disconnect = [](void *, uint64_t) {};
  other.send = [](void *, uint64_t, const void *, int64_t, const void *, int64_t, uint64_t, kvc_error *) -> int32_t {
    return KVC_TRANSPORT_FAILED;
  };
  other.poll = [](void *, kvc_transport_event *, int64_t) -> int64_t { return 0; };
  other.close = [](void *) {};
  EXPECT_EQ(kvc_cache_set_transport(engine.cache, &other, &engine.error), KVC_ERROR_ORDER);
  EXPECT_TRUE(has(engine.error, "memory")) << engine.error.message;
  // A transport with another name, and one without an address.
  Engine elsewhere;
  ASSERT_EQ(kvc_cache_set_transport(elsewhere.cache, &other, &elsewhere.error), KVC_OK) << elsewhere.error.message;
  EXPECT_EQ(kvc_cache_set_transport(elsewhere.cache, &other, &elsewhere.error), KVC_ERROR_ORDER);
  ASSERT_EQ(engine.receive(4, &in), KVC_OK);
  const kvc_seq seq = elsewhere.add();
  kvc_transfer out = 0;
  EXPECT_EQ(elsewhere.send(seq, engine.describe(in), &out), KVC_ERROR_LAYOUT);
  EXPECT_TRUE(has(elsewhere.error, "memory") && has(elsewhere.error, "other")) << elsewhere.error.message;
  EXPECT_EQ(elsewhere.receive(4, &in), KVC_ERROR_IO);
  EXPECT_EQ(elsewhere.used_pages(), 0);
}

}  // namespace
}  // namespace kvt
