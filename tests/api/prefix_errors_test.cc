// Arguments that the calls of the prefix index refuse.
#include "prefix_fixture.h"

namespace kvt {
namespace {

TEST(Prefixes, PublishRefusesWhatItCannotKeep) {
  CacheSpec spec = Prefix::spec_of({GroupSpec{}}, 40);
  spec.layers.push_back(spec.layers[0]);
  spec.streaming = true;
  Prefix p(spec);
  const kvc_seq seq = p.add();
  const Tokens tokens = count_to(6);
  const kvc_prefix_query query = p.query(tokens);
  const auto refuse = [&](kvc_status status, const std::vector<std::string> &mentions = {}) {
    return refused(
        p.cache(), {status}, "kvc_prefix_publish",
        [&](kvc_error *e) { return kvc_prefix_publish(p.cache(), seq, &query, nullptr, nullptr, e); }, mentions);
  };
  refuse(KVC_ERROR_OUT_OF_RANGE, {"6", "length 0"});
  kvc_forward f = 0;
  const std::vector<kvc_seq> ids{seq};
  const std::vector<int32_t> six{6};
  kvc_batch batch = batch_of(ids, six, 0);
  batch.layer_end = 1;
  ASSERT_EQ(kvc_forward_begin(p.cache(), &batch, nullptr, &f, nullptr), KVC_OK);
  refuse(KVC_ERROR_BUSY);
  LayerTensors t(spec.layers[0], 6);
  const kvc_append_args args = t.append_args();
  ASSERT_EQ(kvc_forward_append(p.cache(), f, 0, &args, nullptr), KVC_OK);
  ASSERT_EQ(kvc_forward_end(p.cache(), f, nullptr), KVC_OK);
  const kvc_error lacking = refuse(KVC_ERROR_ORDER);  // layer 1 lacks the tokens
  EXPECT_EQ(lacking.index, 1);
  EXPECT_EQ(lacking.required, 6);
  EXPECT_EQ(lacking.available, 0);
  const int64_t zero = 0, window = 8;
  ASSERT_EQ(kvc_seq_truncate(p.cache(), 1, &seq, &zero, nullptr), KVC_OK);
  ASSERT_EQ(p.step(seq, 6), KVC_OK);
  ASSERT_EQ(kvc_seq_set_streaming(p.cache(), 1, &seq, nullptr, &window, 0, nullptr), KVC_OK);
  ASSERT_EQ(kvc_seq_set_streaming(p.cache(), 1, &seq, nullptr, &zero, 0, nullptr), KVC_OK);
  refuse(KVC_ERROR_UNSUPPORTED, {"streaming"});
}

TEST(Prefixes, ArgumentsAreChecked) {
  Prefix p;
  const Tokens tokens = count_to(6);
  kvc_prefix_query query = p.query(tokens);
  kvc_prefix_hit hit;
  kvc_prefix_hit_init(&hit);
  const auto match = [&](kvc_error *e) { return kvc_prefix_match(p.cache(), &query, &hit, e); };
  query.num_tokens = -1;
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_match", match, {"num_tokens -1"});
  query.num_tokens = 6;
  query.salt_begin = -1;
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_match", match, {"salt_begin -1"});
  query.salt_begin = 0;
  query.flags = 2;
  refused(p.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_prefix_match", match, {"flags 0x2"});
  query.flags = 0;
  query.tokens = nullptr;
  refused(p.cache(), {KVC_ERROR_NULL_ARGUMENT}, "kvc_prefix_match", match, {"tokens"});
  query = p.query(tokens);
  const auto priority = [&](int32_t value, int64_t time_to_live) {
    refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_set_priority",
            [&](kvc_error *e) { return kvc_prefix_set_priority(p.cache(), &query, value, time_to_live, e); });
    refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_prefix_set_session_priority",
            [&](kvc_error *e) { return kvc_prefix_set_session_priority(p.cache(), 1, value, time_to_live, e); });
  };
  priority(-1, 0);
  priority(101, 0);
  priority(0, -1);
  refused(p.cache(), {KVC_ERROR_INVALID_ARGUMENT}, "kvc_prefix_drop_session",
          [&](kvc_error *e) { return kvc_prefix_drop_session(p.cache(), 0, nullptr, e); });
  refused(p.cache(), {KVC_ERROR_OUT_OF_RANGE}, "kvc_cache_set_time",
          [&](kvc_error *e) { return kvc_cache_set_time(p.cache(), -1, e); });
  World plain;
  refused(plain.cache, {KVC_ERROR_UNSUPPORTED}, "kvc_prefix_match",
          [&](kvc_error *e) { return kvc_prefix_match(plain.cache, &query, &hit, e); }, {"KVC_CACHE_PREFIX_INDEX"});
}

TEST(Prefixes, TheConfigIsChecked) {
  const ContextPtr context = make_context();
  const auto created = [&](uint32_t flags, int64_t pages, int64_t checkpoints) {
    BuiltConfig built(Prefix::spec_of({GroupSpec{}}, 8));
    built.config.flags = flags;
    built.config.prefix_pages = pages;
    built.config.prefix_checkpoints = checkpoints;
    kvc_cache *cache = nullptr;
    const kvc_status status = kvc_cache_create(context.get(), &built.config, &cache, nullptr);
    kvc_cache_destroy(cache);
    return status;
  };
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, 4, 0), KVC_OK);
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, 0, 1), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(created(0, 1, 0), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(created(KVC_CACHE_PREFIX_INDEX, -1, 0), KVC_ERROR_INVALID_ARGUMENT);
}

// Events name pages, so they need the model's fingerprint.
TEST(Prefixes, TheConfigOfEventsIsChecked) {
  const ContextPtr context = make_context();
  const std::vector<uint8_t> model(32, 7);
  const auto create = [&](kvc_status status, uint32_t flags, const uint8_t *fingerprint, int64_t events,
                          const char *mention) {
    BuiltConfig built(Prefix::spec_of({GroupSpec{}}, 8));
    built.config.flags = flags;
    built.config.fingerprint = fingerprint;
    built.config.events_capacity = events;
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context.get(), &built.config, &cache, &error), status) << error.message;
    EXPECT_NE(std::string(error.message).find(mention), std::string::npos) << error.message;
    kvc_cache_destroy(cache);
  };
  create(KVC_OK, KVC_CACHE_PREFIX_INDEX, model.data(), 4, "");
  create(KVC_OK, 0, model.data(), 0, "");
  create(KVC_ERROR_INVALID_ARGUMENT, KVC_CACHE_PREFIX_INDEX, nullptr, 4, "events_capacity 4 without fingerprint");
  create(KVC_ERROR_INVALID_ARGUMENT, 0, model.data(), 4, "without KVC_CACHE_PREFIX_INDEX");
  create(KVC_ERROR_INVALID_ARGUMENT, KVC_CACHE_PREFIX_INDEX, model.data(), -1, "events_capacity -1");
}

}  // namespace
}  // namespace kvt
