// project: products of each head with its matrix, compared with float64, in every type and both orientations, with
// tails. Also merges into 16-bit results.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr unsigned char kFill = 0x5a;

// Rows [count, heads, dims], with gaps. They are 2 bytes off any alignment, or aligned to 16 bytes. heads_share: all
// heads share one row.
struct Rows {
  Kind kind;
  int64_t shift, head_stride, token_stride;
  std::vector<unsigned char> memory;

  Rows(Kind k, int64_t count, int64_t heads, int64_t dims, bool heads_share = false, bool aligned = false)
      : kind(k), shift(aligned ? 0 : 2), head_stride(0), token_stride(0) {
    const int64_t each = aligned ? (dims + 3 + 7) / 8 * 8 : dims + 3;
    head_stride = heads_share ? 0 : each;
    token_stride = heads_share ? each : heads * each + (aligned ? 8 : 2);
    memory.assign(static_cast<size_t>(count * token_stride * bytes_of(k)) + 2, kFill);
  }
  unsigned char* at(int64_t token, int64_t head, int64_t dim) {
    return &memory[static_cast<size_t>(shift + (token * token_stride + head * head_stride + dim) * bytes_of(kind))];
  }
  float read(int64_t token, int64_t head, int64_t dim) { return read_number(kind, at(token, head, dim)); }
  kvc_backend_tensor tensor() { return {memory.data() + shift, token_stride, head_stride, dtype_of(kind), 0}; }
};

struct Sizes {
  int tokens, heads, in, out, tail;
};

// The exact value of one output, and the error that float32 code may have.
struct Product {
  double exact, allowed;
};

// x: [tokens, in_heads, in + tail], w: [heads, in, out].
std::vector<Product> expected_products(const Sizes& s, const std::vector<float>& x, const std::vector<float>& w,
                                       int in_heads, Kind out_kind) {
  std::vector<Product> expected;
  for (int t = 0; t < s.tokens; ++t) {
    for (int h = 0; h < s.heads; ++h) {
      for (int o = 0; o < s.out; ++o) {
        double exact = 0.0, magnitude = 0.0;
        float naive = 0.0f;
        for (int i = 0; i < s.in; ++i) {
          const float a = x[static_cast<size_t>((t * in_heads + h % in_heads) * (s.in + s.tail) + i)],
                      b = w[static_cast<size_t>((h * s.in + i) * s.out + o)];
          exact += static_cast<double>(a) * static_cast<double>(b);
          magnitude += std::fabs(static_cast<double>(a) * static_cast<double>(b));
          naive += a * b;
        }
        const double rounding = out_kind == Kind::kF32 ? 0.0 : std::fabs(exact) * 0x1p-8;
        expected.push_back(
            {exact, 2 * std::fabs(static_cast<double>(naive) - exact) + 1e-5 + 1e-6 * magnitude + rounding});
      }
    }
  }
  return expected;
}

void check_product(const Sizes& s, bool transposed, bool heads_share, Kind in_kind, Kind weight_kind, Kind out_kind,
                   bool aligned = false) {
  std::mt19937 random(static_cast<unsigned>(s.tokens * 131 + s.in * 7 + s.out));
  std::normal_distribution<float> normal;
  const int in_heads = heads_share ? 1 : s.heads, row = s.in + s.tail;
  Rows in(in_kind, s.tokens, s.heads, row, heads_share, aligned);
  Rows weights(weight_kind, s.heads, transposed ? s.out : s.in, transposed ? s.in : s.out, false, aligned);
  std::vector<float> x, w;  // [tokens, in_heads, in + tail], [heads, in, out]
  for (int t = 0; t < s.tokens; ++t) {
    for (int h = 0; h < in_heads; ++h) {
      for (int i = 0; i < row; ++i) {
        x.push_back(rounded(in_kind, normal(random)));
        write_number(in_kind, in.at(t, h, i), x.back());
      }
    }
  }
  for (int h = 0; h < s.heads; ++h) {
    for (int i = 0; i < s.in; ++i) {
      for (int o = 0; o < s.out; ++o) {
        w.push_back(rounded(weight_kind, normal(random)));
        write_number(weight_kind, transposed ? weights.at(h, o, i) : weights.at(h, i, o), w.back());
      }
    }
  }
  const auto row_of = [&](int t, int h) {
    return &x[static_cast<size_t>((t * in_heads + (heads_share ? 0 : h)) * row)];
  };
  const std::vector<Product> expected = expected_products(s, x, w, in_heads, out_kind);
  for_each_implementation(
      3,
      [&](const std::string& name, kvc_backend_device* device) {
        Rows out(out_kind, s.tokens, s.heads, s.out + s.tail, false, aligned);
        kvc_backend_project args = {};
        args.num_tokens = s.tokens;
        args.num_heads = s.heads;
        args.in_dims = s.in;
        args.out_dims = s.out;
        args.tail_dims = s.tail;
        args.transposed = transposed ? 1 : 0;
        args.in = in.tensor();
        args.weights = weights.tensor();
        args.out = out.tensor();
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(test_backend()->project(device, &args, nullptr, &error), KVC_OK) << error.message;
        const Product* next = expected.data();
        for (int t = 0; t < s.tokens; ++t) {
          for (int h = 0; h < s.heads; ++h) {
            for (int o = 0; o < s.out; ++o, ++next) {
              ASSERT_LE(std::fabs(static_cast<double>(out.read(t, h, o)) - next->exact), next->allowed)
                  << name << " token " << t << " head " << h << " dim " << o;
            }
            for (int i = 0; i < s.tail; ++i) {
              ASSERT_EQ(out.read(t, h, s.out + i), rounded(out_kind, row_of(t, h)[s.in + i])) << name;
            }
            for (int b = 0; b < 3 * bytes_of(out_kind); ++b) {
              ASSERT_EQ(out.at(t, h, s.out + s.tail)[b], kFill) << name << ": a gap of out was written";
            }
          }
        }
      },
      true);
}

TEST(Project, EveryTypeAndOrientation) {
  const Kind kinds[] = {Kind::kF32, Kind::kF16, Kind::kBf16};
  for (Kind in : kinds) {
    for (Kind weights : kinds) {
      for (Kind out : kinds) {
        for (bool transposed : {false, true})
          check_product({5, 3, 36, 50, 7}, transposed, transposed, in, weights, out);
      }
    }
  }
}

TEST(Project, Sizes) {
  for (bool transposed : {false, true}) {
    for (const Sizes& s : {Sizes{1, 1, 1, 1, 0}, Sizes{1, 16, 128, 512, 64}, Sizes{97, 2, 64, 33, 0},
                           Sizes{200, 1, 17, 100, 2}, Sizes{3, 2, 1024, 1024, 0}, Sizes{7, 2, 512, 128, 0}}) {
      if (kSampling > 1 && transposed != (s.heads == 2)) continue;  // one of each; another test has both
      check_product(s, transposed, false, Kind::kBf16, Kind::kBf16, Kind::kF32);
      check_product(s, transposed, true, Kind::kF32, Kind::kF16, Kind::kBf16);
    }
  }
}

// Rows that tensor cores can load: tiles that are whole, and that end within the tokens, the inputs and the outputs.
TEST(Project, AlignedRows) {
  for (bool transposed : {false, true}) {
    for (const Sizes& s :
         {Sizes{1, 2, 8, 8, 0}, Sizes{64, 1, 64, 64, 8}, Sizes{70, 2, 136, 72, 5}, Sizes{17, 2, 512, 128, 0}}) {
      check_product(s, transposed, false, Kind::kBf16, Kind::kBf16, Kind::kF32, true);
      check_product(s, transposed, true, Kind::kF16, Kind::kF16, Kind::kF16, true);
      check_product(s, transposed, false, Kind::kF32, Kind::kBf16, Kind::kBf16, true);
      check_product(s, transposed, false, Kind::kF32, Kind::kBf16, Kind::kF32, true);
      check_product(s, transposed, false, Kind::kF32, Kind::kF16, Kind::kF32, true);
    }
  }
}

TEST(Project, MergedResultsIn16Bits) {
  constexpr int kTokens = 5, kHeads = 3, kDims = 21;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> outputs[2], lses[2];
  for (int i = 0; i < 2; ++i) {
    for (int e = 0; e < kTokens * kHeads * kDims; ++e) outputs[i].push_back(normal(random));
    for (int e = 0; e < kTokens * kHeads; ++e) lses[i].push_back(e == 4 ? -INFINITY : normal(random));
  }
  for (Kind kind : {Kind::kF16, Kind::kBf16}) {
    for_each_implementation(2, [&](const std::string& name, kvc_backend_device* device) {
      std::vector<float> whole(outputs[0].size()), lse(lses[0].size());
      Rows narrow(kind, kTokens, kHeads, kDims);
      kvc_backend_state parts[2];
      for (int i = 0; i < 2; ++i) {
        parts[i] = {{outputs[i].data(), kHeads * kDims, kDims, {kDLFloat, 32, 1}, 0}, lses[i].data(), kHeads, 1};
      }
      kvc_backend_merge args = {};
      args.parts = parts;
      args.num_parts = 2;
      args.num_heads = kHeads;
      args.dims = kDims;
      args.num_tokens = kTokens;
      args.result = {{whole.data(), kHeads * kDims, kDims, {kDLFloat, 32, 1}, 0}, lse.data(), kHeads, 1};
      kvc_error error = KVC_ERROR_INIT;
      ASSERT_EQ(test_backend()->merge(device, &args, nullptr, &error), KVC_OK);
      args.result = {narrow.tensor(), nullptr, 0, 0};
      ASSERT_EQ(test_backend()->merge(device, &args, nullptr, &error), KVC_OK);
      for (int t = 0; t < kTokens; ++t) {
        for (int h = 0; h < kHeads; ++h) {
          for (int d = 0; d < kDims; ++d) {
            EXPECT_EQ(narrow.read(t, h, d), rounded(kind, whole[static_cast<size_t>((t * kHeads + h) * kDims + d)]))
                << name;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace kvc::kernels::test
