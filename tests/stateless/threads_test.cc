// Many threads call with one context, each on a cache of its own. The header allows it, although they share the
// context's scratch.
#include <thread>

#include "flash_call.h"

namespace kvt {
namespace {

TEST(FlashAttnThreads, OneContextManyCallers) {
  const ContextPtr context = make_context(2);
  std::vector<std::thread> threads;
  for (uint32_t caller = 0; caller < 6; caller++) {
    threads.emplace_back([&context, caller] {
      for (uint32_t i = 0; i < 12; i++) {
        FlashSetting setting;
        setting.seed = 1 + caller * 100 + i;
        setting.d = setting.dv = 32;
        setting.rows = 1 + static_cast<int>((caller + i) % 4);  // scratch grows, and serves smaller calls
        setting.sq = i % 3 == 0 ? 20 : 1;
        setting.sk = 30 + 40 * static_cast<int>((caller * 5 + i) % 5);
        setting.page = caller % 2 == 0 ? 16 : 0;
        setting.append = i % 2 == 0 ? New::kEqual : New::kNone;
        setting.rotary_dim = i % 4 == 0 ? 16 : 0;
        setting.splits = i % 3 == 1 ? 3 : 0;
        setting.flags = KVC_FLASH_ATTN_CAUSAL;
        FlashCall(setting).run_and_check(context.get());
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
}

}  // namespace
}  // namespace kvt
