// Arguments that kvc_page_keys refuses. tests/keys has the vectors.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "fixture.h"

namespace kvt {
namespace {

// Valid arguments for three pages. A test makes one of them wrong.
struct Call {
  std::array<uint8_t, 32> fingerprint = {1}, parent = {2};
  std::array<uint8_t, 64> hashes = {3};
  std::array<uint8_t, 3 * 32> keys = {};
  std::vector<int32_t> tokens = std::vector<int32_t>(50, 7);
  int64_t begins[2] = {4, 20}, lengths[2] = {16, 5};
  kvc_page_keys_args args;

  Call() {
    kvc_page_keys_args_init(&args);
    args.tokens = tokens.data(), args.num_tokens = 50, args.page_size = 16;
    args.fingerprint = fingerprint.data();
    args.adapter = args.salt = parent.data(), args.adapter_bytes = args.salt_bytes = 8;
    args.num_media = 2, args.media_begins = begins, args.media_tokens = lengths, args.media_hashes = hashes.data();
  }
  kvc_status run(kvc_error *error) { return kvc_page_keys(&args, keys.data(), error); }
};

// Makes the arguments wrong by `spoil`, and expects one of the statuses and that no key is written.
kvc_error spoiled(kvc_status status, const std::string &mention, const std::function<void(Call &)> &spoil) {
  Call call;
  spoil(call);
  const kvc_error error =
      refused(nullptr, {status}, "kvc_page_keys", [&](kvc_error *e) { return call.run(e); }, {mention});
  EXPECT_TRUE(std::all_of(call.keys.begin(), call.keys.end(), [](uint8_t byte) { return byte == 0; })) << mention;
  return error;
}

TEST(PageKeys, ValidCalls) {
  Call call;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(call.run(&error), KVC_OK) << error.message;
  const auto all = call.keys;
  // Computes the key of the last page from that of the second page. Then everything about the root may be left out.
  call.args.parent = all.data() + 32, call.args.begin = 32, call.args.tokens += 32, call.args.num_tokens = 18;
  call.args.fingerprint = call.args.adapter = nullptr, call.args.adapter_bytes = 0;
  ASSERT_EQ(call.run(&error), KVC_OK) << error.message;
  EXPECT_TRUE(std::equal(all.begin() + 64, all.end(), call.keys.begin()));
  call.args.num_tokens = 0, call.args.tokens = nullptr;
  EXPECT_EQ(kvc_page_keys(&call.args, nullptr, &error), KVC_OK) << error.message;
}

TEST(PageKeys, ArraysThatAreNeeded) {
  const auto null = [](auto kvc_page_keys_args::*field, const char *name) {
    spoiled(KVC_ERROR_NULL_ARGUMENT, name, [&](Call &call) { call.args.*field = nullptr; });
  };
  null(&kvc_page_keys_args::tokens, "tokens");
  null(&kvc_page_keys_args::fingerprint, "fingerprint");
  null(&kvc_page_keys_args::adapter, "adapter");
  null(&kvc_page_keys_args::salt, "salt");
  null(&kvc_page_keys_args::media_begins, "media_begins");
  null(&kvc_page_keys_args::media_tokens, "media_tokens");
  null(&kvc_page_keys_args::media_hashes, "media_hashes");
}

TEST(PageKeys, NumbersOutOfRange) {
  const auto range = [](int64_t kvc_page_keys_args::*field, const char *name, std::vector<int64_t> values) {
    for (const int64_t value : values) {
      spoiled(KVC_ERROR_OUT_OF_RANGE, name, [&](Call &call) { call.args.*field = value; });
    }
  };
  const int64_t tokens = int64_t{1} << 30, small = int64_t{1} << 20;
  range(&kvc_page_keys_args::num_tokens, "num_tokens", {-1, tokens + 1, INT64_MIN, INT64_MAX});
  range(&kvc_page_keys_args::page_size, "page_size", {-1, 0, small + 1, INT64_MIN, INT64_MAX});
  range(&kvc_page_keys_args::begin, "begin", {-16, tokens + 16, INT64_MIN, INT64_MAX});
  range(&kvc_page_keys_args::adapter_bytes, "adapter_bytes", {-1, small + 1, INT64_MAX});
  range(&kvc_page_keys_args::salt_bytes, "salt_bytes", {-1, small + 1, INT64_MAX});
  range(&kvc_page_keys_args::salt_begin, "salt_begin", {-1, INT64_MIN});
  range(&kvc_page_keys_args::num_media, "num_media", {-1, tokens + 1, INT64_MIN});
}

TEST(PageKeys, SpansInOrder) {
  for (const int64_t begin : {int64_t{-1}, int64_t{0}, int64_t{19}, INT64_MIN, INT64_MAX}) {
    const kvc_error error =
        spoiled(KVC_ERROR_OUT_OF_RANGE, "media_begins", [&](Call &call) { call.begins[1] = begin; });
    EXPECT_EQ(error.index, 1);
  }
  for (const int64_t length : {int64_t{-1}, int64_t{0}, INT64_MIN, INT64_MAX}) {
    const kvc_error error =
        spoiled(KVC_ERROR_OUT_OF_RANGE, "media_tokens", [&](Call &call) { call.lengths[0] = length; });
    EXPECT_EQ(error.index, 0);
  }
}

TEST(PageKeys, BeginIsAPageWithAParent) {
  const auto parent = [](Call &call) { call.args.parent = call.parent.data(); };
  spoiled(KVC_ERROR_INVALID_ARGUMENT, "parent", [](Call &call) { call.args.begin = 16; });
  spoiled(KVC_ERROR_INVALID_ARGUMENT, "page_size", [&](Call &call) { parent(call), call.args.begin = 17; });
  spoiled(KVC_ERROR_INVALID_ARGUMENT, "reserved", [](Call &call) { call.args.reserved = 1; });
  spoiled(KVC_ERROR_STRUCT_SIZE, "args", [](Call &call) { call.args.struct_size = 8; });
}

// A salt that begins after the last possible position changes nothing.
TEST(PageKeys, SaltsFarAway) {
  Call near, far;
  near.args.salt_bytes = 0;
  far.args.salt_begin = INT64_MAX;
  ASSERT_EQ(near.run(nullptr), KVC_OK);
  ASSERT_EQ(far.run(nullptr), KVC_OK);
  EXPECT_EQ(near.keys, far.keys);
}

}  // namespace
}  // namespace kvt
