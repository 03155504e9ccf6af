// Adapters and media of a prefix query: the loop of an engine that has both, what is never shared, tiers, and events.
#include <cstring>
#include <utility>

#include "tiers_fixture.h"

namespace kvt {
namespace {

// What an engine passes beside the tokens of a request.
struct Request {
  struct Image {
    int64_t begin, tokens;
    uint8_t hash;
  };
  Request(Tokens ids, const std::string &lora, const std::vector<Image> &images)
      : tokens(std::move(ids)), adapter(lora) {
    for (const Image &image : images) {
      begins.push_back(image.begin);
      lengths.push_back(image.tokens);
      hashes.insert(hashes.end(), 32, image.hash);
    }
  }
  kvc_prefix_query query() const {
    kvc_prefix_query query = Prefix::query(tokens);
    query.adapter = reinterpret_cast<const uint8_t *>(adapter.data());
    query.adapter_bytes = static_cast<int64_t>(adapter.size());
    query.num_media = static_cast<int64_t>(begins.size());
    query.media_begins = begins.data();
    query.media_tokens = lengths.data();
    query.media_hashes = hashes.data();
    return query;
  }
  // The keys of its whole pages of 4 tokens.
  std::vector<std::string> keys(uint8_t model) const {
    const std::vector<uint8_t> fingerprint(32, model);
    const kvc_prefix_query q = query();
    kvc_page_keys_args args;
    kvc_page_keys_args_init(&args);
    args.tokens = q.tokens, args.num_tokens = q.num_tokens, args.page_size = 4, args.fingerprint = fingerprint.data();
    args.adapter = q.adapter, args.adapter_bytes = q.adapter_bytes, args.num_media = q.num_media;
    args.media_begins = q.media_begins, args.media_tokens = q.media_tokens, args.media_hashes = q.media_hashes;
    std::string bytes(tokens.size() / 4 * 32, '\0');
    EXPECT_EQ(kvc_page_keys(&args, reinterpret_cast<uint8_t *>(bytes.data()), nullptr), KVC_OK);
    std::vector<std::string> keys;
    for (size_t i = 0; i < bytes.size(); i += 32) keys.push_back(bytes.substr(i, 32));
    return keys;
  }

  Tokens tokens;
  std::string adapter;
  std::vector<int64_t> begins, lengths;
  std::vector<uint8_t> hashes;
};

// An engine passes the adapter and the images of a request wherever it passes the tokens.
TEST(PrefixMedia, TheLoopOfAnEngine) {
  Prefix p;
  const Tokens prompt = count_to(18);
  const auto serve = [&](const Request &request) {
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    const kvc_prefix_query query = request.query();
    kvc_seq seq = 0;
    EXPECT_EQ(kvc_prefix_attach(p.cache(), &query, nullptr, &hit, &seq, nullptr), KVC_OK);
    EXPECT_EQ(p.step(seq, static_cast<int32_t>(query.num_tokens - hit.tokens)), KVC_OK);
    EXPECT_EQ(kvc_prefix_publish(p.cache(), seq, &query, nullptr, nullptr, nullptr), KVC_OK);
    p.remove(seq);
    return hit.tokens;
  };
  const Request::Image cat{6, 5, 1}, dog{6, 5, 2}, bird{13, 2, 3};
  EXPECT_EQ(serve({prompt, "", {cat}}), 0);
  EXPECT_EQ(serve({prompt, "", {cat}}), 17);
  EXPECT_EQ(serve({prompt, "", {dog}}), 6);  // the text before the image is shared, and nothing of the image
  EXPECT_EQ(serve({prompt, "", {}}), 6);
  EXPECT_EQ(serve({prompt, "", {cat, bird}}), 13);
  EXPECT_EQ(serve({prompt, "", {dog, bird}}), 13);
  EXPECT_EQ(serve({prompt, "", {{6, 4, 1}}}), 6);  // the same image, of another size
  EXPECT_EQ(serve({prompt, "", {{7, 5, 1}}}), 7);  // the same image, one token later, after one more token of text
  EXPECT_EQ(serve({prompt, "sql", {cat}}), 0);
  EXPECT_EQ(serve({prompt, "sql", {dog}}), 6);
  EXPECT_EQ(serve({prompt, "sql2", {cat}}), 0);
  EXPECT_EQ(serve({prompt, "sql", {cat}}), 17);
}

// A chat: text is published with a partial last page, and the next request has an image in that page.
TEST(PrefixMedia, AnImageMayBeginInAPageThatWasPublished) {
  Prefix p;
  const Request text(count_to(10), "", {}), turn(count_to(30), "", {{11, 12, 1}}),
      other(count_to(30), "", {{11, 12, 2}});
  p.remember(text.query());
  EXPECT_EQ(p.found(turn.query()), 10);
  p.remember(turn.query());
  EXPECT_EQ(p.found(turn.query()), 30);
  EXPECT_EQ(p.found(other.query()), 11);
  EXPECT_EQ(p.found(Request(count_to(30), "", {}).query()), 11);
  // A published length within an image. The query may already have spans beyond its tokens.
  const Request part(count_to(20), "lora", {{11, 12, 2}, {25, 3, 4}}),
      all(count_to(30), "lora", {{11, 12, 2}, {25, 3, 4}});
  p.remember(part.query());
  EXPECT_EQ(p.found(all.query()), 20);
  p.remember(all.query());
  EXPECT_EQ(p.found(all.query()), 30);
  EXPECT_EQ(p.found(Request(count_to(30), "lora", {{11, 12, 2}, {25, 3, 5}}).query()), 25);
  EXPECT_EQ(p.found(Request(count_to(30), "lora", {{11, 13, 2}, {25, 3, 4}}).query()), 11);
}

TEST(PrefixMedia, DropPinAndPriorityMeanTheirOwnPrefixOnly) {
  Prefix p;
  const Request a(count_to(8), "a", {{2, 3, 1}}), b(count_to(8), "b", {{2, 3, 1}}), c(count_to(8), "a", {{2, 3, 2}});
  for (const Request *request : {&a, &b, &c}) p.remember(request->query());
  int64_t pages = 0;
  kvc_prefix_query drop = a.query();
  ASSERT_EQ(kvc_prefix_drop(p.cache(), &drop, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 1);  // of the last token of the query
  EXPECT_EQ(p.found(a.query()), 4);
  EXPECT_EQ(p.found(b.query()), 8);
  EXPECT_EQ(p.found(c.query()), 8);
  drop.num_tokens = 0;
  ASSERT_EQ(kvc_prefix_drop(p.cache(), &drop, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 3);  // all of adapter a
  EXPECT_EQ(p.found(b.query()), 8);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  uint64_t pin = 0;
  const kvc_prefix_query pinned = b.query(), missing = a.query();
  ASSERT_EQ(kvc_prefix_pin(p.cache(), &missing, &hit, &pin, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 0);
  ASSERT_EQ(kvc_prefix_pin(p.cache(), &pinned, &hit, &pin, nullptr), KVC_OK);
  EXPECT_EQ(hit.tokens, 8);
}

TEST(PrefixMedia, ArgumentsAreChecked) {
  Prefix p;
  const Request request(count_to(6), "a", {{1, 2, 1}, {4, 2, 1}});
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  const auto refuse = [&](kvc_status status, const char *mention, auto change) {
    kvc_prefix_query query = request.query();
    change(&query);
    return refused(p.cache(), {status}, "kvc_prefix_match",
                   [&](kvc_error *e) { return kvc_prefix_match(p.cache(), &query, &hit, e); }, {mention});
  };
  using Query = kvc_prefix_query;
  refuse(KVC_ERROR_OUT_OF_RANGE, "adapter_bytes -1", [](Query *q) { q->adapter_bytes = -1; });
  refuse(KVC_ERROR_OUT_OF_RANGE, "adapter_bytes 1048577", [](Query *q) { q->adapter_bytes = 1048577; });
  refuse(KVC_ERROR_NULL_ARGUMENT, "adapter", [](Query *q) { q->adapter = nullptr; });
  refuse(KVC_ERROR_OUT_OF_RANGE, "num_media -1", [](Query *q) { q->num_media = -1; });
  refuse(KVC_ERROR_NULL_ARGUMENT, "media_begins", [](Query *q) { q->media_begins = nullptr; });
  refuse(KVC_ERROR_NULL_ARGUMENT, "media_tokens", [](Query *q) { q->media_tokens = nullptr; });
  refuse(KVC_ERROR_NULL_ARGUMENT, "media_hashes", [](Query *q) { q->media_hashes = nullptr; });
  const int64_t overlap[2] = {1, 2}, empty[2] = {2, 0};
  EXPECT_EQ(refuse(KVC_ERROR_OUT_OF_RANGE, "media_begins 2", [&](Query *q) { q->media_begins = overlap; }).index, 1);
  EXPECT_EQ(refuse(KVC_ERROR_OUT_OF_RANGE, "media_tokens 0", [&](Query *q) { q->media_tokens = empty; }).index, 1);
}

// The object of the page with this key. docs/reference/format.md says where its header has the key.
std::vector<uint8_t> &object_of(MemoryTier &tier, const std::string &key) {
  for (auto &[name, object] : tier.objects) {
    if (std::memcmp(object.data() + 64, key.data(), key.size()) == 0) return object;
  }
  static std::vector<uint8_t> none;
  return none;
}

// Tiers have their objects under the page keys that kvc_page_keys computes.
// What is stored for tokens depends on `contents`, so that prefixes of other adapters and media have other values.
Tokens with_contents(Tokens tokens, int32_t contents) {
  for (int32_t &token : tokens) token += contents;
  return tokens;
}

void publish(TieredEngine &engine, const Request &request, const Tokens &tokens, int32_t contents) {
  const kvc_prefix_query query = request.query();
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, with_contents(tokens, contents), 0, query.num_tokens);
  EXPECT_EQ(kvc_prefix_publish(engine.cache(), seq, &query, nullptr, nullptr, nullptr), KVC_OK);
  engine.remove(seq);
  engine.wait_stored();
}

// Loads, attaches and checks the contents. Returns how many tokens were loaded.
int64_t load(TieredEngine &engine, const Request &request, const Tokens &tokens, int32_t contents) {
  const kvc_prefix_query query = request.query();
  kvc_job job = 0;
  EXPECT_EQ(kvc_prefix_load(engine.cache(), &query, nullptr, nullptr, &job, nullptr), KVC_OK);
  const int64_t loaded = engine.wait(job);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  kvc_seq seq = 0;
  EXPECT_EQ(kvc_prefix_attach(engine.cache(), &query, nullptr, &hit, &seq, nullptr), KVC_OK);
  engine.check(seq, with_contents(tokens, contents), hit.tokens);
  engine.remove(seq);
  return loaded;
}

void drop_all(TieredEngine &engine, const Request &request) {
  kvc_prefix_query all = request.query();
  all.num_tokens = 0;
  EXPECT_EQ(kvc_prefix_drop(engine.cache(), &all, nullptr, nullptr), KVC_OK);
}

TEST(PrefixMedia, TiersKeepAdaptersAndMediaApart) {
  MemoryTier tier;
  const Tokens tokens = count_to(13);
  const Request cat(tokens, "a", {{5, 4, 1}}), dog(tokens, "a", {{5, 4, 2}}), other(tokens, "b", {{5, 4, 1}});
  {
    TieredEngine engine({});
    ASSERT_EQ(engine.add(tier), KVC_OK);
    publish(engine, cat, tokens, 100);
    EXPECT_EQ(tier.objects.size(), 3u);
    publish(engine, dog, tokens, 100);  // shares the text before the image, which fills the first page
    EXPECT_EQ(tier.objects.size(), 5u);
    publish(engine, other, tokens, 200);
    EXPECT_EQ(tier.objects.size(), 8u);
  }
  for (const Request *request : {&cat, &dog, &other}) {
    for (const std::string &key : request->keys(7)) EXPECT_FALSE(object_of(tier, key).empty());
  }
  TieredEngine engine({});
  ASSERT_EQ(engine.add(tier), KVC_OK);
  EXPECT_EQ(load(engine, cat, tokens, 100), 12);
  EXPECT_EQ(load(engine, other, tokens, 200), 12);
  EXPECT_EQ(load(engine, dog, tokens, 100), 8);
  EXPECT_EQ(load(engine, Request(tokens, "", {}), tokens, 0), 0);
  EXPECT_EQ(load(engine, Request(tokens, "c", {{5, 4, 1}}), tokens, 0), 0);
}

// If two tier keys were one, a load would get the object of the other adapter. It is refused, and the load is a miss.
// The object is removed, so that the next publish stores the right one.
TEST(PrefixMedia, ObjectsUnderOtherKeysAreRefused) {
  MemoryTier tier;
  const Tokens tokens = count_to(13);
  const Request left(tokens, "d", {{5, 4, 1}}), right(tokens, "e", {{5, 4, 1}});
  TieredEngine engine({});
  ASSERT_EQ(engine.add(tier), KVC_OK);
  publish(engine, left, tokens, 300);
  publish(engine, right, tokens, 400);
  std::swap(object_of(tier, left.keys(7)[0]), object_of(tier, right.keys(7)[0]));
  for (const Request *request : {&left, &right}) drop_all(engine, *request);
  const int64_t objects = tier.num_objects();
  EXPECT_EQ(load(engine, left, tokens, 300), 0);
  EXPECT_EQ(load(engine, right, tokens, 400), 0);
  for (int tries = 0; tries < 10000 && tier.num_objects() > objects - 2; tries++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  publish(engine, left, tokens, 300);
  publish(engine, right, tokens, 400);
  EXPECT_EQ(tier.num_objects(), objects);
  for (const Request *request : {&left, &right}) drop_all(engine, *request);
  EXPECT_EQ(load(engine, left, tokens, 300), 12);
  EXPECT_EQ(load(engine, right, tokens, 400), 12);
}

// The messages have the adapter as lora_name, and for each page its adapter, the hash and the place of its images, and
// whether it has a salt.
TEST(PrefixMedia, MessagesNameThem) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 40);
  spec.fingerprint = std::vector<uint8_t>(32, 7);
  spec.events_capacity = 4;
  Prefix p(spec);
  const auto text = [](const std::string &s) { return static_cast<char>(0xA0 + s.size()) + s; };
  const auto list = [](char n) { return std::string("\xDD\0\0\0", 4) + n; };
  const auto message = [&](decltype(kvc_events_read) *call, uint64_t next) {
    std::string bytes(4000, '\0');
    kvc_events_args args;
    kvc_events_args_init(&args);
    args.next = next;
    args.bytes = reinterpret_cast<uint8_t *>(bytes.data());
    args.capacity_bytes = 4000;
    kvc_events_range range;
    kvc_events_range_init(&range);
    EXPECT_EQ(call(p.cache(), &args, &range, nullptr), KVC_OK);
    return bytes.substr(0, static_cast<size_t>(range.num_bytes));
  };
  kvc_prefix_query query = Request(count_to(12), "sql", {}).query();
  const Request request(count_to(12), "sql", {{2, 4, 0xAB}});
  query = request.query();
  query.salt = 5;
  query.salt_begin = 8;
  p.remember(query);
  std::string hash;
  for (int i = 0; i < 32; i++) hash += "ab";
  const std::string image = "\x92" + (std::string("\xDB\0\0\0", 4) + '\x40') + hash;
  const std::string keys = text("extra_keys") + list(2) + (list(2) + text("sql") + image + '\x02') +
                           (list(2) + text("sql") + image + "\xD2\xFF\xFF\xFF\xFE");
  const std::string salted = text("extra_keys") + list(1) + (list(2) + text("sql") + text("salted"));
  const std::string read = message(kvc_events_read, 0), snapshot = message(kvc_events_snapshot, 0);
  for (const std::string &bytes : {read, snapshot}) {
    EXPECT_NE(bytes.find(text("lora_name") + text("sql")), std::string::npos);
    EXPECT_NE(bytes.find(keys), std::string::npos);
    EXPECT_NE(bytes.find(salted), std::string::npos);
  }
  // Text without an adapter, after a salt.
  const Request plain(count_to(4), "", {});
  p.remember(plain.query());
  const std::string without = message(kvc_events_read, 3);
  EXPECT_NE(without.find(text("lora_name") + "\xC0"), std::string::npos);
  EXPECT_EQ(without.find("extra_keys"), std::string::npos);
  // A name that is no UTF-8 becomes hexadecimal digits. The ring has overwritten older events.
  for (const auto &[name, shown] :
       std::vector<std::pair<std::string, std::string>>{{"\xFF", "ff"},
                                                        {"\xC3\xA9", "\xC3\xA9"},
                                                        {"\xC3", "c3"},
                                                        {"\xC0\x80", "c080"},
                                                        {"\xED\xA0\x80", "eda080"},
                                                        {"\xF4\x90\x80\x80", "f4908080"},
                                                        {"\xF0\x9F\x90\x88", "\xF0\x9F\x90\x88"},
                                                        {"e\xE2\x82", "65e282"}}) {
    const Request named(count_to(4, 100), name, {});
    p.remember(named.query());
    EXPECT_NE(message(kvc_events_snapshot, 0).find(text("lora_name") + text(shown)), std::string::npos) << shown;
  }
}

}  // namespace
}  // namespace kvt
