// The backend as a whole: opening, refusals, memory, the float environment, cancellation, guard pages.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "host_stub.h"
#include "pool.h"
#include "scene.h"
#include "staged_attend.h"

namespace kvc::kernels::test {
namespace {

TEST(Backend, TableAndVersion) {
  ASSERT_NE(test_backend(), nullptr);
  EXPECT_EQ(test_backend()->struct_size, sizeof(kvc_backend));
  EXPECT_STREQ(test_backend()->name, "cpu");
  EXPECT_EQ(test_backend()->device_type, kDLCPU);
}

TEST(Backend, ReferenceIsListedFirstAndNeverTheDefault) {
  const HostStub host(1);
  const char* names[16];
  const int count = test_backend()->implementations(nullptr, names, 16);
  ASSERT_GE(count, 2);
  EXPECT_STREQ(names[0], "reference");
  EXPECT_STREQ(names[1], "scalar");
#if defined(__aarch64__)
  EXPECT_STREQ(names[count - 1], "neon");
#endif
  kvc_backend_open_args args = {host.host(), 0, 0, nullptr};
  kvc_error error = KVC_ERROR_INIT;
  kvc_backend_device* device = nullptr;
  ASSERT_EQ(test_backend()->open(&args, &device, &error), KVC_OK);
  EXPECT_STREQ(test_backend()->implementation(device), names[count - 1]);
  test_backend()->close(device);
  args.simd = "avx1024";
  EXPECT_EQ(test_backend()->open(&args, &device, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_NE(std::strstr(error.message, "avx1024"), nullptr);
  EXPECT_NE(std::strstr(error.message, "reference, scalar"), nullptr);
}

#if defined(__x86_64__)
bool has_amx() {
  const char* names[16];
  const int count = test_backend()->implementations(nullptr, names, 16);
  return std::strcmp(names[count - 1], "avx512_amx") == 0;
}

// Bits 17 and 18 of XINUSE: the configuration and the data of AMX's tiles. The compiler's intrinsic needs a flag.
bool tiles_in_use() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 0x60000u) != 0;
}

TEST(Backend, NoTileStateIsLeft) {
  if (!has_amx()) GTEST_SKIP() << "no AMX here";
  SceneConfig config;
  config.q = config.kv = Kind::kBf16;
  config.rows = {{20, 30}};
  Scene scene(config);
  for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    EXPECT_FALSE(tiles_in_use()) << name;
  });
}

// If the system refuses tiles (here because a thread's signal stack is too small for them), another target is the
// default.
TEST(Backend, RefusedTiles) {
  if (!has_amx()) GTEST_SKIP() << "no AMX here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process of its own, which has not requested them yet
  const auto open_without_tiles = [] {
    static unsigned char memory[8192];
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = sizeof memory;
    if (sigaltstack(&stack, nullptr) != 0) std::exit(2);
    const HostStub host(1);
    kvc_backend_open_args args = {host.host(), 0, 0, nullptr};
    kvc_error error = KVC_ERROR_INIT;
    kvc_backend_device* device = nullptr;
    if (test_backend()->open(&args, &device, &error) != KVC_OK) std::exit(3);
    if (std::strncmp(test_backend()->implementation(device), "avx512", 6) != 0 ||
        std::strcmp(test_backend()->implementation(device), "avx512_amx") == 0) {
      std::exit(4);
    }
    test_backend()->close(device);
    args.simd = "avx512_amx";
    if (test_backend()->open(&args, &device, &error) != KVC_ERROR_UNSUPPORTED) std::exit(5);
    std::exit(std::strstr(error.message, "avx512_amx") != nullptr ? 0 : 6);
  };
  EXPECT_EXIT(open_without_tiles(), testing::ExitedWithCode(0), "");
}
#endif

TEST(Backend, ChecksLayers) {
  for_each_implementation(1, [&](const std::string&, kvc_backend_device* device) {
    const Scene scene({});
    const kvc_backend_layer good = scene.layer();
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(test_backend()->check_layer(device, &good, &error), KVC_OK);
    const auto refuses = [&](auto change) {
      kvc_backend_layer layer = good;
      change(layer);
      error.message[0] = 0;
      EXPECT_EQ(test_backend()->check_layer(device, &layer, &error), KVC_ERROR_UNSUPPORTED);
      EXPECT_NE(error.message[0], 0);
    };
    refuses([](kvc_backend_layer& l) { l.head_dim = 1153; });
    refuses([](kvc_backend_layer& l) { l.v_head_dim = 0; });
    refuses([](kvc_backend_layer& l) { l.format = stored_format({kDLUInt, 8, 1}); });
    refuses([](kvc_backend_layer& l) { l.format = stored_format({kDLFloat, 64, 1}); });
    // Formats that only the descriptor can express.
    refuses([](kvc_backend_layer& l) { l.format.v = stored_format({kDLFloat8_e4m3fn, 8, 1}).v; });
    refuses([](kvc_backend_layer& l) { l.format.k.num_segments = 2; });
    refuses([](kvc_backend_layer& l) { l.format.k.segments[0].scales.place = KVC_BACKEND_SCALES_ROW; });
    refuses([](kvc_backend_layer& l) { l.num_q_heads = 5; });
    kvc_backend_tiling tiling = {};
    test_backend()->tiling(device, &good, &tiling);
    EXPECT_GE(tiling.query_tile, 1);
    EXPECT_GE(tiling.decode_max_queries, 1);
    EXPECT_GE(tiling.heads_per_item, 1);
    EXPECT_EQ(tiling.min_split_keys % tiling.split_align, 0);
  });
}

TEST(Backend, Memory) {
  for_each_implementation(1, [&](const std::string&, kvc_backend_device* device) {
    const kvc_backend* backend = test_backend();
    kvc_error error = KVC_ERROR_INIT;
    for (int huge : {0, 1}) {
      for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{3} << 20}) {
        void* memory = nullptr;
        ASSERT_EQ(backend->allocate(device, bytes, 256, huge, &memory, &error), KVC_OK);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (huge && !tests_cuda() ? 2 << 20 : 256), 0u);
        for (int64_t i = 0; i < bytes; i += 1000) ASSERT_EQ(static_cast<unsigned char*>(memory)[i], 0);
        std::memset(memory, 1, static_cast<size_t>(bytes));
        backend->release(device, memory, bytes);
      }
    }
    void* memory = nullptr;
    const int64_t absurd = int64_t{1} << 60;
    EXPECT_EQ(backend->allocate(device, absurd, 256, 1, &memory, &error), KVC_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(std::strstr(error.message, std::to_string(absurd).c_str()), nullptr) << error.message;
    backend->release(device, nullptr, 5);
  });
}

// The float control register: the bits that a host may set, and functions that read and write it.
#if defined(__x86_64__)
constexpr uint64_t kHostile = 0x1f80 | 0x8040 | 0x6000;  // FTZ, DAZ, towards zero
uint64_t float_control() { return _mm_getcsr(); }
void set_float_control(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr uint64_t kHostile = uint64_t{0xf} << 22;  // DN, FZ, towards zero
uint64_t float_control() {
  uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_float_control(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#endif

// A host with flush-to-zero and another rounding mode gets the same bits, and its settings are restored.
TEST(Backend, FloatEnvironment) {
  SceneConfig config;
  config.rows = {{1, 50}, {20, 30}};
  config.splits = 2;
  Scene scene(config);
  for (int p = 0; p < 30; ++p) {
    for (int d = 0; d < config.v_head_dim; ++d) scene.v(1, p, 0, d) *= 1e-39f;
  }
  scene.store();
  for_each_implementation(1, [&](const std::string& name, kvc_backend_device* device) {
    scene.attend(test_backend(), device);
    std::vector<float> expected;
    for (int t = 0; t < scene.num_tokens(); ++t) {
      for (int d = 0; d < config.v_head_dim; ++d) expected.push_back(scene.out(t, 0, d));
    }
    const uint64_t saved = float_control();
    set_float_control(kHostile);
    scene.attend(test_backend(), device);
    const uint64_t after = float_control();
    set_float_control(saved);
    EXPECT_EQ(after, kHostile) << name;
    size_t i = 0;
    bool subnormal = false;
    for (int t = 0; t < scene.num_tokens(); ++t) {
      for (int d = 0; d < config.v_head_dim; ++d) {
        subnormal = subnormal || std::fpclassify(expected[i]) == FP_SUBNORMAL;
        ASSERT_EQ(scene.out(t, 0, d), expected[i++]) << name;
      }
    }
    EXPECT_TRUE(subnormal) << "the scene was meant to need subnormals";
  });
}

TEST(Backend, Cancel) {
  SceneConfig config;
  config.rows = {{3, 50}};
  Scene scene(config);
  for_each_implementation(2, [&](const std::string&, kvc_backend_device* device) {
    scene.set_cancel(1);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(scene.try_attend(test_backend(), device, &error), KVC_ERROR_CANCELLED);
    EXPECT_EQ(scene.out(0, 0, 0), scene.unwritten());
    scene.set_cancel(0);
    EXPECT_EQ(scene.try_attend(test_backend(), device, &error), KVC_OK);
  });
}

// Memory that ends at an unreadable page, so one byte too many is noticed.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    mapped_ = (bytes + page_ - 1) / page_ * page_ + page_;
    base_ =
        static_cast<unsigned char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_ - page_, page_, PROT_NONE);
    data_ = base_ + mapped_ - page_ - bytes;
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() const { return data_; }

 private:
  size_t page_, mapped_;
  unsigned char *base_, *data_;
};

TEST(Backend, BuffersAtGuardPages) {
  for (Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    for (int dim : {1, 17, 33, 64, 80}) {
      for (int queries : {1, 19}) {
        const int heads = 3, kv_length = 21;
        const size_t bytes = static_cast<size_t>(bytes_of(kind));
        const Guarded k(kv_length * dim * bytes), v(kv_length * dim * bytes), q(queries * heads * dim * bytes);
        const Guarded out(queries * heads * dim * bytes), lse(queries * heads * sizeof(float));
        kvc_backend_layer layer = {};
        layer.k = pool_of(dtype_of(kind), k.data(), dim, dim, dim, dim);  // pages of one token
        layer.v = pool_of(dtype_of(kind), v.data(), dim, dim, dim, dim);
        layer.num_pages = kv_length;
        layer.page_size = 1;
        layer.num_q_heads = heads;
        layer.num_kv_heads = 1;
        layer.head_dim = layer.v_head_dim = dim;
        layer.format = stored_format(dtype_of(kind));
        layer.softmax_scale = 1.0f;
        layer.rope_class = -1;
        int32_t nodes[32], root = 0, levels = 1;
        for (int i = 0; i < 32; ++i) nodes[i] = i < kv_length ? i : 0x7fffffff;
        std::vector<int32_t> positions(queries);
        for (int i = 0; i < queries; ++i) positions[i] = kv_length - queries + i;
        const int32_t token_begin[] = {0, queries}, length = kv_length;
        const kvc_backend_rows rows = plain_rows(1, queries, token_begin, &length, positions.data());
        const kvc_backend_tables tables = {nodes, &root, &levels};
        const kvc_backend_item item = {0, 0, queries, 0, 1, 0, kv_length, -1, -1, KVC_BACKEND_PART_ALL, 0, 0, 0};
        const kvc_backend_tensor q_tensor = {q.data(), int64_t{heads} * dim, dim, dtype_of(kind), 0};
        const kvc_backend_tensor out_tensor = {out.data(), int64_t{heads} * dim, dim, dtype_of(kind), 0};
        for_each_implementation(1, [&](const std::string&, kvc_backend_device* device) {
          kvc_backend_plan plan = {};
          plan.arrays.rows = rows;
          plan.arrays.tables = tables;
          plan.arrays.items = &item;
          plan.layer = &layer;
          plan.num_items = 1;
          kvc_backend_attend args = {};
          args.layer = &layer;
          args.q = q_tensor;
          args.out = out_tensor;
          args.lse = static_cast<float*>(lse.data());
          args.lse_token_stride = heads;
          args.lse_head_stride = 1;
          kvc_error error = KVC_ERROR_INIT;
          ASSERT_EQ(staged_attend(test_backend(), device, args, plan, nullptr, &error), KVC_OK);
          EXPECT_NEAR(args.lse[0], std::log(kv_length - queries + 1.0), 1e-5);  // all scores are 0
        });
      }
    }
  }
}

// Offsets beyond 2^31 elements: a page far into a sparse mapping.
TEST(Backend, FarPages) {
  const int64_t page_stride = int64_t{1} << 28;
  const size_t bytes = static_cast<size_t>(page_stride) * 10 * sizeof(uint16_t);
  void* pool = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pool == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse pool";
  kvc_backend_layer layer = {};
  const DLDataType dtype = dtype_of(Kind::kBf16);
  layer.k = pool_of(dtype, pool, page_stride, 64, 64, 64);
  layer.v = pool_of(dtype, static_cast<uint16_t*>(pool) + 4096, page_stride, 64, 64, 64);
  layer.num_pages = 10;
  layer.page_size = 16;
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = layer.v_head_dim = 64;
  layer.format = stored_format(dtype);
  layer.softmax_scale = 1.0f;
  std::vector<float> k(64, 1.0f), v(64, 3.0f), q(64, 0.5f), out(64);
  const int64_t slot = 9 * 16;
  int32_t nodes[32] = {9}, root = 0, levels = 1, position = 0, length = 1;
  const int32_t token_begin[] = {0, 1};
  for_each_implementation(1, [&](const std::string&, kvc_backend_device* device) {
    const kvc_backend_tensor k_tensor = {k.data(), 64, 64, dtype_of(Kind::kF32), 0};
    const kvc_backend_tensor v_tensor = {v.data(), 64, 64, dtype_of(Kind::kF32), 0};
    const kvc_backend_append append = {&layer, 1, &slot, k_tensor, v_tensor, {}, {}, nullptr};
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(test_backend()->append(device, &append, nullptr, &error), KVC_OK);
    const kvc_backend_rows rows = plain_rows(1, 1, token_begin, &length, &position);
    const kvc_backend_tables tables = {nodes, &root, &levels};
    const kvc_backend_item item = {0, 0, 1, 0, 1, 0, 1, -1, -1, KVC_BACKEND_PART_ALL, 0, 0, 0};
    kvc_backend_plan plan = {};
    plan.arrays.rows = rows;
    plan.arrays.tables = tables;
    plan.arrays.items = &item;
    plan.layer = &layer;
    plan.num_items = 1;
    kvc_backend_attend args = {};
    args.layer = &layer;
    args.q = {q.data(), 64, 64, dtype_of(Kind::kF32), 0};
    args.out = {out.data(), 64, 64, dtype_of(Kind::kF32), 0};
    std::fill(out.begin(), out.end(), 0.0f);
    ASSERT_EQ(staged_attend(test_backend(), device, args, plan, nullptr, &error), KVC_OK);
    EXPECT_EQ(out[63], 3.0f);
  });
  munmap(pool, bytes);
}

}  // namespace
}  // namespace kvc::kernels::test
