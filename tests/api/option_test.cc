// The options of kvc_forward_attend and kvc_merge_states: results against float64, calls in parts, and wrong values.
#include <cmath>
#include <limits>
#include <random>

#include "fixture.h"

namespace kvt {
namespace {

constexpr int kHq = 6, kHkv = 2, kD = 16, kDv = 8, kPast = 21;

CacheSpec one_layer(int64_t window = 0) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 2;
  spec.max_batch_tokens = 64;
  spec.groups = {{window, 64}};
  spec.layers = {LayerSpec{0, kHq, kHkv, kD, kDv}};
  return spec;
}

// One layer, a sequence of kPast tokens, and a step of `tokens` more. A copy of all that is stored is kept.
struct Play {
  World world;
  int64_t window;
  int tokens;
  std::mt19937 random{5};
  std::vector<float> keys, values;  // [position][head][dim]
  LayerTensors past, step;
  Tensor slopes{DType::kF32, {kHq}}, sinks{DType::kF32, {kHq}};
  kvc_forward forward = 0;

  explicit Play(int n, int64_t w = 0, int threads = 1)
      : world(one_layer(w), threads, 0),
        window(w),
        tokens(n),
        past(world.spec.layers[0], kPast),
        step(world.spec.layers[0], n) {
    fill(&past, kPast);
    fill(&step, n);
    for (int h = 0; h < kHq; h++) {
      store(DType::kF32, slopes.data(), h, 0.3f / static_cast<float>(h + 1));
      store(DType::kF32, sinks.data(), h, static_cast<float>(h) * 0.5f - 1.0f);
    }
    const kvc_forward first = world.begin({world.seq}, {kPast});
    const kvc_attend_args args = past.attend_args();
    EXPECT_EQ(kvc_forward_attend(world.cache, first, 0, &args, nullptr), KVC_OK);
    EXPECT_EQ(kvc_forward_end(world.cache, first, nullptr), KVC_OK);
    forward = world.begin({world.seq}, {n});
  }

  void fill(LayerTensors *t, int64_t n) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; i++) {
      for (int h = 0; h < kHq; h++) {
        for (int d = 0; d < kD; d++) t->q.set(i, h, d, normal(random));
      }
      for (int h = 0; h < kHkv; h++) {
        for (int d = 0; d < kD; d++) keys.push_back(normal(random)), t->k.set(i, h, d, keys.back());
        for (int d = 0; d < kDv; d++) values.push_back(normal(random)), t->v.set(i, h, d, values.back());
      }
    }
  }

  kvc_status attend(const kvc_attend_args &args) {
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = kvc_forward_attend(world.cache, forward, 0, &args, &error);
    EXPECT_EQ(status, KVC_OK) << error.message;
    return status;
  }

  // Compares step.out and step.lse with the definition.
  void check(const kvc_attend_args &args) const {
    for (int i = 0; i < tokens; i++) {
      for (int h = 0; h < kHq; h++) check_row(args, i, h);
    }
  }

  void check_row(const kvc_attend_args &args, int i, int h) const {
    const int p = kPast + i, kv = h / (kHq / kHkv);
    double sum = 0, out[kDv] = {};
    if (args.sinks) sum += std::exp(static_cast<double>(load(DType::kF32, sinks.data(), h)));
    for (int j = 0; j < kPast + tokens; j++) {
      if (!(args.flags & KVC_ATTEND_NON_CAUSAL) && j > p) continue;
      if ((args.flags & KVC_ATTEND_PAST) && j >= kPast) continue;
      if ((args.flags & KVC_ATTEND_SELF) && j < kPast) continue;
      if (window > 0 && j <= p - window) continue;
      double s = 0;
      for (int d = 0; d < kD; d++) s += double{step.q.at(i, h, d)} * double{keys[(j * kHkv + kv) * kD + d]};
      s *= args.softmax_scale != 0 ? args.softmax_scale : 0.25;
      if (args.softcap != 0) s = args.softcap * std::tanh(s / args.softcap);
      const bool is_signed = (args.flags & KVC_ATTEND_ALIBI_SIGNED) != 0;
      if (args.alibi_slopes) s -= double{load(DType::kF32, slopes.data(), h)} * (is_signed ? p - j : std::abs(p - j));
      sum += std::exp(s);
      for (int d = 0; d < kDv; d++) out[d] += std::exp(s) * double{values[(j * kHkv + kv) * kDv + d]};
    }
    for (int d = 0; d < kDv; d++) {
      ASSERT_NEAR(step.out.at(i, h, d), sum > 0 ? out[d] / sum : 0.0, 2e-5) << "token " << i << " head " << h;
    }
    if (sum > 0) {
      ASSERT_NEAR(step.lse.at(i, h), std::log(sum), 2e-5) << "token " << i << " head " << h;
    } else {
      ASSERT_EQ(step.lse.at(i, h), -INFINITY);
    }
  }
};

TEST(Options, AgreeWithDenseAttention) {
  for (int tokens : {1, 3, 40}) {
    for (int64_t window : {0, 10}) {
      for (uint32_t flags : {0, 1, 2, 4, 3, 5, 8, 9, 13}) {
        for (int bits = 0; bits < 16; bits++) {
          SCOPED_TRACE("tokens " + std::to_string(tokens) + " window " + std::to_string(window) + " flags " +
                       std::to_string(flags) + " options " + std::to_string(bits));
          Play play(tokens, window, 1 + bits % 3);
          kvc_attend_args args = play.step.attend_args();
          args.flags = flags;
          if (bits & 1) args.softcap = 1.5;
          if (bits & 2) args.softmax_scale = 0.7;
          if (bits & 4) args.alibi_slopes = play.slopes.dl();
          if (bits & 8) args.sinks = play.sinks.dl();
          if (play.attend(args)) return;
          play.check(args);
        }
      }
    }
  }
}

kvc_merge_args merge_args(const std::vector<const DLTensor *> &outputs, const std::vector<const DLTensor *> &lses,
                          const DLTensor *out, const DLTensor *lse) {
  kvc_merge_args args;
  kvc_merge_args_init(&args);
  args.num_parts = static_cast<int32_t>(outputs.size());
  args.outputs = outputs.data();
  args.lses = lses.data();
  args.out = out;
  args.lse = lse;
  return args;
}

// Attends to the past before the new keys exist, then to the new keys, and merges in place. The result is that of one
// attend. Sinks belong to one of the parts.
TEST(Options, PartsMergeToTheWhole) {
  for (int tokens : {1, 40}) {
    for (bool sinks_with_past : {false, true}) {
      Play play(tokens);
      LayerTensors self(play.world.spec.layers[0], tokens);
      kvc_attend_args args = play.step.attend_args(false);
      args.flags = KVC_ATTEND_PAST;
      args.sinks = sinks_with_past ? play.sinks.dl() : nullptr;
      if (play.attend(args)) return;
      refused(play.world.cache, {KVC_ERROR_ORDER}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(play.world.cache, play.forward, 0, &args, e); },
              {"layer 0 was attended already"});
      args = play.step.attend_args();
      refused(play.world.cache, {KVC_ERROR_ORDER}, "kvc_forward_attend",
              [&](kvc_error *e) { return kvc_forward_attend(play.world.cache, play.forward, 0, &args, e); });
      args.flags = KVC_ATTEND_SELF;
      args.sinks = sinks_with_past ? nullptr : play.sinks.dl();
      args.out = self.out.dl();
      args.lse = self.lse.dl();
      if (play.attend(args)) return;
      const std::vector<const DLTensor *> outputs = {play.step.out.dl(), self.out.dl()};
      const std::vector<const DLTensor *> lses = {play.step.lse.dl(), self.lse.dl()};
      const kvc_merge_args merge = merge_args(outputs, lses, outputs[0], lses[0]);
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(kvc_merge_states(play.world.context.get(), &merge, nullptr, &error), KVC_OK) << error.message;
      args.flags = 0;
      args.sinks = play.sinks.dl();
      play.check(args);
      EXPECT_EQ(kvc_forward_end(play.world.cache, play.forward, nullptr), KVC_OK);
    }
  }
}

TEST(Options, RefusesWhatMakesNoSense) {
  Play play(3);
  kvc_cache *cache = play.world.cache;
  const auto refuse = [&](const Statuses &statuses, const std::vector<std::string> &words,
                          const std::function<void(kvc_attend_args *)> &change) {
    kvc_attend_args args = play.step.attend_args();
    change(&args);
    refused(
        cache, statuses, "kvc_forward_attend",
        [&](kvc_error *e) { return kvc_forward_attend(cache, play.forward, 0, &args, e); }, words);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (double bad : {-1.0, -0.5, 1e31, infinity, -infinity, nan}) {
    refuse({KVC_ERROR_OUT_OF_RANGE}, {"softcap", "1e-06..1e30"}, [&](kvc_attend_args *a) { a->softcap = bad; });
    refuse({KVC_ERROR_OUT_OF_RANGE}, {"softmax_scale"}, [&](kvc_attend_args *a) { a->softmax_scale = bad; });
  }
  refuse({KVC_ERROR_OUT_OF_RANGE}, {"softcap 1e-07"}, [](kvc_attend_args *a) { a->softcap = 1e-7; });
  refuse({KVC_ERROR_UNSUPPORTED}, {"0x80"}, [](kvc_attend_args *a) { a->flags = 128; });
  refuse({KVC_ERROR_INVALID_ARGUMENT}, {"0x6", "PAST and SELF"},
         [](kvc_attend_args *a) { a->flags = KVC_ATTEND_PAST | KVC_ATTEND_SELF; });
  refuse({KVC_ERROR_ORDER}, {"was not appended"},
         [](kvc_attend_args *a) { a->k = a->v = nullptr, a->flags = KVC_ATTEND_SELF; });

  Tensor good(DType::kF32, {kHq}), half(DType::kF16, {kHq}), five(DType::kF32, {kHq - 1}), flat(DType::kF32, {1, kHq});
  DLTensor strided = *good.dl(), elsewhere = *good.dl(), empty = *good.dl(), unaligned = *good.dl();
  const int64_t two = 2;
  strided.strides = const_cast<int64_t *>(&two);
  elsewhere.device.device_type = kDLCUDA;
  empty.data = nullptr;
  unaligned.byte_offset = 2;
  const std::pair<const DLTensor *, kvc_status> spoiled[] = {
      {half.dl(), KVC_ERROR_DTYPE},  {five.dl(), KVC_ERROR_SHAPE},   {flat.dl(), KVC_ERROR_RANK},
      {&strided, KVC_ERROR_STRIDE},  {&elsewhere, KVC_ERROR_DEVICE}, {&empty, KVC_ERROR_NULL_ARGUMENT},
      {&unaligned, KVC_ERROR_STRIDE}};
  for (const auto &[tensor, status] : spoiled) {
    const DLTensor *bad = tensor;
    refuse({status}, {"alibi_slopes"}, [&](kvc_attend_args *a) { a->alibi_slopes = bad; });
    refuse({status}, {"sinks"}, [&](kvc_attend_args *a) { a->sinks = bad; });
  }
  DLTensor in_out = *good.dl(), in_lse = *good.dl();
  in_out.data = play.step.out.dl()->data;
  in_lse.data = play.step.lse.dl()->data;
  refuse({KVC_ERROR_INVALID_ARGUMENT}, {"out is written and overlaps alibi_slopes"},
         [&](kvc_attend_args *a) { a->alibi_slopes = &in_out; });
  refuse({KVC_ERROR_INVALID_ARGUMENT}, {"lse is written and overlaps sinks"},
         [&](kvc_attend_args *a) { a->sinks = &in_lse; });
  const kvc_attend_args args = play.step.attend_args();
  if (!play.attend(args)) play.check(args);
}

struct Part {
  Tensor out, lse;
};

TEST(MergeStates, AnyNumberOfParts) {
  const ContextPtr context = make_context(2);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int count : {1, 2, 8, 9, 30}) {
    for (int64_t rows : {0, 1, 7, 500}) {
      std::vector<Part> parts;
      std::vector<const DLTensor *> outputs, lses;
      for (int i = 0; i < count; i++) {
        parts.push_back(
            {Tensor(DType::kF32, {rows + i % 2, 3, 5}, i % 3), Tensor(DType::kF32, {rows + i % 2, 3}, i % 2)});
      }
      for (Part &part : parts) {
        for (int64_t t = 0; t < rows; t++) {
          for (int h = 0; h < 3; h++) {
            const bool empty = random() % 4 == 0;
            part.lse.set(t, h, empty ? -INFINITY : 30 * normal(random));
            for (int d = 0; d < 5; d++) part.out.set(t, h, d, empty ? NAN : normal(random));
          }
        }
        outputs.push_back(part.out.dl());
        lses.push_back(part.lse.dl());
      }
      Tensor out(DType::kF32, {rows, 3, 5}, 2), lse(DType::kF32, {rows, 3});
      for (bool with_lse : {true, false}) {
        const kvc_merge_args args = merge_args(outputs, lses, out.dl(), with_lse ? lse.dl() : nullptr);
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(kvc_merge_states(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
        for (int64_t t = 0; t < rows; t++) {
          for (int h = 0; h < 3; h++) {
            double largest = -INFINITY, sum = 0, expected[5] = {};
            for (const Part &part : parts) largest = std::max(largest, double{part.lse.at(t, h)});
            for (const Part &part : parts) {
              if (part.lse.at(t, h) == -INFINITY) continue;
              const double weight = std::exp(double{part.lse.at(t, h)} - largest);
              sum += weight;
              for (int d = 0; d < 5; d++) expected[d] += weight * double{part.out.at(t, h, d)};
            }
            for (int d = 0; d < 5; d++) ASSERT_NEAR(out.at(t, h, d), sum > 0 ? expected[d] / sum : 0.0, 5e-6);
            if (sum > 0) {
              ASSERT_NEAR(lse.at(t, h), largest + std::log(sum), 2e-5);
            } else {
              ASSERT_EQ(lse.at(t, h), -INFINITY);
            }
          }
        }
      }
    }
  }
}

// Parts and result have any of the three types, rows are longer than a worker's scratch, and the result may be in the
// place of the first part.
TEST(MergeStates, OfSixteenBits) {
  const ContextPtr context = make_context(2);
  constexpr DType f32 = DType::kF32, f16 = DType::kF16, bf16 = DType::kBF16;
  const std::vector<DType> mixtures[] = {{bf16, bf16, bf16}, {f16, f16, f32}, {f32, bf16, f16}, {bf16, f32, f32}};
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const std::vector<DType> &types : mixtures) {
    for (const int64_t dims : {5, 8, 128, 2500}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(name_of(types[0])) + " dims " + std::to_string(dims));
        const DType result = in_place ? types[0] : types[2];
        Tensor a(types[0], {9, 2, dims}), b(types[1], {9, 2, dims}), other(result, {9, 2, dims});
        Tensor lse_a(f32, {9, 2}), lse_b(f32, {9, 2}), lse(f32, {9, 2});
        std::vector<double> wanted;
        for (int64_t t = 0; t < 9; t++) {
          for (int h = 0; h < 2; h++) {
            lse_a.set(t, h, t == 3 ? -INFINITY : normal(random));
            lse_b.set(t, h, t == 4 ? -INFINITY : normal(random));
            const double weight = 1 / (1 + std::exp(double{lse_b.at(t, h)} - double{lse_a.at(t, h)}));
            for (int d = 0; d < dims; d++) {
              a.set(t, h, d, normal(random)), b.set(t, h, d, normal(random));
              wanted.push_back(t == 3   ? double{b.at(t, h, d)}
                               : t == 4 ? double{a.at(t, h, d)}
                                        : weight * double{a.at(t, h, d)} + (1 - weight) * double{b.at(t, h, d)});
            }
          }
        }
        Tensor &out = in_place ? a : other, &out_lse = in_place ? lse_a : lse;
        const std::vector<const DLTensor *> outputs = {a.dl(), b.dl()}, lses = {lse_a.dl(), lse_b.dl()};
        const kvc_merge_args args = merge_args(outputs, lses, out.dl(), out_lse.dl());
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(kvc_merge_states(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
        const double unit = result == f32 ? 1e-6 : result == f16 ? 0x1p-11 : 0x1p-8;
        size_t i = 0;
        for (int64_t t = 0; t < 9; t++) {
          for (int h = 0; h < 2; h++) {
            for (int d = 0; d < dims; d++, i++) {
              ASSERT_NEAR(out.at(t, h, d), wanted[i], unit * std::abs(wanted[i]) + 3e-6) << t << " " << h << " " << d;
            }
          }
        }
      }
    }
  }
}

TEST(MergeStates, RefusesWrongTensors) {
  const ContextPtr context = make_context(1);
  Tensor out(DType::kF32, {4, 2, 3}), a(DType::kF32, {4, 2, 3}), b(DType::kF32, {4, 2, 3}), lse(DType::kF32, {4, 2});
  Tensor half(DType::kF16, {4, 2, 3}), whole(DType::kF32, {4, 2, 3}), narrow(DType::kF32, {4, 2, 2}),
      few(DType::kF32, {3, 2, 3}), lse_half(DType::kF16, {4, 2});
  std::vector<const DLTensor *> outputs = {a.dl(), b.dl()}, lses = {lse.dl(), lse.dl()};
  const auto refuse = [&](const Statuses &statuses, int64_t index,
                          const std::function<void(kvc_merge_args *)> &change) {
    kvc_merge_args args = merge_args(outputs, lses, out.dl(), nullptr);
    change(&args);
    const kvc_error error = refused(nullptr, statuses, "kvc_merge_states",
                                    [&](kvc_error *e) { return kvc_merge_states(context.get(), &args, nullptr, e); });
    EXPECT_EQ(error.index, index) << error.message;
  };
  const auto refuse_part = [&](kvc_status status, const DLTensor *output, const DLTensor *part_lse) {
    outputs[1] = output;
    lses[1] = part_lse;
    refuse({status}, 1, [](kvc_merge_args *) {});
    outputs[1] = b.dl();
    lses[1] = lse.dl();
  };
  refuse({KVC_ERROR_INVALID_ARGUMENT}, -1, [](kvc_merge_args *m) { m->num_parts = 0; });
  refuse({KVC_ERROR_INVALID_ARGUMENT}, -1, [](kvc_merge_args *m) { m->num_parts = -1; });
  refuse({KVC_ERROR_NULL_ARGUMENT}, -1, [](kvc_merge_args *m) { m->outputs = nullptr; });
  refuse({KVC_ERROR_NULL_ARGUMENT}, -1, [](kvc_merge_args *m) { m->lses = nullptr; });
  refuse({KVC_ERROR_NULL_ARGUMENT}, -1, [](kvc_merge_args *m) { m->out = nullptr; });
  refuse({KVC_ERROR_RANK}, -1, [&](kvc_merge_args *m) { m->out = lse.dl(); });
  DLTensor integers = *whole.dl();
  integers.dtype = {kDLInt, 32, 1};
  refuse({KVC_ERROR_DTYPE}, -1, [&](kvc_merge_args *m) { m->out = &integers; });
  refuse({KVC_ERROR_DTYPE}, -1, [&](kvc_merge_args *m) { m->lse = lse_half.dl(); });
  DLTensor overlapping = *out.dl();
  int64_t strides[3] = {1, 3, 1};
  overlapping.strides = strides;
  refuse({KVC_ERROR_STRIDE}, -1, [&](kvc_merge_args *m) { m->out = &overlapping; });
  refuse_part(KVC_ERROR_NULL_ARGUMENT, nullptr, lse.dl());
  refuse_part(KVC_ERROR_NULL_ARGUMENT, b.dl(), nullptr);
  refuse_part(KVC_ERROR_DTYPE, &integers, lse.dl());
  refuse_part(KVC_ERROR_SHAPE, narrow.dl(), lse.dl());
  refuse_part(KVC_ERROR_SHAPE, few.dl(), lse.dl());
  refuse_part(KVC_ERROR_DTYPE, b.dl(), lse_half.dl());
  refuse_part(KVC_ERROR_RANK, b.dl(), b.dl());
  kvc_error error = KVC_ERROR_INIT;
  kvc_merge_args args = merge_args(outputs, lses, out.dl(), nullptr);
  EXPECT_EQ(kvc_merge_states(nullptr, &args, nullptr, &error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(kvc_merge_states(context.get(), nullptr, nullptr, &error), KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(kvc_merge_states(context.get(), &args, &args, &error), KVC_ERROR_DEVICE);
  EXPECT_EQ(kvc_merge_states(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
}

}  // namespace
}  // namespace kvt
