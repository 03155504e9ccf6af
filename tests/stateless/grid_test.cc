// The grid of flash_attn_with_kvcache, compared with float64. It is sampled so that every two values of two axes occur
// together. Keys that no query sees are NaN, and unneeded table entries are invalid, so reading a forbidden slot is
// noticed.
#include <functional>
#include <set>

#include "flash_call.h"

namespace kvt {
namespace {

struct Axis {
  const char *name;
  std::vector<std::function<void(FlashSetting *)>> values;
};

template <class Set, class... Values>
Axis axis(const char *name, Set set, Values... values) {
  return {name, {[=](FlashSetting *s) { set(s, values); }...}};
}

struct Types {
  DType q, kv, fresh;
};
struct Pair {
  int a, b;
};
struct Mask {
  uint32_t flags;
  int left, right, chunk;
};

std::vector<Axis> axes() {
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16, e4 = DType::kE4M3, e5 = DType::kE5M2;
  constexpr uint32_t causal = KVC_FLASH_ATTN_CAUSAL, left = KVC_FLASH_ATTN_WINDOW_LEFT,
                     right = KVC_FLASH_ATTN_WINDOW_RIGHT;
  return {
      axis(
          "types", [](FlashSetting *s, Types t) { s->q = t.q, s->kv = t.kv, s->fresh = t.fresh; }, Types{f32, f32, f32},
          Types{f16, f16, f16}, Types{bf16, bf16, bf16}, Types{f32, f16, bf16}, Types{bf16, e4, bf16},
          Types{f16, e5, e5}, Types{e4, e4, e4}, Types{e5, bf16, f32}),
      axis(
          "out", [](FlashSetting *s, DType t) { s->out = t; }, f32, bf16, f16),
      axis(
          "heads", [](FlashSetting *s, Pair h) { s->hq = h.a, s->hkv = h.b; }, Pair{6, 6}, Pair{6, 3}, Pair{6, 1},
          Pair{7, 1}, Pair{16, 1}),
      axis(
          "lengths", [](FlashSetting *s, Pair l) { s->sq = l.a, s->sk = l.b; }, Pair{1, 128}, Pair{1, 339},
          Pair{3, 1024}, Pair{64, 800}, Pair{64, 256}, Pair{3, 799}, Pair{64, 2048}, Pair{128, 128}, Pair{9, 4}),
      axis(
          "page", [](FlashSetting *s, int page) { s->page = page; }, 0, 1, 3, 16, 64, 256),
      axis(
          "mask",
          [](FlashSetting *s, Mask m) {
            s->flags |= m.flags;
            s->window_left = m.left, s->window_right = m.right, s->chunk = m.chunk;
          },
          Mask{0, 0, 0, 0}, Mask{causal, 0, 0, 0}, Mask{causal | left, 40, 0, 0}, Mask{left | right, 33, 17, 0},
          Mask{right, 0, 3, 0}, Mask{left, 0, 0, 0}, Mask{causal, 0, 0, 50}, Mask{0, 0, 0, 7},
          Mask{left | right, 70, 5, 100}, Mask{causal | left, 30, 0, 41}),
      axis(
          "softcap", [](FlashSetting *s, double c) { s->softcap = c; }, 0.0, 15.0),
      axis(
          "alibi", [](FlashSetting *s, Pair a) { s->alibi = a.a, s->flags |= static_cast<uint32_t>(a.b); }, Pair{0, 0},
          Pair{1, 0}, Pair{2, 0}, Pair{1, KVC_FLASH_ATTN_ALIBI_SIGNED}, Pair{2, KVC_FLASH_ATTN_ALIBI_SIGNED}),
      axis(
          "sinks", [](FlashSetting *s, bool on) { s->sinks = on; }, false, true),
      axis(
          "pad", [](FlashSetting *s, Pad p) { s->pad = p; }, Pad::kNone, Pad::kLeft),
      axis(
          "which", [](FlashSetting *s, Rows r) { s->which = r; }, Rows::kOwn, Rows::kPermuted, Rows::kTwice),
      axis(
          "append", [](FlashSetting *s, New n) { s->append = n; }, New::kNone, New::kEqual, New::kShorter, New::kLonger,
          New::kRagged),
      axis(
          "rotary",  // of 10: none, half, whole; interleaved or not
          [](FlashSetting *s, Pair r) {
            s->rotary_dim = r.a;
            if (r.b) s->flags |= KVC_FLASH_ATTN_ROTARY_INTERLEAVED;
          },
          Pair{0, 0}, Pair{5, 0}, Pair{5, 1}, Pair{10, 0}, Pair{10, 1}),
      axis(
          "splits", [](FlashSetting *s, int n) { s->splits = n; }, 0, 1, 3, 17),
      axis(
          "dims", [](FlashSetting *s, Pair d) { s->d = d.a, s->dv = d.b; }, Pair{64, 64}, Pair{40, 24}, Pair{32, 96},
          Pair{128, 128}, Pair{18, 7}),
      axis(
          "ragged q", [](FlashSetting *s, bool on) { s->ragged_q = on; }, false, true),
      axis(
          "layout", [](FlashSetting *s, bool hnd) { s->hnd = hnd; }, false, true),
      axis(
          "scale", [](FlashSetting *s, double x) { s->scale = x; }, 0.0, 0.3),
      axis(
          "descale", [](FlashSetting *s, bool on) { s->descale = on; }, false, true),
      axis(
          "qv", [](FlashSetting *s, Qv qv) { s->qv = qv; }, Qv::kNone, Qv::kNone, Qv::kOneBuffer, Qv::kApart),
      axis(
          "lengths as", [](FlashSetting *s, bool scalar) { s->scalar_lengths = scalar; }, false, true),
  };
}

// If two values contradict each other, that of the later axis is changed.
void settle(FlashSetting *s) {
  if (s->append == New::kNone || is_quantised(s->q) || is_quantised(s->fresh)) s->rotary_dim = 0;
  s->rotary_dim = s->rotary_dim * s->d / 10 / 2 * 2;
  if (s->which == Rows::kTwice && s->append != New::kNone) s->which = Rows::kPermuted;
  if (s->qv != Qv::kNone && is_quantised(s->kv)) s->descale = false;
  if (s->fresh == DType::kE4M3 && s->kv != DType::kE4M3) s->fresh = s->kv;
}

using Choice = std::vector<size_t>;  // value of each axis

std::set<std::vector<size_t>> pairs_of(const Choice &choice) {
  std::set<std::vector<size_t>> pairs;
  for (size_t a = 0; a < choice.size(); a++) {
    for (size_t b = a + 1; b < choice.size(); b++) pairs.insert({a, choice[a], b, choice[b]});
  }
  return pairs;
}

// Choices in which every pair occurs. Repeatedly takes the one of some random choices that has the most new pairs.
std::vector<Choice> choices(const std::vector<Axis> &all) {
  std::mt19937 random(20);
  std::set<std::vector<size_t>> missing;
  for (size_t a = 0; a < all.size(); a++) {
    for (size_t b = a + 1; b < all.size(); b++) {
      for (size_t i = 0; i < all[a].values.size(); i++) {
        for (size_t j = 0; j < all[b].values.size(); j++) missing.insert({a, i, b, j});
      }
    }
  }
  std::vector<Choice> chosen;
  while (!missing.empty()) {
    Choice best;
    size_t most = 0;
    for (int i = 0; i < 30; i++) {
      Choice choice;
      for (const Axis &axis : all) choice.push_back(random() % axis.values.size());
      const std::vector<size_t> &wanted = *missing.begin();
      choice[wanted[0]] = wanted[1];
      choice[wanted[2]] = wanted[3];
      size_t count = 0;
      for (const auto &pair : pairs_of(choice)) count += missing.count(pair);
      if (count <= most) continue;
      most = count;
      best = choice;
    }
    for (const auto &pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

TEST(FlashAttnGrid, EveryPairOfValues) {
  const std::vector<Axis> all = axes();
  const std::vector<ContextPtr> contexts = [] {
    std::vector<ContextPtr> made;
    for (int threads : {1, 3}) made.push_back(make_context(threads));
    for (const std::string &simd : simd_targets()) made.push_back(make_context(2, simd.c_str()));
    return made;
  }();
  uint32_t seed = 100;
  for (const Choice &choice : choices(all)) {
    FlashSetting setting;
    for (size_t a = 0; a < all.size(); a++) all[a].values[choice[a]](&setting);
    settle(&setting);
    setting.seed = seed++;
    if (seed % test_every() != 0) continue;
    FlashCall call(setting);
    call.run_and_check(contexts[seed % contexts.size()].get());
    if (HasFatalFailure()) return;
  }
}

// Queries before the first key. A causal query there sees nothing, and so does one of an earlier chunk. Others see what
// they always see.
TEST(FlashAttnGrid, MoreQueriesThanKeys) {
  for (const std::string &simd : simd_targets()) {
    const ContextPtr context = make_context(2, simd.c_str());
    for (int sq : {9, 40}) {
      for (int chunk : {0, 7}) {
        for (uint32_t flags : {0u, uint32_t{KVC_FLASH_ATTN_CAUSAL}, uint32_t{KVC_FLASH_ATTN_WINDOW_RIGHT}}) {
          FlashSetting setting;
          setting.sq = sq, setting.sk = 4, setting.flags = flags, setting.chunk = chunk, setting.pad = Pad::kLeft;
          setting.window_right = flags == KVC_FLASH_ATTN_WINDOW_RIGHT ? 6 : 0;
          setting.sinks = sq == 40;
          FlashCall(setting).run_and_check(context.get(), true);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(FlashAttnGrid, LongContext) {
  const ContextPtr context = make_context(2);
  for (int page : {0, 64}) {
    FlashSetting setting;
    setting.q = setting.kv = setting.fresh = setting.out = DType::kBF16;
    setting.hq = 16, setting.hkv = 1, setting.rows = 2;
    setting.sq = 16, setting.sk = test_every() > 1 ? 2000 : 20000, setting.page = page, setting.append = New::kEqual;
    setting.flags = KVC_FLASH_ATTN_CAUSAL;
    setting.rotary_dim = 64;
    FlashCall(setting).run_and_check(context.get());
  }
}

}  // namespace
}  // namespace kvt
