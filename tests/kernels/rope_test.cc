// Tables of cos and sin, and rotated K as append stores it: accuracy, pair layouts, equal bits on every target.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr Kind kKinds[] = {Kind::kF32, Kind::kF16, Kind::kBf16};

std::vector<double> frequencies_of(int rope_dim, long double theta) {
  std::vector<double> f;
  for (int i = 0; i < rope_dim / 2; ++i) f.push_back(static_cast<double>(std::pow(theta, -2.0L * i / rope_dim)));
  return f;
}

std::vector<double> make_table(kvc_backend_device* device, const std::vector<double>& f, double factor = 1.0) {
  const auto rope_dim = static_cast<int32_t>(2 * f.size());
  std::vector<double> table(static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * rope_dim), NAN);
  const kvc_backend_rope_table args = {rope_dim, 0, f.data(), factor, table.data()};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(test_backend()->rope_table(device, &args, &error), KVC_OK);
  return table;
}

std::vector<float> make_cos_sin(kvc_backend_device* device, const std::vector<double>& tables, int rope_dim,
                                const std::vector<int32_t>& positions, const int32_t* sets = nullptr) {
  std::vector<float> cos_sin(positions.size() * static_cast<size_t>(rope_dim), NAN);
  const kvc_backend_rope args = {
      rope_dim, static_cast<int32_t>(positions.size()), tables.data(), positions.data(), sets, cos_sin.data()};
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(test_backend()->rope(device, &args, nullptr, &error), KVC_OK);
  return cos_sin;
}

// The rotation of frequency f at a position, in long double.
long double angle_of(double f, int32_t position) { return static_cast<long double>(f) * position; }

TEST(Rope, AnglesAgainstLongDouble) {
  std::vector<int32_t> positions = {0, 1, 2, 63, 64, 1000, 4095, 4096, 131071, 262143, 1048575, 16777216, 1073741823};
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) positions.push_back(static_cast<int32_t>(random() >> (2 + random() % 29)));
  for (int rope_dim : {2, 64, 128, 512}) {
    for_each_implementation(4, [&](const std::string& name, kvc_backend_device* device) {
      const std::vector<double> f = frequencies_of(rope_dim, 10000.0L);
      const std::vector<float> cos_sin = make_cos_sin(device, make_table(device, f, 1.25), rope_dim, positions);
      const int half = rope_dim / 2;
      for (size_t t = 0; t < positions.size(); ++t) {
        for (int i = 0; i < half; ++i) {
          const long double angle = angle_of(f[static_cast<size_t>(i)], positions[t]);
          const float* got = &cos_sin[t * static_cast<size_t>(rope_dim)];
          // Half a unit in the last place of float32, the error of float64 where terms cancel, and the error of this
          // test.
          const auto check = [&](float value, long double exact) {
            const double wanted = static_cast<double>(exact);
            const double allowed = std::ldexp(1.0, std::max(std::ilogb(wanted), -1000) - 24) * 1.001 + 3e-15 +
                                   static_cast<double>(angle) * 0x1p-63;
            ASSERT_NEAR(value, wanted, allowed) << name << " dim " << rope_dim << " position " << positions[t];
          };
          check(got[i], 1.25L * std::cos(angle));
          check(got[half + i], 1.25L * std::sin(angle));
        }
      }
    });
  }
}

TEST(Rope, EachTokenHasItsOwnTable) {
  for_each_implementation(2, [&](const std::string&, kvc_backend_device* device) {
    const std::vector<double> slow = {0.5, 0.25}, fast = {3.0, 2.0};
    std::vector<double> tables = make_table(device, slow);
    const std::vector<double> second = make_table(device, fast, 2.0);
    tables.insert(tables.end(), second.begin(), second.end());
    const std::vector<int32_t> positions = {70, 70, 71, 71}, sets = {0, 1, 1, 0};
    const std::vector<float> cos_sin = make_cos_sin(device, tables, 4, positions, sets.data());
    for (size_t t = 0; t < positions.size(); ++t) {
      const auto& f = sets[t] == 1 ? fast : slow;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(cos_sin[t * 4 + i], (sets[t] + 1) * std::cos(f[i] * positions[t]), 1.2e-7);
        EXPECT_NEAR(cos_sin[t * 4 + 2 + i], (sets[t] + 1) * std::sin(f[i] * positions[t]), 1.2e-7);
      }
    }
  });
}

// A layer of one page of one slot a token, in its own memory.
struct Store {
  Store(Kind kind, int tokens, int heads, int dims) {
    layer.num_pages = tokens;
    layer.page_size = 1;
    layer.num_q_heads = layer.num_kv_heads = heads;
    layer.head_dim = layer.v_head_dim = dims;
    layer.format = stored_format(dtype_of(kind));
    for (auto* part : {&k_memory, &v_memory})
      part->assign(static_cast<size_t>(tokens * heads * dims * bytes_of(kind)), 0);
    layer.k = pool_of(dtype_of(kind), k_memory.data(), int64_t{heads} * dims, dims, dims, dims);
    layer.v = pool_of(dtype_of(kind), v_memory.data(), int64_t{heads} * dims, dims, dims, dims);
  }
  kvc_backend_layer layer = {};
  std::vector<unsigned char> k_memory, v_memory;
};

struct Layout {
  int rope_dim, offset;
  bool interleaved;
};

void append_all(kvc_backend_device* device, Store& store, std::vector<float>& values, const float* cos_sin) {
  std::vector<int64_t> slots;
  for (int i = 0; i < store.layer.num_pages; ++i) slots.push_back(i);
  const int64_t dims = store.layer.head_dim;
  const kvc_backend_tensor rows = {values.data(), dims * store.layer.num_kv_heads, dims, dtype_of(Kind::kF32), 0};
  kvc_backend_append args = {};
  args.layer = &store.layer;
  args.num_tokens = store.layer.num_pages;
  args.slots = slots.data();
  args.k = args.v = rows;
  args.cos_sin = cos_sin;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
}

TEST(Rope, AppendRotatesInLongDouble) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const int tokens = 6, heads = 2, dims = 80;
  const std::vector<int32_t> positions = {0, 5, 17, 100, 4095, 99999};
  std::vector<float> values(static_cast<size_t>(tokens * heads * dims));
  for (float& x : values) x = normal(random);
  for (const Layout& layout : {Layout{80, 0, false},
                               {34, 0, false},
                               {2, 0, false},
                               {64, 16, false},
                               {6, 71, false},
                               {80, 0, true},
                               {64, 16, true},
                               {34, 3, true},
                               {2, 78, true}}) {
    const std::vector<double> f = frequencies_of(layout.rope_dim, 500000.0L);
    const int half = layout.rope_dim / 2;
    for (Kind stored : kKinds) {
      std::vector<unsigned char> first;
      const auto body = [&](const std::string& name, kvc_backend_device* device) {
        Store store(stored, tokens, heads, dims);
        store.layer.rope_dim = layout.rope_dim;
        store.layer.rope_offset = layout.offset;
        store.layer.rope_interleaved = layout.interleaved ? 1 : 0;
        const auto cos_sin = make_cos_sin(device, make_table(device, f), layout.rope_dim, positions);
        append_all(device, store, values, cos_sin.data());
        for (int row = 0; row < tokens * heads; ++row) {
          const float* x = &values[static_cast<size_t>(row * dims)];
          std::vector<long double> exact(x, x + dims);
          for (int i = 0; i < half; ++i) {
            const int a = layout.offset + (layout.interleaved ? 2 * i : i), b = a + (layout.interleaved ? 1 : half);
            const long double angle = angle_of(f[static_cast<size_t>(i)], positions[row / heads]);
            exact[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
            exact[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
          }
          for (int d = 0; d < dims; ++d) {
            const double got = read_number(stored, &store.k_memory[(row * dims + d) * bytes_of(stored)]);
            const double ulp = stored == Kind::kF32 ? 0x1p-23 : stored == Kind::kF16 ? 0x1p-11 : 0x1p-8;
            const double wanted = static_cast<double>(exact[d]);
            ASSERT_NEAR(got, wanted, std::fabs(wanted) * ulp + 1e-6)
                << name << " " << name_of(stored) << " row " << row << " dim " << d << " of " << layout.rope_dim << "+"
                << layout.offset << (layout.interleaved ? " interleaved" : "");
          }
        }
        if (first.empty()) first = store.k_memory;
        EXPECT_EQ(first, store.k_memory) << name << " stores other bits than the reference";
      };
      for_each_implementation(2, body, true);
    }
  }
}

// Worked out by hand: a rotation by 90 degrees makes each pair (x, y) to (-y, x), and leaves every other dim.
TEST(Rope, PairsByHand) {
  const std::vector<float> quarter = {0.0f, 0.0f, 1.0f, 1.0f};  // cos, cos, sin, sin of two pairs
  const struct {
    Layout layout;
    std::vector<float> expected;
  } cases[] = {
      {{4, 0, false}, {-3, -4, 1, 2, 5, 6, 7}},
      {{4, 0, true}, {-2, 1, -4, 3, 5, 6, 7}},
      {{4, 3, false}, {1, 2, 3, -6, -7, 4, 5}},
      {{4, 2, true}, {1, 2, -4, 3, -6, 5, 7}},
  };
  for (const auto& c : cases) {
    const auto body = [&](const std::string& name, kvc_backend_device* device) {
      Store store(Kind::kF32, 1, 1, 7);
      store.layer.rope_dim = c.layout.rope_dim;
      store.layer.rope_offset = c.layout.offset;
      store.layer.rope_interleaved = c.layout.interleaved ? 1 : 0;
      std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
      append_all(device, store, values, quarter.data());
      for (size_t d = 0; d < 7; ++d) {
        EXPECT_EQ(read_number(Kind::kF32, &store.k_memory[d * 4]), c.expected[d]) << name << " dim " << d;
        EXPECT_EQ(read_number(Kind::kF32, &store.v_memory[d * 4]), values[d]) << name << ": V is never rotated";
      }
    };
    for_each_implementation(1, body, true);
  }
}

}  // namespace
}  // namespace kvc::kernels::test
