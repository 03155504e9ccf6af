// Events of the prefix index: which events there are, their order, and how a reader learns of gaps.
#include <algorithm>
#include <cstring>

#include "event_follower.h"
#include "prefix_fixture.h"

namespace kvt {
namespace {

const std::vector<uint8_t> kModel(32, 7);

// A cache, and a reader of its events.
struct Told {
  static CacheSpec spec_of(std::vector<GroupSpec> groups, int64_t events, int64_t pages) {
    CacheSpec spec = Prefix::spec_of(std::move(groups), pages);
    spec.fingerprint = kModel;
    spec.events_capacity = events;
    return spec;
  }
  explicit Told(std::vector<GroupSpec> groups = {GroupSpec{}}, int64_t events = 1000, int64_t pages = 40)
      : p(spec_of(std::move(groups), events, pages)), reader(p.cache(), 4, kModel.data()) {}

  void remember(const Tokens &tokens, uint64_t salt = 0, int64_t salt_begin = 0, uint64_t session = 0) {
    const kvc_prefix_query query = Prefix::query(tokens, salt, salt_begin);
    reader.remember(query);
    p.remember(query, session);
  }
  std::vector<kvc_event> read(uint64_t next, int64_t capacity = 100) {
    std::vector<kvc_event> events(static_cast<size_t>(capacity));
    kvc_events_args args;
    kvc_events_args_init(&args);
    args.next = next;
    args.events = events.data();
    args.capacity = capacity;
    kvc_events_range_init(&range);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_events_read(p.cache(), &args, &range, &error), KVC_OK) << error.message;
    events.resize(static_cast<size_t>(range.count));
    return events;
  }
  std::vector<uint8_t> message(uint64_t next, int64_t capacity, uint32_t flags = 0) {
    std::vector<uint8_t> bytes(static_cast<size_t>(capacity));
    kvc_events_args args = args_of(bytes, flags);
    args.next = next;
    kvc_events_range_init(&range);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_events_read(p.cache(), &args, &range, &error), KVC_OK) << error.message;
    bytes.resize(static_cast<size_t>(range.num_bytes));
    return bytes;
  }
  static kvc_events_args args_of(std::vector<uint8_t> &bytes, uint32_t flags) {
    kvc_events_args args;
    kvc_events_args_init(&args);
    args.flags = flags;
    args.bytes = bytes.data();
    args.capacity_bytes = static_cast<int64_t>(bytes.size());
    args.timestamp = 1.5;
    args.data_parallel_rank = 3;
    return args;
  }

  Prefix p;
  EventFollower reader;
  kvc_events_range range;
};

TEST(Events, SayWhatIsPublishedAndDropped) {
  Told t;
  const Tokens tokens = count_to(10);
  t.remember(tokens, 0, 0, 5);
  std::vector<kvc_event> events = t.read(0);
  ASSERT_EQ(events.size(), 2u);  // the last page is not full
  EXPECT_EQ(events[0].kind, KVC_EVENT_STORED);
  EXPECT_EQ(events[0].group, 0);
  EXPECT_EQ(events[0].flags, 0u);
  EXPECT_EQ(events[0].session, 5u);
  EXPECT_EQ(events[1].position, 4);
  EXPECT_EQ(events[1].flags, uint32_t{KVC_EVENT_HAS_PARENT});
  EXPECT_EQ(std::memcmp(events[1].parent, events[0].key, 32), 0);
  EXPECT_EQ(t.range.end, 2u);

  t.remember(count_to(12));
  events = t.read(2);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].position, 8);

  int64_t pages = 0;
  kvc_prefix_query whole = Prefix::query(tokens);
  whole.num_tokens = 8;
  ASSERT_EQ(kvc_prefix_drop(t.p.cache(), &whole, &pages, nullptr), KVC_OK);
  events = t.read(3);
  ASSERT_EQ(events.size(), 2u);  // pages at the end go first
  EXPECT_EQ(events[0].kind, KVC_EVENT_REMOVED);
  t.reader.read();
  t.reader.check();
  EXPECT_EQ(t.reader.pages().size(), 1u);
}

TEST(Events, HaveTheKeysOfTheSalt) {
  Told t;
  const Tokens tokens = count_to(12);
  t.remember(tokens, 0x0102030405060708u, 5);
  const std::vector<kvc_event> events = t.read(0);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].flags & KVC_EVENT_SALTED, 0u);
  EXPECT_NE(events[1].flags & KVC_EVENT_SALTED, 0u);
  const uint8_t salt[8] = {8, 7, 6, 5, 4, 3, 2, 1};
  kvc_page_keys_args args;
  kvc_page_keys_args_init(&args);
  args.tokens = tokens.data();
  args.num_tokens = 12;
  args.page_size = 4;
  args.fingerprint = kModel.data();
  args.salt = salt;
  args.salt_bytes = 8;
  args.salt_begin = 5;
  std::vector<uint8_t> keys(3 * 32);
  ASSERT_EQ(kvc_page_keys(&args, keys.data(), nullptr), KVC_OK);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(std::memcmp(events[i].key, keys.data() + 32 * i, 32), 0) << i;
}

TEST(Events, SayOnceThatAllIsCleared) {
  Told t({GroupSpec{}, GroupSpec{6}});
  const Tokens tokens = count_to(12);
  const kvc_prefix_query all = Prefix::query({});
  t.remember(tokens);
  uint64_t next = t.read(0).size();
  ASSERT_EQ(kvc_cache_clear(t.p.cache(), nullptr), KVC_OK);
  EXPECT_EQ(t.read(next).at(0).kind, KVC_EVENT_CLEARED);
  EXPECT_EQ(t.range.end, next + 1);
  t.remember(tokens);
  ASSERT_EQ(kvc_prefix_drop(t.p.cache(), &all, nullptr, nullptr), KVC_OK);
  t.reader.read();
  EXPECT_EQ(t.reader.clears(), 2);
  t.reader.check();
}

TEST(Events, SayWhatIsEvicted) {
  Told t({GroupSpec{}}, 1000, 6);
  t.remember(count_to(16));
  t.remember(count_to(20, 500));
  t.reader.read();
  t.reader.check();
  EXPECT_EQ(t.reader.next(), 4u + 3u + 5u);
}

TEST(Events, AReaderThatMissesSomeNotices) {
  Told t({GroupSpec{}}, 3);
  const Tokens tokens = count_to(20);
  t.remember(tokens);
  const std::vector<kvc_event> events = t.read(0);
  EXPECT_EQ(t.range.begin, 2u);
  EXPECT_EQ(t.range.newest, 5u);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].number, 2u);
  EXPECT_TRUE(t.reader.read());
  t.reader.check();
  EXPECT_EQ(t.reader.pages().size(), 5u);
}

TEST(Events, AnEpochIsOfOneCache) {
  Told a, b;
  EXPECT_TRUE(a.read(0).empty());
  EXPECT_TRUE(b.read(0).empty());
  EXPECT_NE(a.range.epoch, b.range.epoch);
}

TEST(Events, AMessageHasTheBytesOfThePage) {
  Told t;
  t.remember(count_to(8));
  const std::vector<kvc_event> events = t.read(0);
  const auto text = [](const std::string &s) { return static_cast<char>(0xA0 + s.size()) + s; };
  const auto low = [](const kvc_event &event) {
    return std::string(reinterpret_cast<const char *>(event.key) + 24, 8);
  };
  // [1.5, [["BlockStored", [key, key], nil, [1..8], 4, nil, "CPU", nil, nil, 0, "full_attention", nil, "LOCAL"]], 3]
  std::string wanted = "\x93\xCB\x3F\xF8";
  wanted.append(6, 0) += std::string("\xDD\0\0\0\1\x9D", 6) + text("BlockStored") + std::string("\xDD\0\0\0\2", 5);
  for (const kvc_event &event : events) wanted += "\xCF" + low(event);
  wanted += "\xC0" + std::string("\xDD\0\0\0\x8\1\2\3\4\5\6\7\x8\4", 14) + "\xC0" + text("CPU");
  wanted += "\xC0\xC0" + std::string(1, 0) + text("full_attention") + "\xC0" + text("LOCAL") + "\3";
  const std::vector<uint8_t> bytes = t.message(0, 1000, KVC_EVENTS_ARRAYS | KVC_EVENTS_SHORT_HASHES);
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), wanted);
  EXPECT_EQ(t.range.count, 2);
}

// A buffer of any size gets as many events as fit, and a reader gets all of them.
TEST(Events, MessagesOfAnySizeHaveAllEvents) {
  Told t({GroupSpec{}, GroupSpec{60}});
  t.remember(count_to(40), 9);
  const uint64_t all = t.read(0).size();
  for (int64_t capacity = 1; capacity < 3000; capacity += 13) {
    uint64_t next = 0;
    for (int calls = 0; next < all; calls++) {
      std::vector<uint8_t> bytes(static_cast<size_t>(capacity));
      kvc_events_args args = Told::args_of(bytes, 0);
      args.next = next;
      kvc_events_range range;
      kvc_events_range_init(&range);
      kvc_error error = KVC_ERROR_INIT;
      const kvc_status status = kvc_events_read(t.p.cache(), &args, &range, &error);
      if (status == KVC_ERROR_BUFFER_TOO_SMALL) {
        ASSERT_EQ(error.available, capacity);
        ASSERT_GT(error.required, capacity);
        bytes.resize(static_cast<size_t>(error.required));
        args.bytes = bytes.data();
        args.capacity_bytes = error.required;
        ASSERT_EQ(kvc_events_read(t.p.cache(), &args, &range, &error), KVC_OK) << "required was not enough";
      } else {
        ASSERT_EQ(status, KVC_OK);
        ASSERT_LE(range.num_bytes, capacity);
      }
      ASSERT_EQ(range.begin, next);
      ASSERT_GT(range.end, next);
      next = range.end;
    }
  }
}

TEST(Events, ASnapshotSaysHowLargeItIs) {
  Told t;
  t.remember(count_to(40));
  std::vector<uint8_t> none;
  kvc_events_args args = Told::args_of(none, 0);
  kvc_events_range range;
  kvc_events_range_init(&range);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_events_snapshot(t.p.cache(), &args, &range, &error), KVC_OK) << error.message;
  EXPECT_EQ(range.count, 10);
  std::vector<uint8_t> bytes(static_cast<size_t>(range.num_bytes) + 4);
  args = Told::args_of(bytes, 0);
  args.capacity_bytes = range.num_bytes + 4;  // a message is written only if its largest possible rank fits too
  ASSERT_EQ(kvc_events_snapshot(t.p.cache(), &args, &range, &error), KVC_OK) << error.message;
  EXPECT_EQ(range.num_bytes, static_cast<int64_t>(bytes.size()) - 4);
  args.capacity_bytes = 20;
  EXPECT_EQ(kvc_events_snapshot(t.p.cache(), &args, &range, &error), KVC_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.required, static_cast<int64_t>(bytes.size()) - 4);
  std::vector<kvc_event> few(9);
  kvc_events_args_init(&args);
  args.events = few.data();
  args.capacity = 9;
  EXPECT_EQ(kvc_events_snapshot(t.p.cache(), &args, &range, &error), KVC_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(error.required, 10);
}

TEST(Events, WrongCallsAreRefused) {
  Told t;
  std::vector<uint8_t> bytes(100);
  std::vector<kvc_event> events(4);
  kvc_events_range range;
  kvc_events_range_init(&range);
  kvc_events_args args;
  const auto read = [&](kvc_status status, const char *mention) {
    refused(t.p.cache(), {status}, "kvc_events_read",
            [&](kvc_error *e) { return kvc_events_read(t.p.cache(), &args, &range, e); }, {mention});
  };
  args = Told::args_of(bytes, 0);
  args.events = events.data();
  read(KVC_ERROR_INVALID_ARGUMENT, "both events and bytes");
  args = Told::args_of(bytes, 8);
  read(KVC_ERROR_UNSUPPORTED, "flags 0x8");
  args = Told::args_of(bytes, 0);
  args.capacity_bytes = -1;
  read(KVC_ERROR_INVALID_ARGUMENT, "capacity_bytes -1");
  args = Told::args_of(bytes, 0);
  args.data_parallel_rank = -2;
  read(KVC_ERROR_INVALID_ARGUMENT, "data_parallel_rank -2");
  args = Told::args_of(bytes, 0);
  args.next = 1;
  read(KVC_ERROR_OUT_OF_RANGE, "next 1 is above 0");
  kvc_events_args_init(&args);
  args.events = events.data();
  args.capacity = 4;
  args.event_size = 8;
  read(KVC_ERROR_STRUCT_SIZE, "event_size 8");
  Prefix plain;
  kvc_events_args_init(&args);
  refused(plain.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_events_snapshot",
          [&](kvc_error *e) { return kvc_events_snapshot(plain.cache(), &args, &range, e); }, {"events_capacity"});
}

}  // namespace
}  // namespace kvt
