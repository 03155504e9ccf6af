// append, copy_slots, gather: the right bits at the right places.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

constexpr Kind kKinds[] = {Kind::kF32, Kind::kF16, Kind::kBf16};

// A layer of `pages` pages in its own memory, NHD or HND.
struct Pools {
  Pools(Kind kind, int pages, int page_size, int heads, int k_dim, int v_dim, bool nhd) {
    layer.num_pages = pages;
    layer.page_size = page_size;
    layer.num_q_heads = layer.num_kv_heads = heads;
    layer.head_dim = k_dim;
    layer.v_head_dim = v_dim;
    layer.format = stored_format(dtype_of(kind));
    layer.rope_dim = k_dim / 2 * 2;
    const auto lay_out = [&](kvc_backend_pool& pool, int dims, std::vector<unsigned char>& memory) {
      const int64_t page_stride = int64_t{dims} * heads * page_size;
      memory.assign(static_cast<size_t>(page_stride * pages * bytes_of(kind)), 0xee);
      pool = pool_of(dtype_of(kind), memory.data(), page_stride, nhd ? dims : dims * page_size,
                     nhd ? dims * heads : dims, dims);
    };
    lay_out(layer.k, k_dim, k_memory);
    lay_out(layer.v, v_dim, v_memory);
  }
  static int64_t element(const kvc_backend_layer& l, const kvc_backend_pool& pool, int64_t slot, int head) {
    const int64_t bytes = slot / l.page_size * pool.page_stride_bytes + slot % l.page_size * pool.slot_stride_bytes +
                          head * pool.head_stride_bytes;
    return bytes / (stored_dtype(l).bits / 8);
  }
  kvc_backend_layer layer = {};
  std::vector<unsigned char> k_memory, v_memory;
};

kvc_backend_tensor tensor_of(Kind kind, int heads, int dims, std::vector<unsigned char>& memory) {
  kvc_backend_tensor tensor = {};
  tensor.data = memory.data();
  tensor.dtype = dtype_of(kind);
  tensor.head_stride = dims;
  tensor.token_stride = int64_t{dims} * heads;
  return tensor;
}

// Numbers that rounding treats in different ways: ties, subnormals, overflow, infinities, ordinary ones.
float awkward(std::mt19937& random) {
  const uint32_t bits = static_cast<uint32_t>(random());
  float x;
  switch (bits % 8) {
    case 0:
      return std::ldexp(static_cast<float>(bits >> 20), -24 - static_cast<int>(bits >> 8) % 4);
    case 1:
      return 65504.0f + static_cast<float>(bits >> 27);
    case 2:
      return (bits & 8) != 0 ? INFINITY : -INFINITY;
    case 3:
      return 1.0f + static_cast<float>(bits >> 19) * 0x1p-12f;
    case 4:
      return -0.0f;
    case 5:
      return std::ldexp(1.0f + static_cast<float>(bits >> 30), -130);
    default:
      std::memcpy(&x, &bits, 4);
      return std::isnan(x) ? 1.0f : x;
  }
}

TEST(Append, RoundsOnceToNearestEven) {
  std::mt19937 random(3);
  const int tokens = 40, heads = 3, k_dim = 21, v_dim = 64;
  for (Kind source : kKinds) {
    for (Kind stored : kKinds) {
      std::vector<unsigned char> k(tokens * heads * k_dim * 4), v(tokens * heads * v_dim * 4);
      for (int i = 0; i < tokens * heads * k_dim; ++i) write_number(source, &k[i * bytes_of(source)], awkward(random));
      for (int i = 0; i < tokens * heads * v_dim; ++i) write_number(source, &v[i * bytes_of(source)], awkward(random));
      std::vector<int64_t> slots(tokens);
      for (int t = 0; t < tokens; ++t) slots[t] = t % 9 == 4 ? -1 : (t * 17) % 60;
      for_each_implementation(
          3,
          [&](const std::string& name, kvc_backend_device* device) {
            Pools pools(stored, 20, 3, heads, k_dim, v_dim, tokens % 2 == 0);
            kvc_backend_append args = {};
            args.layer = &pools.layer;
            args.num_tokens = tokens;
            args.slots = slots.data();
            args.k = tensor_of(source, heads, k_dim, k);
            args.v = tensor_of(source, heads, v_dim, v);
            kvc_error error = KVC_ERROR_INIT;
            ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
            std::vector<unsigned char> expected_k(pools.k_memory.size(), 0xee), expected_v(pools.v_memory.size(), 0xee);
            const auto expect = [&](std::vector<unsigned char>& out, const std::vector<unsigned char>& in,
                                    const kvc_backend_pool& pool, int dims) {
              for (int t = 0; t < tokens; ++t) {
                if (slots[t] < 0) continue;
                for (int h = 0; h < heads; ++h) {
                  for (int d = 0; d < dims; ++d) {
                    const float x = read_number(source, &in[((t * heads + h) * dims + d) * bytes_of(source)]);
                    const int64_t e = Pools::element(pools.layer, pool, slots[t], h) + d;
                    write_number(stored, &out[e * bytes_of(stored)], x);
                  }
                }
              }
            };
            expect(expected_k, k, pools.layer.k, k_dim);
            expect(expected_v, v, pools.layer.v, v_dim);
            EXPECT_EQ(pools.k_memory, expected_k) << name << " " << name_of(source) << " to " << name_of(stored);
            EXPECT_EQ(pools.v_memory, expected_v) << name << " " << name_of(source) << " to " << name_of(stored);
          },
          true);
    }
  }
}

TEST(Append, NaNStaysNaN) {
  for (Kind source : kKinds) {
    for (Kind stored : kKinds) {
      for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
        Pools pools(stored, 1, 1, 1, 40, 40, false);
        std::vector<unsigned char> values(40 * 4, 0xff), other = values;
        const int64_t slot = 0;
        kvc_backend_append args = {};
        args.layer = &pools.layer;
        args.num_tokens = 1;
        args.slots = &slot;
        args.k = tensor_of(source, 1, 40, values);
        args.v = tensor_of(source, 1, 40, other);
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
        for (int d = 0; d < 40; ++d) {
          ASSERT_TRUE(std::isnan(read_number(stored, &pools.k_memory[d * bytes_of(stored)]))) << name;
        }
      });
    }
  }
}

// The upper half of each float32 with some lower halves, and every float16 and bfloat16, NaN too. All targets store the
// same bits.
TEST(Append, EveryPatternAsTheReferenceStoresIt) {
  constexpr uint16_t kSecondHalves[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
  const int dim = 512, tokens = 65536 / dim;
  std::vector<int64_t> slots(tokens);
  std::iota(slots.begin(), slots.end(), int64_t{0});
  for (Kind source : kKinds) {
    for (uint16_t second : kSecondHalves) {
      if (source != Kind::kF32 && second != 0) continue;
      std::vector<unsigned char> values(65536 * bytes_of(source)), others(tokens * 4);
      for (uint32_t first = 0; first < 65536; ++first) {
        const uint32_t bits = source == Kind::kF32 ? first << 16 | second : first;
        std::memcpy(&values[first * bytes_of(source)], &bits, bytes_of(source));
      }
      for (Kind stored : kKinds) {
        std::vector<unsigned char> expected;  // the reference comes first
        for_each_implementation(
            1,
            [&](const std::string& name, kvc_backend_device* device) {
              Pools pools(stored, tokens, 1, 1, dim, 1, false);
              kvc_backend_append args = {};
              args.layer = &pools.layer;
              args.num_tokens = tokens;
              args.slots = slots.data();
              args.k = tensor_of(source, 1, dim, values);
              args.v = tensor_of(source, 1, 1, others);
              kvc_error error = KVC_ERROR_INIT;
              ASSERT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
              if (expected.empty()) expected = pools.k_memory;
              EXPECT_TRUE(pools.k_memory == expected) << name << " " << name_of(source) << " to " << name_of(stored);
            },
            true);
      }
    }
  }
}

// Many tokens are stored with writes that bypass the caches of the CPU. The bits are those of few tokens: rows rotated,
// converted or unchanged, beginning within a cache line or at one. Neighbouring bytes stay unchanged.
TEST(Append, ManyTokensStoreWhatFewDo) {
  struct Rows {
    Kind source, stored;
    int heads, dims;
    bool rotated;
  };
  for (const Rows& c : {Rows{Kind::kF32, Kind::kF32, 4, 512, true}, Rows{Kind::kF32, Kind::kF32, 4, 509, false},
                        Rows{Kind::kBf16, Kind::kF32, 3, 700, false}}) {
    const int page = 16, tokens = (17 << 20) / (2 * c.heads * c.dims * bytes_of(c.stored)) / page * page;
    std::mt19937 random(21);
    std::vector<unsigned char> k(static_cast<size_t>(tokens * c.heads * c.dims * bytes_of(c.source))), v(k.size());
    for (int i = 0; i < tokens * c.heads * c.dims; ++i) {
      for (std::vector<unsigned char>* values : {&k, &v}) {
        write_number(c.source, &(*values)[i * bytes_of(c.source)], static_cast<float>(random()) * 0x1p-30f);
      }
    }
    std::vector<float> cos_sin(static_cast<size_t>(tokens) * c.dims / 2 * 2);
    for (float& x : cos_sin) x = static_cast<float>(random()) * 0x1p-32f;
    std::vector<int64_t> slots(tokens);
    for (int t = 0; t < tokens; ++t) slots[t] = t % 50 == 4 ? -1 : int64_t{t} * 7 % tokens;
    for_each_implementation(3, [&](const std::string& name, kvc_backend_device* device) {
      const auto store = [&](int step) {
        Pools pools(c.stored, tokens / page, page, c.heads, c.dims, c.dims, false);
        for (int begin = 0; begin < tokens; begin += step) {
          kvc_backend_append args = {};
          args.layer = &pools.layer;
          args.num_tokens = std::min(step, tokens - begin);
          args.slots = &slots[begin];
          args.k = tensor_of(c.source, c.heads, c.dims, k);
          args.v = tensor_of(c.source, c.heads, c.dims, v);
          for (kvc_backend_tensor* rows : {&args.k, &args.v}) {
            rows->data = static_cast<unsigned char*>(rows->data) + begin * rows->token_stride * bytes_of(c.source);
          }
          args.cos_sin = c.rotated ? &cos_sin[static_cast<size_t>(begin) * pools.layer.rope_dim] : nullptr;
          kvc_error error = KVC_ERROR_INIT;
          EXPECT_EQ(test_backend()->append(device, &args, nullptr, &error), KVC_OK);
        }
        return pools;
      };
      const Pools many = store(tokens), few = store(400);
      EXPECT_TRUE(many.k_memory == few.k_memory) << name << ", " << c.dims << " dims";
      EXPECT_TRUE(many.v_memory == few.v_memory) << name << ", " << c.dims << " dims";
    });
  }
}

TEST(Slots, CopyAndGather) {
  for (Kind kind : kKinds) {
    for (bool nhd : {false, true}) {
      for_each_implementation(4, [&](const std::string&, kvc_backend_device* device) {
        const int heads = 3, k_dim = 10, v_dim = 7, page_size = 5;
        Pools pools(kind, 8, page_size, heads, k_dim, v_dim, nhd);
        std::mt19937 random(1);
        for (unsigned char& b : pools.k_memory) b = static_cast<unsigned char>(random());
        for (unsigned char& b : pools.v_memory) b = static_cast<unsigned char>(random());
        const Pools before = pools;
        // A whole page, a part of one, nothing; then nodes of a tree to the front of their page and across pages, in
        // order.
        const kvc_backend_slot_copy copies[] = {{0, 20, 5, 0},  {10, 35, 3, 0}, {15, 30, 0, 0},
                                                {12, 11, 3, 0}, {16, 14, 1, 0}, {18, 15, 2, 0}};
        kvc_backend_layer layer = pools.layer;
        layer.k.data = pools.k_memory.data();
        layer.v.data = pools.v_memory.data();
        kvc_error error = KVC_ERROR_INIT;
        ASSERT_EQ(test_backend()->copy_slots(device, &layer, copies, 6, nullptr, &error), KVC_OK);
        const int bytes = bytes_of(kind);
        std::vector<int64_t> slots;
        for (int64_t s = 8 * page_size - 1; s >= 0; --s) slots.push_back(s);
        std::vector<unsigned char> k(slots.size() * heads * k_dim * bytes), v(slots.size() * heads * v_dim * bytes);
        const kvc_backend_gather gather = {
            &layer, static_cast<int64_t>(slots.size()), slots.data(), k.data(), v.data(), nullptr, nullptr};
        ASSERT_EQ(test_backend()->gather(device, &gather, nullptr, &error), KVC_OK);
        std::vector<int64_t> source_of(8 * page_size);
        for (size_t s = 0; s < source_of.size(); ++s) source_of[s] = static_cast<int64_t>(s);
        for (const kvc_backend_slot_copy& c : copies) {
          for (int i = 0; i < c.num_slots; ++i) source_of[c.target_slot + i] = source_of[c.source_slot + i];
        }
        for (size_t t = 0; t < slots.size(); ++t) {
          const int64_t source = source_of[slots[t]];
          for (int h = 0; h < heads; ++h) {
            ASSERT_EQ(0,
                      std::memcmp(&k[(t * heads + h) * k_dim * bytes],
                                  &before.k_memory[Pools::element(layer, layer.k, source, h) * bytes], k_dim * bytes));
            ASSERT_EQ(0,
                      std::memcmp(&v[(t * heads + h) * v_dim * bytes],
                                  &before.v_memory[Pools::element(layer, layer.v, source, h) * bytes], v_dim * bytes));
          }
        }
      });
    }
  }
}

// A store of gathered rows restores them. Other slots, and those of skipped tokens, do not change.
TEST(Slots, StoreIsTheInverseOfGather) {
  for (Kind kind : kKinds) {
    for (bool nhd : {false, true}) {
      for_each_implementation(4, [&](const std::string&, kvc_backend_device* device) {
        const int heads = 3, k_dim = 10, v_dim = 7, page_size = 5, bytes = bytes_of(kind);
        Pools pools(kind, 8, page_size, heads, k_dim, v_dim, nhd);
        std::mt19937 random(1);
        for (unsigned char& b : pools.k_memory) b = static_cast<unsigned char>(random());
        for (unsigned char& b : pools.v_memory) b = static_cast<unsigned char>(random());
        const Pools before = pools;
        kvc_backend_layer layer = pools.layer;
        layer.k.data = pools.k_memory.data();
        layer.v.data = pools.v_memory.data();
        const std::vector<int64_t> read = {17, 3, 39, 0}, written = {8, 21, -1, 30};
        std::vector<unsigned char> k(4 * heads * k_dim * bytes), v(4 * heads * v_dim * bytes);
        kvc_error error = KVC_ERROR_INIT;
        kvc_backend_gather args = {&layer, 4, read.data(), k.data(), v.data(), nullptr, nullptr};
        ASSERT_EQ(test_backend()->gather(device, &args, nullptr, &error), KVC_OK);
        args.slots = written.data();
        args.store = 1;
        ASSERT_EQ(test_backend()->gather(device, &args, nullptr, &error), KVC_OK);
        for (int64_t slot = 0; slot < 8 * page_size; ++slot) {
          const auto at = std::find(written.begin(), written.end(), slot);
          const int64_t source = at == written.end() ? slot : read[static_cast<size_t>(at - written.begin())];
          for (int h = 0; h < heads; ++h) {
            ASSERT_EQ(0,
                      std::memcmp(&pools.k_memory[Pools::element(layer, layer.k, slot, h) * bytes],
                                  &before.k_memory[Pools::element(layer, layer.k, source, h) * bytes], k_dim * bytes));
            ASSERT_EQ(0,
                      std::memcmp(&pools.v_memory[Pools::element(layer, layer.v, slot, h) * bytes],
                                  &before.v_memory[Pools::element(layer, layer.v, source, h) * bytes], v_dim * bytes));
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
