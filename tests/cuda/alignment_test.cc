// Pools and tensors of the caller that are not aligned to the 16 bytes that tensor-core kernels copy at once. Other
// kernels give the same results, and the log has a line. The emulation ends a test that copies 16 bytes from an
// unaligned address.
#include <gtest/gtest.h>

#include <string>

#include "cuda_runtime.h"
#include "server.h"

namespace kvt {
namespace {

constexpr int kPages = 4, kPage = 16, kDim = 32, kTokens = 20;

struct Log {
  std::string lines;
  static void add(void *user, int32_t level, const char *message) {
    if (level == KVC_LOG_WARNING) static_cast<Log *>(user)->lines.append(message).append("\n");
  }
};

// float16 elements that begin `shift` elements after an aligned address.
struct Halves {
  Halves(std::vector<int64_t> dims, int shift) : shape(std::move(dims)) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    memory = static_cast<uint16_t *>(aligned_alloc(256, static_cast<size_t>((count + 8) * 2 + 255) / 256 * 256));
    for (int64_t i = 0; i < count; i++) memory[shift + i] = static_cast<uint16_t>(0x3000 + i * 37 % 0x700);
    tensor = {
        memory + shift, {kDLCUDA, 0}, static_cast<int32_t>(shape.size()), {kDLFloat, 16, 1}, shape.data(), nullptr, 0};
  }
  ~Halves() { free(memory); }
  Halves(const Halves &) = delete;
  std::vector<int64_t> shape;
  uint16_t *memory;
  DLTensor tensor;
};

struct Shifts {
  int pool, q, k, out;
};

// The outputs of a step over an adopted pool. products: the number that tensor cores computed.
std::vector<uint16_t> attend(const Shifts &shifts, Log *log, int64_t *products) {
  kvc_context_config context_config;
  kvc_context_config_init(&context_config);
  context_config.device_type = kDLCUDA;
  context_config.log = Log::add, context_config.log_user = log;
  kvc_context *context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_context_create(&context_config, &context, &error), KVC_OK) << error.message;
  const ContextPtr owner(context);
  Halves pool({kPages, 2, 1, kPage, kDim}, shifts.pool);
  DLManagedTensorVersioned managed = {};
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.deleter = [](DLManagedTensorVersioned *) {};
  managed.dl_tensor = pool.tensor;
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1, layer.head_dim = kDim, layer.dtype = {kDLFloat, 16, 1};
  layer.kv_storage = &managed;
  kvc_group_config group;
  kvc_group_config_init(&group);
  group.num_pages = kPages;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer, config.num_layers = 1, config.groups = &group, config.num_groups = 1;
  config.page_size = kPage;
  kvc_cache *made = nullptr;
  EXPECT_EQ(kvc_cache_create(context, &config, &made, &error), KVC_OK) << error.message;
  const CachePtr cache(made);
  kvc_seq seq = 0;
  EXPECT_EQ(kvc_seq_add(made, 1, &seq, &error), KVC_OK);
  const int32_t tokens = kTokens;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq, batch.append_lengths = &tokens, batch.num_sequences = 1;
  kvc_forward step = 0;
  EXPECT_EQ(kvc_forward_begin(made, &batch, nullptr, &step, &error), KVC_OK) << error.message;
  Halves q({kTokens, 1, kDim}, shifts.q), k({kTokens, 1, kDim}, shifts.k), out({kTokens, 1, kDim}, shifts.out);
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = &q.tensor, args.k = args.v = &k.tensor, args.out = &out.tensor;
  *products = cuda_emulation::counts().products;
  EXPECT_EQ(kvc_forward_attend(made, step, 0, &args, &error), KVC_OK) << error.message;
  *products = cuda_emulation::counts().products - *products;
  EXPECT_EQ(kvc_forward_end(made, step, &error), KVC_OK) << error.message;
  return {out.memory + shifts.out, out.memory + shifts.out + kTokens * kDim};
}

TEST(Alignment, OfACallersPoolsAndTensors) {
  Log silence;
  int64_t products = 0;
  const std::vector<uint16_t> aligned = attend({0, 0, 0, 0}, &silence, &products);
  EXPECT_GT(products, 0);
  EXPECT_EQ(silence.lines, "");
  // The tensors of a call may have any alignment.
  EXPECT_EQ(attend({0, 1, 3, 5}, &silence, &products), aligned);
  EXPECT_GT(products, 0);
  EXPECT_EQ(silence.lines, "");
  for (const int shift : {1, 4}) {
    Log log;
    const std::vector<uint16_t> shifted = attend({shift, 1, 3, 5}, &log, &products);
    EXPECT_EQ(products, 0);
    EXPECT_NE(log.lines.find("layer 0: its pool at "), std::string::npos) << log.lines;
    for (size_t i = 0; i < aligned.size(); i++) {
      ASSERT_NEAR(from_f16(aligned[i]), from_f16(shifted[i]), 2e-3f) << i;
    }
  }
}

}  // namespace
}  // namespace kvt
