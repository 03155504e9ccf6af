// copy_slots and copies of states are cut into parts. With any number of threads, the bytes are those of one copy after
// another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "host_stub.h"
#include "pool.h"
#include "scene.h"

namespace kvc::kernels::test {
namespace {

enum class Layout { kHnd, kNhd, kLatent };  // kLatent: one head, V within K

struct CopyCase {
  Kind kind;
  Layout layout;
  int heads, k_dim, v_dim, page_size;
};

// A layer with pages of random bytes; int8 has random scales.
class CopyPools {
 public:
  explicit CopyPools(const CopyCase& c) : bytes_(bytes_of(c.kind)) {
    layer.num_pages = kPages;
    layer.page_size = c.page_size;
    layer.num_q_heads = layer.num_kv_heads = c.heads;
    layer.head_dim = c.k_dim;
    layer.v_head_dim = c.v_dim;
    const DLDataType dtype = dtype_of(c.kind);
    layer.format = stored_format(dtype);
    layer.row_kind = c.layout == Layout::kLatent ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
    std::mt19937 random(11);
    for (int which = 0; which < 2; ++which) {
      kvc_backend_pool& pool = which == 0 ? layer.k : layer.v;
      const int dims = which == 0 ? c.k_dim : c.v_dim;
      const int64_t page_stride = int64_t{dims} * c.heads * c.page_size + 8;  // with a gap, which must not change
      const bool nhd = c.layout == Layout::kNhd;
      rows[which].resize(static_cast<size_t>(page_stride * kPages * bytes_));
      for (unsigned char& b : rows[which]) b = static_cast<unsigned char>(random());
      pool = pool_of(dtype, rows[which].data(), page_stride, nhd ? dims : int64_t{dims} * c.page_size,
                     nhd ? dims * c.heads : dims, dims);
      kvc_backend_scales& scale = which == 0 ? layer.k_scales : layer.v_scales;
      if (c.kind != Kind::kI8) continue;
      scales[which].resize(static_cast<size_t>(kPages * c.page_size * c.heads));
      for (float& s : scales[which]) s = static_cast<float>(random());
      scale = scales_of_tokens(scales[which].data(), int64_t{c.page_size} * c.heads, c.page_size, 1);
    }
    if (layer.row_kind == KVC_BACKEND_ROW_LATENT) {
      layer.v = layer.k;
      layer.v_scales = layer.k_scales;
    }
  }

  // The definition: one copy after another, one slot after another, all heads.
  void copy(const std::vector<kvc_backend_slot_copy>& copies) {
    for (const kvc_backend_slot_copy& copy : copies) {
      for (int i = 0; i < copy.num_slots; ++i) copy_slot(copy.source_slot + i, copy.target_slot + i);
    }
  }

  static constexpr int kPages = 24;
  kvc_backend_layer layer = {};
  std::vector<unsigned char> rows[2];
  std::vector<float> scales[2];

 private:
  int64_t place(const kvc_backend_pool& pool, int64_t slot, int head) const {
    return slot / layer.page_size * pool.page_stride_bytes + slot % layer.page_size * pool.slot_stride_bytes +
           head * pool.head_stride_bytes;
  }
  void copy_slot(int64_t source, int64_t target) {
    for (int which = 0; which < (layer.row_kind == KVC_BACKEND_ROW_LATENT ? 1 : 2); ++which) {
      const kvc_backend_pool& pool = which == 0 ? layer.k : layer.v;
      const int64_t row = (which == 0 ? layer.head_dim : layer.v_head_dim) * bytes_;
      for (int h = 0; h < layer.num_kv_heads; ++h) {
        std::memcpy(&rows[which][place(pool, target, h)], &rows[which][place(pool, source, h)],
                    static_cast<size_t>(row));
        if (scales[which].empty()) continue;
        const auto scale = [&](int64_t slot) {
          return (slot / layer.page_size * layer.num_kv_heads + h) * layer.page_size + slot % layer.page_size;
        };
        scales[which][scale(target)] = scales[which][scale(source)];
      }
    }
  }
  const int64_t bytes_;
};

// Runs of slots between any places. Sources are targets of earlier copies, and targets are sources of earlier ones.
// Within a page runs overlap, with the target before the source.
std::vector<kvc_backend_slot_copy> random_copies(const kvc_backend_layer& layer, int64_t num_slots) {
  std::mt19937 random(17);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  std::vector<kvc_backend_slot_copy> copies;
  for (int64_t moved = 0; moved < num_slots;) {
    const auto slots = static_cast<int32_t>(1 + below(layer.page_size));
    const int64_t from = below(layer.page_size - slots + 1), to = below(layer.page_size - slots + 1);
    const int64_t page = below(CopyPools::kPages), target_page = below(4) == 0 ? page : below(CopyPools::kPages);
    const bool same = page == target_page;
    copies.push_back({page * layer.page_size + (same ? std::max(from, to) : from),
                      target_page * layer.page_size + (same ? std::min(from, to) : to), slots, 0});
    moved += slots;
  }
  return copies;
}

// The CPU backend, opened on a host with this many threads.
class Device {
 public:
  explicit Device(int threads) : Device(threads, threads) {}
  Device(int threads, int own_threads) : host_(threads, own_threads) {
    const kvc_backend_open_args args = {host_.host(), 0, 0, nullptr};
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(backend_->open(&args, &device_, &error), KVC_OK) << error.message;
  }
  ~Device() { backend_->close(device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void copy(const kvc_backend_layer& layer, const std::vector<kvc_backend_slot_copy>& copies) {
    kvc_error error = KVC_ERROR_INIT;
    const auto count = static_cast<int64_t>(copies.size());
    EXPECT_EQ(backend_->copy_slots(device_, &layer, copies.data(), count, nullptr, &error), KVC_OK);
  }
  void move(const kvc_backend_states& args) {
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(backend_->states(device_, &args, nullptr, &error), KVC_OK);
  }
  int runs() const { return host_.runs(); }

 private:
  HostStub host_;
  const kvc_backend* const backend_ = test_backend();
  kvc_backend_device* device_ = nullptr;
};

TEST(Parts, EveryNumberOfThreadsMovesWhatOneAfterAnotherMoves) {
  const CopyCase cases[] = {
      {Kind::kBf16, Layout::kHnd, 8, 128, 128, 16},  // cut by heads only, up to 8 threads
      {Kind::kF32, Layout::kNhd, 3, 80, 48, 7},      // heads that threads share unevenly
      {Kind::kI8, Layout::kHnd, 5, 128, 192, 16},    // scales go with the first piece of their rows
      {Kind::kF32, Layout::kHnd, 1, 256, 256, 4},    // one head, so rows are cut into pieces
      {Kind::kI8, Layout::kLatent, 1, 576, 512, 8},  // one pool
      {Kind::kF16, Layout::kNhd, 2, 24, 10, 5},      // rows are shorter than a cache line, so they are not cut
  };
  for (const CopyCase& c : cases) {
    const CopyPools before(c);
    const int64_t slot_bytes = int64_t{c.heads} * (c.k_dim + c.v_dim) * bytes_of(c.kind);
    // More bytes than the caches take, enough for all parts of 17 threads, and so few that there are no parts.
    for (const int64_t bytes : {int64_t{17} << 20, int64_t{5} << 20, int64_t{10'000}}) {
      CopyPools expected(c);
      const std::vector<kvc_backend_slot_copy> copies = random_copies(before.layer, bytes / slot_bytes);
      expected.copy(copies);
      for (int threads = 1; threads <= 17; threads += bytes > 10'000'000 ? 8 : 1) {
        Device device(threads);
        CopyPools pools(c);
        device.copy(pools.layer, copies);
        EXPECT_EQ(device.runs(), threads > 1 && bytes > 1'000'000 ? 1 : 0);
        for (int which = 0; which < 2; ++which) {
          EXPECT_TRUE(pools.rows[which] == expected.rows[which])
              << name_of(c.kind) << " " << c.heads << " heads, " << threads << " threads, pool " << which;
          EXPECT_TRUE(pools.scales[which] == expected.scales[which]) << c.heads << " heads, " << threads << " threads";
        }
      }
    }
  }
}

// No thread of the host may be used under the cache's lock. With one thread of our own, run() is not called.
TEST(Parts, TheHostsThreadsAreNotUsedForCopies) {
  const CopyCase c = {Kind::kF32, Layout::kHnd, 8, 128, 128, 16};
  CopyPools pools(c), expected(c);
  const std::vector<kvc_backend_slot_copy> copies = random_copies(pools.layer, 2000);
  expected.copy(copies);
  Device device(8, 1);
  device.copy(pools.layer, copies);
  EXPECT_EQ(device.runs(), 0);
  EXPECT_TRUE(pools.rows[0] == expected.rows[0] && pools.rows[1] == expected.rows[1]);
}

// The definition: copies row i of `rows` to or from page pages[i] of `pool`.
void move_states(const kvc_backend_states& args) {
  const auto bytes = static_cast<size_t>(args.state_bytes);
  for (int32_t i = 0; i < args.num_rows; ++i) {
    char* const row = static_cast<char*>(args.rows) + i * args.row_stride_bytes;
    char* const state = static_cast<char*>(args.pool) + args.pages[i] * args.page_stride_bytes;
    for (size_t j = 0; args.pages[i] == KVC_BACKEND_STATE_FILL && j < bytes; ++j) {
      row[j] = reinterpret_cast<const char*>(&args.fill)[j % 8];
    }
    if (args.pages[i] < 0) continue;
    std::memcpy(args.store != 0 ? state : row, args.store != 0 ? row : state, bytes);
  }
}

TEST(Parts, AStateIsMovedWholeByAnyNumberOfThreads) {
  constexpr int kRows = 5, kPages = 4;
  const int32_t load[kRows] = {3, KVC_BACKEND_STATE_FILL, 0, KVC_BACKEND_STATE_SKIP, 2};
  const int32_t store[kRows] = {1, KVC_BACKEND_STATE_SKIP, 3, KVC_BACKEND_STATE_SKIP, 0};
  for (const int64_t state_bytes : {int64_t{12}, int64_t{70'000}, int64_t{300'003}}) {
    const int64_t page_bytes = state_bytes + 40;
    std::mt19937 random(23);
    std::vector<unsigned char> some_pool(static_cast<size_t>(page_bytes * kPages)),
        some_rows(static_cast<size_t>(state_bytes * kRows));
    for (std::vector<unsigned char>* bytes : {&some_pool, &some_rows}) {
      for (unsigned char& b : *bytes) b = static_cast<unsigned char>(random());
    }
    for (int threads = 1; threads <= 17; ++threads) {
      Device device(threads);
      for (const bool storing : {false, true}) {
        std::vector<unsigned char> pool = some_pool, rows = some_rows;
        std::vector<unsigned char> expected_pool = pool, expected_rows = rows;
        kvc_backend_states args = {
            pool.data(), page_bytes,      rows.data(), state_bytes,       state_bytes, storing ? store : load,
            kRows,       storing ? 1 : 0, nullptr,     0x1122334455667788};
        device.move(args);
        args.pool = expected_pool.data();
        args.rows = expected_rows.data();
        move_states(args);
        EXPECT_TRUE(rows == expected_rows) << threads << " threads, " << state_bytes << " bytes, store " << storing;
        EXPECT_TRUE(pool == expected_pool) << threads << " threads, " << state_bytes << " bytes, store " << storing;
      }
      EXPECT_EQ(device.runs(), state_bytes > 100 ? 2 : 0);
    }
  }
}

}  // namespace
}  // namespace kvc::kernels::test
