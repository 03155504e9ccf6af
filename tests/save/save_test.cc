// kvc_seq_save and kvc_seq_load: a loaded sequence continues exactly as the saved one.
#include "save_fixture.h"

namespace kvt {
namespace {

TEST(Save, DecodingGoesOnWithTheSameBitsInEveryGroup) {
  Chat a;
  const kvc_seq saved = a.talk();
  const Bytes bytes = a.save(saved);
  const Bytes expected = a.steps(saved, 12);
  for (const int page_size : {4, 1, 2, 8, 16}) {
    Chat b([&](Hybrid *h) { h->config.page_size = page_size; });
    const kvc_seq loaded = b.load(bytes);
    EXPECT_EQ(b.length(loaded), 23);
    int64_t encoder = 0;
    ASSERT_EQ(kvc_seq_encoder_lengths(b.cache, kCrossGroup, 1, &loaded, &encoder, nullptr), KVC_OK);
    EXPECT_EQ(encoder, 9);
    EXPECT_EQ(b.steps(loaded, 12), expected) << "pages of " << page_size;
    ASSERT_EQ(kvc_seq_remove(b.cache, 1, &loaded, nullptr), KVC_OK);
    EXPECT_EQ(b.used_pages(), 0);
  }
}

TEST(Save, CheckpointsComeBack) {
  Chat a, b;
  const kvc_seq saved = a.talk(), loaded = b.load(a.save(saved));
  const int64_t position = 19;
  ASSERT_EQ(kvc_seq_truncate(a.cache, 1, &saved, &position, nullptr), KVC_OK);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_truncate(b.cache, 1, &loaded, &position, &error), KVC_OK) << error.message;
  EXPECT_EQ(b.steps(loaded, 5), a.steps(saved, 5));
}

TEST(Save, ACheckpointAtTheEndSharesItsState) {
  Chat a([](Hybrid *h) { h->config.max_checkpoints = 3; });
  const kvc_seq saved = a.talk();
  ASSERT_EQ(kvc_seq_checkpoint(a.cache, 1, &saved, nullptr), KVC_OK);
  const Bytes bytes = a.save(saved);
  const int64_t used = a.used_pages(), position = 23;
  const Bytes expected = a.steps(saved, 3);
  Chat b([](Hybrid *h) { h->config.max_checkpoints = 3; });
  Chat c;  // keeps the newest of the two
  for (Chat *other : {&b, &c}) {
    const kvc_seq loaded = other->load(bytes);
    EXPECT_EQ(other->used_pages(), used - (other == &c ? 1 : 0));
    EXPECT_EQ(other->steps(loaded, 3), expected);
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_seq_truncate(other->cache, 1, &loaded, &position, &error), KVC_OK) << error.message;
    EXPECT_EQ(other->steps(loaded, 3), expected);
  }
}

TEST(Save, SavedBytesDependOnContentsAlone) {
  Chat a, b;
  const kvc_seq other = b.talk();  // takes the first pages
  const kvc_seq first = a.talk(), second = b.talk();
  EXPECT_EQ(a.save(first), b.save(second));
  kvc_seq fork = 0;
  ASSERT_EQ(kvc_seq_fork(b.cache, 1, &second, nullptr, &fork, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(b.save(fork), b.save(other));
  EXPECT_EQ(b.save(b.load(b.save(fork))), b.save(fork));
}

TEST(Save, EmptySequences) {
  Chat a, b;
  const kvc_seq loaded = b.load(a.save(a.add()));
  EXPECT_EQ(b.length(loaded), 0);
  EXPECT_EQ(b.used_pages(), 0);
  Chat c;
  EXPECT_EQ(b.steps(loaded, 4), c.steps(c.add(), 4));
}

TEST(Save, StreamingWindowsComeBack) {
  Chat a;
  const kvc_seq saved = a.talk();
  const int64_t sinks = 3, window = 12;
  ASSERT_EQ(kvc_seq_set_streaming(a.cache, 1, &saved, &sinks, &window, 0, nullptr), KVC_OK);
  a.steps(saved, 20);
  const Bytes bytes = a.save(saved);
  Chat b;
  const kvc_seq loaded = b.load(bytes);
  int64_t s = 0, w = 0;
  ASSERT_EQ(kvc_seq_get_streaming(b.cache, 1, &loaded, &s, &w, nullptr), KVC_OK);
  EXPECT_EQ(s, 3);
  EXPECT_EQ(w, 12);
  EXPECT_EQ(b.used_pages(), a.used_pages());
  EXPECT_EQ(b.steps(loaded, 20), a.steps(saved, 20));
  Chat plain([](Hybrid *h) { h->config.flags = 0; });
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_seq_load",
          [&](kvc_error *error) {
            kvc_seq seq = 0;
            return plain.try_load(bytes, &seq, error);
          },
          {"KVC_CACHE_STREAMING"});
}

TEST(Save, PagesThatCannotHaveTheHolesAreRefused) {
  Chat a([](Hybrid *h) {
    h->config.page_size = 1;
    h->config.flags |= KVC_CACHE_NO_ROLLBACK;
  });
  const kvc_seq saved = a.talk();
  Chat b([](Hybrid *h) {
    h->config.page_size = 32;
    h->config.flags |= KVC_CACHE_NO_ROLLBACK;
  });
  const Bytes bytes = a.save(saved);
  refused(b.cache, {KVC_ERROR_LAYOUT}, "kvc_seq_load",
          [&](kvc_error *error) {
            kvc_seq seq = 0;
            return b.try_load(bytes, &seq, error);
          },
          {"pages of 32 tokens"});
}

TEST(Save, EveryStoredFormatAndLayoutOfPools) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    CacheSpec spec = World::default_spec();
    for (LayerSpec &layer : spec.layers) layer.dtype = dtype;
    World a(spec);
    Memory memory;
    const kvc_save_args args = save_args(&memory);
    ASSERT_EQ(kvc_seq_save(a.cache, a.seq, &args, nullptr, nullptr), KVC_OK);
    for (const Layout layout : kAdoptedLayouts) {
      spec.layout = dtype == DType::kI8 ? Layout::kOwn : layout;
      World b(spec);
      Memory source;
      source.data = memory.data;
      const kvc_load_args load = load_args(&source);
      kvc_seq loaded = 0;
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_seq_load(b.cache, &load, nullptr, &loaded, nullptr, &error), KVC_OK) << error.message;
      Memory again;
      const kvc_save_args save = save_args(&again);
      ASSERT_EQ(kvc_seq_save(b.cache, loaded, &save, nullptr, nullptr), KVC_OK);
      EXPECT_EQ(again.data, memory.data) << name_of(layout);
    }
  }
}

TEST(Save, TokensComeBack) {
  Chat a, b;
  const kvc_seq saved = a.talk();
  std::vector<int32_t> tokens(23);
  for (size_t i = 0; i < tokens.size(); i++) tokens[i] = static_cast<int32_t>(i * 1000) - 3;
  const Bytes bytes = a.save(saved, tokens);
  Memory memory;
  memory.data = bytes;
  memory.most = 7;  // a read may give fewer bytes
  kvc_load_args args = load_args(&memory);
  std::vector<int32_t> read(30);
  args.tokens = read.data();
  args.capacity = 22;
  kvc_seq seq = 0;
  int64_t count = 0;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_seq_load(b.cache, &args, nullptr, &seq, &count, &error), KVC_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(count, 23);
  EXPECT_EQ(error.required, 23);
  EXPECT_EQ(error.available, 22);
  memory.at = 0;
  args.capacity = 30;
  ASSERT_EQ(kvc_seq_load(b.cache, &args, nullptr, &seq, &count, &error), KVC_OK) << error.message;
  EXPECT_EQ(count, 23);
  read.resize(23);
  EXPECT_EQ(read, tokens);
  EXPECT_EQ(b.steps(seq, 4), a.steps(saved, 4));
  memory.data = a.save(saved);  // without ids
  memory.at = 0;
  ASSERT_EQ(kvc_seq_load(b.cache, &args, nullptr, &seq, &count, &error), KVC_OK) << error.message;
  EXPECT_EQ(count, 0);
}

TEST(Save, AFileAppearsWholeOrNotAtAll) {
  const Folder folder;
  const std::string path = folder.file("chat.kvc");
  Chat a, b;
  const kvc_seq saved = a.talk();
  kvc_save_args save;
  kvc_save_args_init(&save);
  save.path = path.c_str();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_save(a.cache, saved, &save, nullptr, &error), KVC_OK) << error.message;
  EXPECT_EQ(folder.count(), 1) << "nothing else is left";
  kvc_load_args load;
  kvc_load_args_init(&load);
  load.path = path.c_str();
  kvc_seq loaded = 0;
  ASSERT_EQ(kvc_seq_load(b.cache, &load, nullptr, &loaded, nullptr, &error), KVC_OK) << error.message;
  EXPECT_EQ(b.save(loaded), a.save(saved));
  std::ofstream(path, std::ios::app) << "x";  // bytes after its end
  refused(b.cache, {KVC_ERROR_CORRUPT}, "kvc_seq_load",
          [&](kvc_error *e) { return kvc_seq_load(b.cache, &load, nullptr, &loaded, nullptr, e); });
  const std::string missing = folder.file("none/chat.kvc");
  save.path = load.path = missing.c_str();
  const char *words = "No such file";
  refused(a.cache, {KVC_ERROR_IO}, "kvc_seq_save",
          [&](kvc_error *e) { return kvc_seq_save(a.cache, saved, &save, nullptr, e); }, {words});
  refused(b.cache, {KVC_ERROR_IO}, "kvc_seq_load",
          [&](kvc_error *e) { return kvc_seq_load(b.cache, &load, nullptr, &loaded, nullptr, e); }, {words});
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace
}  // namespace kvt
