// What kvc_redis_tier_open and the URL of a plug-in refuse, with the values in the message.
#include "redis_server.h"

extern "C" kvc_status kvc_tier_open(uint32_t version, const char *options, kvc_tier *tier, kvc_error *error);

namespace kvt {
namespace {

struct Refusal {
  kvc_status status = KVC_OK;
  std::string message;
};

Refusal open(void (*change)(kvc_redis_config *)) {
  RedisConfig config("127.0.0.1:1");
  config.flags = KVC_REDIS_LAZY;
  change(&config);
  kvc_tier tier = {};
  kvc_error error = KVC_ERROR_INIT;
  Refusal refusal;
  refusal.status = kvc_redis_tier_open(&config, &tier, &error);
  if (refusal.status == KVC_OK) tier.close(tier.self);
  refusal.message = error.message;
  return refusal;
}

Refusal open_url(const char *url) {
  kvc_tier tier = {};
  kvc_error error = KVC_ERROR_INIT;
  Refusal refusal;
  refusal.status = kvc_tier_open(KVC_TIER_VERSION, url, &tier, &error);
  if (refusal.status == KVC_OK) tier.close(tier.self);
  refusal.message = error.message;
  return refusal;
}

TEST(RedisOptions, OfTheConfig) {
  const struct {
    void (*change)(kvc_redis_config *);
    kvc_status status;
    const char *message;
  } cases[] = {
      {[](kvc_redis_config *) {}, KVC_OK, ""},
      {[](kvc_redis_config *c) { c->struct_size = 3; }, KVC_ERROR_STRUCT_SIZE, "struct_size is 3"},
      {[](kvc_redis_config *c) { c->flags = 8; }, KVC_ERROR_UNSUPPORTED, "flags 0x8"},
      {[](kvc_redis_config *c) { c->reserved = 1; }, KVC_ERROR_UNSUPPORTED, "reserved 0x1"},
      {[](kvc_redis_config *c) { c->address = ""; }, KVC_ERROR_INVALID_ARGUMENT, "\"\" is no address"},
      {[](kvc_redis_config *c) { c->address = "host:"; }, KVC_ERROR_INVALID_ARGUMENT, "\"host:\" is no address"},
      {[](kvc_redis_config *c) { c->address = "host:70000"; }, KVC_ERROR_INVALID_ARGUMENT, "\"host:70000\""},
      {[](kvc_redis_config *c) { c->address = "a:1,"; }, KVC_ERROR_INVALID_ARGUMENT, "\"\" is no address"},
      {[](kvc_redis_config *c) { c->address = "[::1"; }, KVC_ERROR_INVALID_ARGUMENT, "\"[::1\" is no address"},
      {[](kvc_redis_config *c) { c->address = "[::1]:5,h,/a/socket"; }, KVC_OK, ""},
      {[](kvc_redis_config *c) { c->user = "u"; }, KVC_ERROR_INVALID_ARGUMENT, "user u has no password"},
      {[](kvc_redis_config *c) { c->prefix = "a{b}"; }, KVC_ERROR_INVALID_ARGUMENT, "prefix has 4 bytes"},
      {[](kvc_redis_config *c) { c->database = -1; }, KVC_ERROR_OUT_OF_RANGE, "database -1 is outside 0.."},
      {[](kvc_redis_config *c) { c->timeout_ms = -5; }, KVC_ERROR_OUT_OF_RANGE, "timeout_ms -5"},
      {[](kvc_redis_config *c) { c->time_to_live_ms = -1; }, KVC_ERROR_OUT_OF_RANGE, "time_to_live_ms -1"},
      {[](kvc_redis_config *c) { c->lookup_ms = 99; }, KVC_ERROR_OUT_OF_RANGE, "lookup_ms 99 is outside 100..600000"},
      {[](kvc_redis_config *c) { c->threads = 65; }, KVC_ERROR_OUT_OF_RANGE, "threads 65 is outside 1..64"},
      {[](kvc_redis_config *c) { c->max_items = 2000000; }, KVC_ERROR_OUT_OF_RANGE, "max_items 2000000"},
      {[](kvc_redis_config *c) { c->flags |= KVC_REDIS_TLS | KVC_REDIS_TLS_NO_VERIFY; }, KVC_OK, ""},
      {[](kvc_redis_config *c) { c->flags |= KVC_REDIS_TLS_NO_VERIFY; }, KVC_ERROR_INVALID_ARGUMENT,
       "tls_no_verify needs TLS"},
      {[](kvc_redis_config *c) { c->tls_server_name = "n"; }, KVC_ERROR_INVALID_ARGUMENT, "tls_server_name needs TLS"},
      {[](kvc_redis_config *c) { c->flags |= KVC_REDIS_TLS, c->tls_key_file = "/k"; }, KVC_ERROR_INVALID_ARGUMENT,
       "tls_key_file /k has no tls_certificate_file"},
      {[](kvc_redis_config *c) { c->flags |= KVC_REDIS_TLS, c->address = "h,/a/socket"; }, KVC_ERROR_INVALID_ARGUMENT,
       "/a/socket is the path of a socket"},
      {[](kvc_redis_config *c) { c->flags |= KVC_REDIS_TLS, c->tls_ca_file = "/no/file"; }, KVC_ERROR_IO,
       "tls_ca_file /no/file: No such file or directory"},
  };
  for (const auto &c : cases) {
    const Refusal refusal = open(c.change);
    EXPECT_EQ(refusal.status, c.status) << refusal.message;
    EXPECT_NE(refusal.message.find(c.message), std::string::npos) << refusal.message << "  lacks  " << c.message;
  }
  kvc_tier tier = {};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_redis_tier_open(nullptr, &tier, &error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_STREQ(error.message, "kvc_redis_tier_open: config is NULL");
  const RedisConfig config("h");
  EXPECT_EQ(kvc_redis_tier_open(&config, nullptr, nullptr), KVC_ERROR_NULL_ARGUMENT);
}

TEST(RedisOptions, OfAUrl) {
  const struct {
    const char *url;
    kvc_status status;
    const char *message;
  } cases[] = {
      {"redis://user:p%40ss@127.0.0.1:1/3?lazy=1&prefix=x&timeout_ms=5&lookup_ms=100&threads=1", KVC_OK, ""},
      {"redis://:secret@[::1]:1,b:2?lazy=1", KVC_OK, ""},
      {"unix:///a/socket?lazy=1&database=2", KVC_OK, ""},
      {"rediss://user:p@127.0.0.1:1,b/3?lazy=1&tls_server_name=n&tls_no_verify=1", KVC_OK, ""},
      {"rediss://host?lazy=1&tls_certificate_file=%2Fno", KVC_ERROR_IO, "tls_certificate_file /no: No such file"},
      {"rediss://host?tls_no_verify=2", KVC_ERROR_INVALID_ARGUMENT, "tls_no_verify=2 is no parameter"},
      {"redis://host?tls_ca_file=x", KVC_ERROR_INVALID_ARGUMENT, "tls_ca_file needs TLS"},
      {"rediss://", KVC_ERROR_INVALID_ARGUMENT, "\"\" is no address"},
      {"http://host", KVC_ERROR_INVALID_ARGUMENT, "\"http://host\" does not begin with redis://, rediss:// or unix://"},
      {"redis://", KVC_ERROR_INVALID_ARGUMENT, "\"\" is no address"},
      {"redis://word@host", KVC_ERROR_INVALID_ARGUMENT, "no user:password before the @"},
      {"redis://host/x", KVC_ERROR_INVALID_ARGUMENT, "database=x is no parameter"},
      {"redis://host?colour=red", KVC_ERROR_INVALID_ARGUMENT, "colour=red is no parameter"},
      {"redis://host?threads=many", KVC_ERROR_INVALID_ARGUMENT, "threads=many"},
      {"redis://host?threads=99999999999", KVC_ERROR_OUT_OF_RANGE, "threads 99999999999"},
      {"redis://host?lazy=2", KVC_ERROR_INVALID_ARGUMENT, "lazy=2"},
      {"redis://host?prefix=%4", KVC_ERROR_INVALID_ARGUMENT, "two hexadecimal digits"},
      {"redis://host?prefix=%zz", KVC_ERROR_INVALID_ARGUMENT, "two hexadecimal digits"},
  };
  for (const auto &c : cases) {
    const Refusal refusal = open_url(c.url);
    EXPECT_EQ(refusal.status, c.status) << c.url << ": " << refusal.message;
    EXPECT_NE(refusal.message.find(c.message), std::string::npos) << refusal.message << "  lacks  " << c.message;
  }
}

}  // namespace
}  // namespace kvt
