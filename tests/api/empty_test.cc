// Calls on no sequences: n = 0 is accepted and does nothing, without arrays, and also on caches without groups of the
// call's kind.
#include "fixture.h"

namespace kvt {
namespace {

TEST(Empty, EveryCallOverSequences) {
  World world;
  kvc_cache *cache = world.cache;
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(cache, &before, nullptr), KVC_OK);
  const std::function<kvc_status(kvc_error *)> calls[] = {
      [&](kvc_error *e) { return kvc_seq_add(cache, 0, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_remove(cache, 0, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_fork(cache, 0, nullptr, nullptr, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_truncate(cache, 0, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_lengths(cache, 0, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_max_append(cache, 0, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_exclusive_pages(cache, 0, 0, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_set_streaming(cache, 0, nullptr, nullptr, nullptr, 0, e); },
      [&](kvc_error *e) { return kvc_seq_get_streaming(cache, 0, nullptr, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_set_rope(cache, 0, nullptr, KVC_ROPE_SET_LONG, e); },
      [&](kvc_error *e) { return kvc_seq_checkpoint(cache, 0, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_encoder_lengths(cache, 0, 0, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_commit(cache, 0, nullptr, nullptr, nullptr, e); },
      [&](kvc_error *e) { return kvc_seq_tree_nodes(cache, 0, nullptr, nullptr, e); },
  };
  for (size_t i = 0; i < std::size(calls); i++) {
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(calls[i](&error), KVC_OK) << "call " << i << ": " << error.message;
  }
  ASSERT_EQ(kvc_cache_digest(cache, &after, nullptr), KVC_OK);
  EXPECT_EQ(before, after);
  // Other wrong arguments are refused without sequences too.
  EXPECT_EQ(kvc_seq_set_streaming(cache, 0, nullptr, nullptr, nullptr, 64, nullptr), KVC_ERROR_UNSUPPORTED);
  EXPECT_EQ(kvc_seq_set_rope(cache, 0, nullptr, 9, nullptr), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(kvc_seq_add(cache, -1, nullptr, nullptr), KVC_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace kvt
