// Spike probes. A wrong key among thousands is hidden by any tolerance. Here one key has a score of +30 and a value of
// its own. It is at and beside every edge: of windows, chunks, padding, causal ends, pages and appended tokens. A query
// that sees it has its value, and others have none of it, so the mask must be exact.
#include <set>

#include "flash_call.h"

namespace kvt {
namespace {

// All keys are equal and have value 0. The spike scores 30 more and has value 1. Only keys that a query sees are
// numbers.
void check_spike(FlashSetting setting, int64_t spike, kvc_context *context) {
  setting.rows = 2, setting.hq = 4, setting.hkv = 2, setting.d = setting.dv = 16;
  FlashCall call(setting);
  for (int r = 0; r < setting.rows; r++) {
    for (int64_t key = 0; key < call.cached(r); key++) {
      bool seen = false;
      for (int64_t i = 0; i < call.queries(r) && !seen; i++) seen = call.sees(r, i, key);
      for (int h = 0; h < setting.hkv && seen; h++) {
        const float score = key == spike ? 1.0f : 0.0f;
        call.set_key(r, key, h, std::vector<float>(16, score), std::vector<float>(16, score));
      }
    }
    for (int64_t i = 0; i < setting.sq; i++) {
      for (int h = 0; h < setting.hq; h++) {
        for (int64_t d = 0; d < 16; d++) call.q.set({r, i, h, d}, 7.5f);  // 16 dims * 7.5 / sqrt(16) = 30
      }
    }
    for (int64_t i = 0; i < call.new_tokens(r); i++) {
      for (int h = 0; h < setting.hkv; h++) {
        for (int64_t d = 0; d < 16; d++) {
          const float score = call.cached(r) + i == spike ? 1.0f : 0.0f;
          call.k.set({r, i, h, d}, score);
          call.v.set({r, i, h, d}, score);
        }
      }
    }
  }
  SCOPED_TRACE(describe(setting) + " spike " + std::to_string(spike));
  kvc_flash_attn_args args = call.args();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context, &args, nullptr, &error), KVC_OK) << error.message;
  for (int r = 0; r < setting.rows; r++) {
    for (int64_t i = 0; i < setting.sq; i++) {
      const bool sees = call.sees(r, i, spike);
      for (int h = 0; h < setting.hq; h++) {
        for (int64_t d = 0; d < 16; d++) {
          ASSERT_NEAR(call.out.get({r, i, h, d}), sees ? 1.0f : 0.0f, 1e-3) << "row " << r << " query " << i;
        }
      }
    }
  }
}

struct Rule {
  uint32_t flags;
  int left, right, chunk;
};

class FlashAttnSpikes : public ::testing::TestWithParam<const char *> {};

// Keys around the positions of the first and the last query, and around all edges of the rule for them.
TEST_P(FlashAttnSpikes, AtEveryEdge) {
  const ContextPtr context = make_context(2, GetParam());
  unsigned number = 0;
  constexpr uint32_t causal = KVC_FLASH_ATTN_CAUSAL, left = KVC_FLASH_ATTN_WINDOW_LEFT,
                     right = KVC_FLASH_ATTN_WINDOW_RIGHT;
  for (const Rule &rule :
       {Rule{0, 0, 0, 0}, Rule{causal, 0, 0, 0}, Rule{causal | left, 37, 0, 0}, Rule{left | right, 21, 9, 0},
        Rule{causal, 0, 0, 29}, Rule{0, 0, 0, 29}, Rule{causal | left, 0, 0, 0}}) {
    for (int sq : {1, 5, 40}) {
      for (int page : {0, 3, 16}) {
        FlashSetting setting;
        setting.flags = rule.flags, setting.window_left = rule.left, setting.window_right = rule.right;
        setting.chunk = rule.chunk, setting.sq = sq, setting.sk = 300, setting.page = page;
        setting.pad = page == 3 ? Pad::kLeft : Pad::kNone;
        setting.append = page == 16 ? New::kShorter : New::kNone;
        setting.seed = static_cast<uint32_t>(sq + page);
        const FlashCall probe(setting);
        std::set<int64_t> spikes = {0, 1, 15, 16, 17};
        const auto add = [&](int64_t key) {
          for (int64_t d = -1; d <= 1; d++) spikes.insert(key + d);
        };
        for (int64_t p : {int64_t{300 - sq}, int64_t{299}}) {
          add(p);
          add(p - rule.left);
          add(p + rule.right + 1);
          if (rule.chunk) add(probe.pad(0) + (p - probe.pad(0)) / rule.chunk * rule.chunk);
        }
        add(probe.pad(0));
        add(probe.cached(0));
        for (int64_t spike : spikes) {
          if (spike < 0 || spike >= 300 || ++number % test_every() != 0) continue;
          check_spike(setting, spike, context.get());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FlashAttnSpikes, ::testing::Values("reference", nullptr),
                         [](const auto &info) { return std::string(info.param == nullptr ? "best" : info.param); });

}  // namespace
}  // namespace kvt
