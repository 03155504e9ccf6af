// kvc_seq_save and kvc_seq_load: refused calls, damaged bytes, and I/O that fails.
#include <random>

#include "save_fixture.h"

namespace kvt {
namespace {

// A small saved sequence, and a cache that can load it.
struct Saved {
  Chat chat;
  kvc_seq seq = chat.talk();
  Bytes bytes = chat.save(seq);

  kvc_error refuse(const Bytes &changed, const Statuses &statuses, const std::vector<std::string> &mentions = {}) {
    return refuse_in(&chat, changed, statuses, mentions);
  }
  static kvc_error refuse_in(Chat *cache, const Bytes &changed, const Statuses &statuses,
                             const std::vector<std::string> &mentions = {}) {
    kvc_seq loaded = 77;
    const kvc_error error = refused(
        cache->cache, statuses, "kvc_seq_load", [&](kvc_error *e) { return cache->try_load(changed, &loaded, e); },
        mentions);
    EXPECT_EQ(loaded, 77u);
    return error;
  }
};

int64_t header_bytes(const Bytes &bytes) {
  uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 16, sizeof size);
  return size;
}

TEST(SaveErrors, EveryByteOfTheHeaderMatters) {
  Saved s;
  Bytes changed = s.bytes;
  const int64_t size = header_bytes(changed);
  for (int64_t at = 0; at < size; at++) {
    for (const int bit : {static_cast<int>(at % 8), static_cast<int>((at + 5) % 8)}) {
      changed[static_cast<size_t>(at)] ^= static_cast<uint8_t>(1u << bit);
      kvc_seq loaded = 0;
      const kvc_status status = s.chat.try_load(changed, &loaded, nullptr);
      EXPECT_EQ(status, at >= 8 && at < 12 ? KVC_ERROR_UNSUPPORTED : KVC_ERROR_CORRUPT) << at;
      changed[static_cast<size_t>(at)] ^= static_cast<uint8_t>(1u << bit);
    }
  }
  s.refuse(
      [&] {
        Bytes version = s.bytes;
        version[8] = 2;
        return version;
      }(),
      {KVC_ERROR_UNSUPPORTED}, {"version 2"});
}

TEST(SaveErrors, DamagedPayloadsLeaveNothing) {
  Saved s;
  std::mt19937 random(5);
  const auto begin = static_cast<size_t>(header_bytes(s.bytes));
  for (int i = 0; i < 200; i++) {
    Bytes changed = s.bytes;
    changed[begin + random() % (changed.size() - begin)] ^= static_cast<uint8_t>(1u << random() % 8);
    s.refuse(changed, {KVC_ERROR_CORRUPT}, {"checksum"});
  }
}

TEST(SaveErrors, AFailedLoadLeavesTheFreePagesInTheirOrder) {
  Chat chat([](Hybrid *h) { h->config.max_checkpoints = 4; });
  const kvc_seq seq = chat.talk();
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(kvc_seq_checkpoint(chat.cache, 1, &seq, nullptr), KVC_OK);
    chat.step(seq, 1);
  }
  Bytes damaged = chat.save(seq);
  damaged.back() ^= 1;
  uint64_t before = 0, after = 0;
  for (int i = 0; i < 3; i++) {  // two calls restore a reversed order
    ASSERT_EQ(kvc_cache_digest(chat.cache, &before, nullptr), KVC_OK);
    kvc_seq loaded = 0;
    EXPECT_EQ(chat.try_load(damaged, &loaded, nullptr), KVC_ERROR_CORRUPT);
    ASSERT_EQ(kvc_cache_digest(chat.cache, &after, nullptr), KVC_OK);
    EXPECT_EQ(before, after);
  }
}

TEST(SaveErrors, EveryShorterFileIsRefused) {
  Chat chat([](Hybrid *h) { h->config.page_size = 4; });
  const kvc_seq seq = chat.add();
  chat.encode(seq, 2);
  chat.step(seq, 2);
  const Bytes bytes = chat.save(seq);
  const int64_t used = chat.used_pages();
  for (size_t size = 0; size < bytes.size(); size++) {
    kvc_seq loaded = 0;
    EXPECT_EQ(chat.try_load(Bytes(bytes.begin(), bytes.begin() + static_cast<int64_t>(size)), &loaded, nullptr),
              KVC_ERROR_CORRUPT)
        << size;
  }
  EXPECT_EQ(chat.used_pages(), used);
  EXPECT_EQ(kvc_cache_check_invariants(chat.cache, nullptr), KVC_OK);
}

TEST(SaveErrors, OtherLayoutsAndModelsAreShown) {
  Saved s;
  const uint8_t one[32] = {1}, two[32] = {2};
  Chat dtype([](Hybrid *h) { h->layers[kSlidingGroup].dtype = {kDLFloat, 16, 1}; });
  Saved::refuse_in(&dtype, s.bytes, {KVC_ERROR_LAYOUT}, {"\"layer 1: float32", "\"layer 1: float16"});
  Chat window([](Hybrid *h) { h->groups[kSlidingGroup].window_tokens = 8; });
  Saved::refuse_in(&window, s.bytes, {KVC_ERROR_LAYOUT}, {"window 7", "window 8"});
  Chat rope([](Hybrid *h) { h->layers[kChunkedGroup].rope_mode = KVC_ROPE_ON_APPEND; });
  Saved::refuse_in(&rope, s.bytes, {KVC_ERROR_LAYOUT}, {"rope none", "rope append"});
  Chat model([&](Hybrid *h) { h->config.fingerprint = one; });
  Saved::refuse_in(&model, s.bytes, {KVC_ERROR_LAYOUT}, {"none", "0100000000000000"});
  const Bytes of_model = model.save(model.talk());
  Chat other([&](Hybrid *h) { h->config.fingerprint = two; });
  Saved::refuse_in(&other, of_model, {KVC_ERROR_LAYOUT}, {"0100000000000000", "0200000000000000"});
  Chat same([&](Hybrid *h) { h->config.fingerprint = one; });
  same.load(of_model);
}

TEST(SaveErrors, CapacityIsCheckedBeforeAnythingIsTaken) {
  Saved s;
  Chat small([](Hybrid *h) { h->config.capacity_tokens = 16; });
  kvc_seq loaded = 0;
  const kvc_error pages = refused(small.cache, {KVC_ERROR_OUT_OF_PAGES}, "kvc_seq_load",
                                  [&](kvc_error *e) { return small.try_load(s.bytes, &loaded, e); });
  EXPECT_EQ(pages.group, kFullGroup);
  EXPECT_EQ(pages.required, 6);
  EXPECT_EQ(pages.available, 4);
  for (int i = 0; i < 5; i++) s.chat.add();
  const kvc_error sequences = s.refuse(s.bytes, {KVC_ERROR_TOO_MANY_SEQUENCES});
  EXPECT_EQ(sequences.required, 1);
  EXPECT_EQ(sequences.available, 0);
}

TEST(SaveErrors, CallbacksThatFail) {
  Saved s;
  for (int fail_at = 0;; fail_at++) {
    Memory memory;
    memory.fail_at = fail_at;
    kvc_save_args args = save_args(&memory);
    args.section_bytes = 4096;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_save(s.chat.cache, s.seq, &args, nullptr, &error);
    if (memory.calls <= fail_at) {
      EXPECT_EQ(status, KVC_OK);
      EXPECT_EQ(memory.data, s.bytes);
      EXPECT_GT(fail_at, 3) << "a header and several sections";
      break;
    }
    EXPECT_EQ(status, KVC_ERROR_IO);
    EXPECT_NE(std::string(error.message).find("28"), std::string::npos) << error.message;
    const kvc_error once = error;
    EXPECT_EQ(kvc_cache_check_invariants(s.chat.cache, &error), KVC_OK) << once.message;
  }
  const int64_t used = s.chat.used_pages();
  for (int fail_at = 0;; fail_at++) {
    Memory memory;
    memory.data = s.bytes;
    memory.fail_at = fail_at;
    const kvc_load_args args = load_args(&memory);
    kvc_seq loaded = 0;
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_seq_load(s.chat.cache, &args, nullptr, &loaded, nullptr, &error);
    if (memory.calls <= fail_at) {
      EXPECT_EQ(status, KVC_OK);
      break;
    }
    EXPECT_EQ(status, KVC_ERROR_IO);
    EXPECT_EQ(loaded, 0u);
    EXPECT_EQ(s.chat.used_pages(), used) << "a failed load leaks no page";
  }
}

TEST(SaveErrors, APathThatCannotBeCreatedIsAnError) {
  Saved s;
  kvc_save_args args;
  kvc_save_args_init(&args);
  const Folder folder;
  std::ofstream(folder.file("file")) << "not a folder";
  const std::string path = folder.file("file/chat.kvc");
  args.path = path.c_str();
  refused(s.chat.cache, {KVC_ERROR_IO}, "kvc_seq_save",
          [&](kvc_error *e) { return kvc_seq_save(s.chat.cache, s.seq, &args, nullptr, e); });
}

TEST(SaveErrors, SequencesThatCannotBeSaved) {
  World w;
  Memory memory;
  const kvc_save_args args = save_args(&memory);
  const auto refuse = [&](kvc_seq seq, kvc_status status, const std::vector<std::string> &mentions) {
    refused(
        w.cache, {status}, "kvc_seq_save", [&](kvc_error *e) { return kvc_seq_save(w.cache, seq, &args, nullptr, e); },
        mentions);
  };
  refuse(12345, KVC_ERROR_STALE_ID, {"12345"});
  const kvc_forward open = w.begin({w.seq}, {1});
  refuse(w.seq, KVC_ERROR_BUSY, {"open forward"});
  ASSERT_EQ(kvc_forward_abort(w.cache, open, nullptr), KVC_OK);
  kvc_batch batch;  // of layer 0 alone
  kvc_batch_init(&batch);
  const int32_t one = 1;
  batch.sequences = &w.forked;
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  batch.layer_end = 1;
  kvc_forward partial = 0;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &partial, nullptr), KVC_OK);
  LayerTensors t(w.spec.layers[0], 1);
  const kvc_attend_args attend = t.attend_args();
  ASSERT_EQ(kvc_forward_attend(w.cache, partial, 0, &attend, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(w.cache, partial, nullptr), KVC_OK);
  refuse(w.forked, KVC_ERROR_ORDER, {"layer 1 holds 20 of the 21 tokens"});
  const int32_t root = KVC_TREE_ROOT;
  batch.sequences = &w.seq;
  batch.layer_end = 0;
  batch.tree_parents = &root;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &partial, nullptr), KVC_OK);
  w.attend_all(partial, 1);
  ASSERT_EQ(kvc_forward_end(w.cache, partial, nullptr), KVC_OK);
  refuse(w.seq, KVC_ERROR_UNCOMMITTED, {});
  EXPECT_TRUE(memory.data.empty());
}

TEST(SaveErrors, Arguments) {
  Saved s;
  Memory memory;
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &mentions,
                          const std::function<void(kvc_save_args *)> &change) {
    kvc_save_args args = save_args(&memory);
    change(&args);
    refused(
        s.chat.cache, {status}, "kvc_seq_save",
        [&](kvc_error *e) { return kvc_seq_save(s.chat.cache, s.seq, &args, nullptr, e); }, mentions);
  };
  const int32_t tokens[3] = {};
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"both"}, [](kvc_save_args *a) { a->path = "x"; });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"neither"}, [](kvc_save_args *a) { a->write = nullptr; });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"num_tokens 3", "23"}, [&](kvc_save_args *a) {
    a->tokens = tokens;
    a->num_tokens = 3;
  });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"num_tokens", "23"}, [&](kvc_save_args *a) {
    a->tokens = tokens;
    a->num_tokens = INT64_MAX;
  });
  refuse(KVC_ERROR_INVALID_ARGUMENT, {"-1"}, [](kvc_save_args *a) { a->num_tokens = -1; });
  refuse(KVC_ERROR_NULL_ARGUMENT, {"tokens"}, [](kvc_save_args *a) { a->num_tokens = 23; });
  for (const int64_t bytes : {-1, 1, 2048, 4097, 1 << 25}) {
    refuse(KVC_ERROR_OUT_OF_RANGE, {"section_bytes"}, [&](kvc_save_args *a) { a->section_bytes = bytes; });
  }
  refuse(KVC_ERROR_UNSUPPORTED, {"flags"}, [](kvc_save_args *a) { a->flags = 1; });
  EXPECT_TRUE(memory.data.empty());
  kvc_load_args load = load_args(&memory);
  load.path = "x";
  kvc_seq seq = 0;
  refused(s.chat.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_load",
          [&](kvc_error *e) { return kvc_seq_load(s.chat.cache, &load, nullptr, &seq, nullptr, e); }, {"both"});
  World tables(
      [] {
        CacheSpec spec = World::default_spec();
        spec.storage = KVC_STORAGE_NONE;
        return spec;
      }(),
      1, 0);
  const kvc_save_args args = save_args(&memory);
  refused(tables.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_save",
          [&](kvc_error *e) { return kvc_seq_save(tables.cache, tables.seq, &args, nullptr, e); });
}

// Calls during a save, which its write callback makes.
TEST(SaveErrors, ASequenceIsBusyWhileItIsSaved) {
  struct Inside {
    Chat chat;
    kvc_seq seq = 0, other = 0;
    Memory memory;
    int calls = 0;
    static int32_t write(void *user, const void *data, int64_t bytes) {
      auto &self = *static_cast<Inside *>(user);
      kvc_seq child = 0;
      const bool removed = self.calls > 1;  // by call 1
      refused(self.chat.cache, {removed ? KVC_ERROR_STALE_ID : KVC_ERROR_BUSY}, "kvc_seq_fork",
              [&](kvc_error *e) { return kvc_seq_fork(self.chat.cache, 1, &self.seq, nullptr, &child, nullptr, e); },
              {removed ? "no longer exists" : "is being saved"});
      refused(self.chat.cache, {KVC_ERROR_BUSY}, "kvc_cache_clear",
              [&](kvc_error *e) { return kvc_cache_clear(self.chat.cache, e); }, {"a sequence is being saved"});
      EXPECT_EQ(kvc_cache_check_invariants(self.chat.cache, nullptr), KVC_OK);
      if (self.calls++ == 1) {
        EXPECT_EQ(kvc_seq_remove(self.chat.cache, 1, &self.seq, nullptr), KVC_OK);
        self.chat.step(self.other, 3);  // other sequences continue, and take none of its pages
      }
      EXPECT_EQ(self.chat.length(self.other), self.calls > 1 ? 3 : 0);
      return Memory::write(&self.memory, data, bytes);
    }
  } inside;
  inside.seq = inside.chat.talk();
  inside.other = inside.chat.add();
  const Bytes expected = inside.chat.save(inside.seq);
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.write = &Inside::write;
  args.write_user = &inside;
  args.section_bytes = 4096;
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_seq_save(inside.chat.cache, inside.seq, &args, nullptr, &error);
  EXPECT_EQ(status, KVC_OK) << error.message;
  EXPECT_EQ(inside.memory.data, expected);
  EXPECT_GT(inside.calls, 3);
  int64_t length = 0;
  EXPECT_EQ(kvc_seq_lengths(inside.chat.cache, 1, &inside.seq, &length, nullptr), KVC_ERROR_STALE_ID);
  EXPECT_EQ(kvc_seq_remove(inside.chat.cache, 1, &inside.other, nullptr), KVC_OK);
  EXPECT_EQ(inside.chat.used_pages(), 0);
}

}  // namespace
}  // namespace kvt
