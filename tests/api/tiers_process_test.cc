// Tiers and suspended sequences in a child of fork().
#include <sys/wait.h>
#include <unistd.h>

#include "tiers_fixture.h"

namespace kvt {
namespace {

TEST(Tiers, AChildOfForkWorksWithoutThem) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(100);
  for (int round = 0; round < 20; round++) {
    engine.serve(count_to(100, 1000 * round));  // the thread is at work
    const pid_t child = fork();
    if (child == 0) {
      kvc_prefix_hit hit;
      const bool ok = engine.start(prompt, &hit) == 0 && engine.serve(count_to(20, -9)).tokens == 0 &&
                      engine.traffic().pages_waiting == 0;
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (round % 4 == 3) engine.forget_all();
  }
}

TEST(Suspend, AChildOfForkKeepsItsSequences) {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add_host(int64_t{64} << 20), KVC_OK);
  const Tokens tokens = count_to(20);
  const kvc_seq seq = engine.add_sequence(), other = engine.add_sequence();
  engine.compute(seq, tokens, 0, 20);
  engine.compute(other, tokens, 0, 20);
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = engine.suspend(other) == KVC_ERROR_IO && engine.resume(seq) == KVC_ERROR_IO;
    engine.compute(other, count_to(21), 20, 21);
    _exit(ok && kvc_cache_check_invariants(engine.cache(), nullptr) == KVC_OK ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, tokens, 20);
}

}  // namespace
}  // namespace kvt
