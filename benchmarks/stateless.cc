// Compares the stateless call with the forward path over the same pages of one cache. Both use the same plan and
// kernels. So the difference is the time in which the stateless call finds its rows and makes a new plan. Prints
// medians, and the median of paired ratios.
//   stateless [rounds] [threads]     defaults 200, 0 (all)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kvcache.h"

namespace {

constexpr int64_t kQHeads = 32, kKvHeads = 8, kDim = 128, kPage = 16;

struct Case {
  const char* name;
  int32_t rows, context, new_tokens;
};

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// bfloat16 rows [tokens, heads, dim] of small numbers.
struct Rows {
  std::vector<uint16_t> data;
  int64_t shape[3];
  DLTensor tensor;

  Rows(int64_t tokens, int64_t heads) : data(static_cast<size_t>(tokens * heads * kDim)), shape{tokens, heads, kDim} {
    std::mt19937 random(1);
    for (uint16_t& x : data) x = static_cast<uint16_t>(0x3e00 + random() % 0x200 + (random() % 2) * 0x8000);
    tensor = {data.data(), {kDLCPU, 0}, 3, {kDLBfloat, 16, 1}, shape, nullptr, 0};
  }
};

struct Ints {
  std::vector<int32_t> data;
  int64_t shape[2];
  DLTensor tensor;

  Ints(int64_t rows, int64_t columns, int32_t rank) : data(static_cast<size_t>(rows * columns), -1) {
    shape[0] = rows, shape[1] = columns;
    tensor = {data.data(), {kDLCPU, 0}, rank, {kDLInt, 32, 1}, shape, nullptr, 0};
  }
};

class Pair {
 public:
  Pair(kvc_context* context, const Case& work)
      : context_(context),
        work_(work),
        tokens_(int64_t{work.rows} * work.new_tokens),
        q_(tokens_, kQHeads),
        kv_(std::max<int64_t>(tokens_, work.context), kKvHeads),
        out_(tokens_, kQHeads),
        other_(tokens_, kQHeads),
        table_(work.rows, work.context / kPage + 1, 2),
        lengths_(work.rows, 1, 1),
        cu_(work.rows + 1, 1, 1),
        sequences_(static_cast<size_t>(work.rows)) {
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.num_q_heads = kQHeads, layer.num_kv_heads = kKvHeads, layer.head_dim = kDim, layer.dtype = {kDLBfloat, 16, 1};
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = &layer, config.num_layers = 1, config.page_size = kPage, config.max_sequences = work.rows;
    config.max_batch_tokens = static_cast<int32_t>(std::max<int64_t>(tokens_, work.context));
    config.capacity_tokens = int64_t{work.rows} * (work.context + kPage), config.flags = KVC_CACHE_NO_PREFIX_SHARING;
    check(kvc_cache_create(context, &config, &cache_, &error_), error_);
    check(kvc_seq_add(cache_, work.rows, sequences_.data(), &error_), error_);
    for (kvc_seq& sequence : sequences_) {
      if (work.context > work.new_tokens) append({sequence}, work.context - work.new_tokens, false);
    }
    check(kvc_cache_export_pool(cache_, 0, KVC_POOL_KV, KVC_POOL_WRITABLE, &pool_, nullptr, &error_), error_);
  }
  ~Pair() {
    pool_->deleter(pool_);
    kvc_cache_destroy(cache_);
  }

  // Microseconds of both, which run one after the other over the same tokens.
  void sample(double* forward, double* stateless) {
    *forward = append(sequences_, work_.new_tokens, true);
    *stateless = call();
    std::vector<int64_t> kept(sequences_.size(), work_.context - work_.new_tokens);
    check(kvc_seq_truncate(cache_, work_.rows, sequences_.data(), kept.data(), &error_), error_);
  }
  bool equal() const { return out_.data == other_.data; }

 private:
  double append(std::vector<kvc_seq> sequences, int32_t tokens, bool attends) {
    const std::vector<int32_t> lengths(sequences.size(), tokens);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = sequences.data(), batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(sequences.size());
    kvc_forward step = 0;
    check(kvc_forward_begin(cache_, &batch, nullptr, &step, &error_), error_);
    kvc_append_args append_args;
    kvc_append_args_init(&append_args);
    append_args.k = append_args.v = &kv_.tensor;
    check(kvc_forward_append(cache_, step, 0, &append_args, &error_), error_);
    double took = 0;
    if (attends) {
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = &q_.tensor, args.out = &out_.tensor;
      const double begin = now_us();
      check(kvc_forward_attend(cache_, step, 0, &args, &error_), error_);
      took = now_us() - begin;
    }
    check(kvc_forward_end(cache_, step, &error_), error_);
    return took;
  }

  double call() {
    const DLTensor& kv = pool_->dl_tensor;
    int64_t shape[4] = {kv.shape[0], kPage, kKvHeads, kDim};
    int64_t strides[4] = {kv.strides[0], kv.strides[3], kv.strides[2], 1};
    DLTensor k = kv, v = kv;
    for (DLTensor* t : {&k, &v}) t->ndim = 4, t->shape = shape, t->strides = strides;
    v.byte_offset += static_cast<uint64_t>(kv.strides[1] * 2);
    for (int32_t r = 0; r < work_.rows; ++r) {
      const auto row = static_cast<size_t>(r);
      check(kvc_seq_pages(cache_, sequences_[row], 0, table_.data.data() + r * table_.shape[1], table_.shape[1],
                          nullptr, &error_),
            error_);
      lengths_.data[row] = work_.context;
      cu_.data[row] = r * work_.new_tokens;
    }
    cu_.data.back() = static_cast<int32_t>(tokens_);
    kvc_flash_attn_args args;
    kvc_flash_attn_args_init(&args);
    args.flags = KVC_FLASH_ATTN_CAUSAL;
    args.q = &q_.tensor, args.k_cache = &k, args.v_cache = &v, args.out = &other_.tensor;
    args.cache_seqlens = &lengths_.tensor, args.block_table = &table_.tensor, args.cu_seqlens_q = &cu_.tensor;
    const double begin = now_us();
    check(kvc_flash_attn_with_kvcache(context_, &args, nullptr, &error_), error_);
    return now_us() - begin;
  }

  kvc_context* const context_;
  const Case work_;
  const int64_t tokens_;
  Rows q_, kv_, out_, other_;
  Ints table_, lengths_, cu_;
  std::vector<kvc_seq> sequences_;
  kvc_cache* cache_ = nullptr;
  DLManagedTensorVersioned* pool_ = nullptr;
  kvc_error error_ = KVC_ERROR_INIT;
};

void measure(kvc_context* context, const Case& work, int rounds) {
  Pair pair(context, work);
  std::vector<double> forward, stateless, ratios;
  for (int i = -5; i < rounds; ++i) {
    double a = 0, b = 0;
    pair.sample(&a, &b);
    if (i < 0) continue;
    forward.push_back(a);
    stateless.push_back(b);
    ratios.push_back(b / a);
  }
  std::printf("%-24s forward %9.1f us   stateless %9.1f us   ratio %.3f   %s\n", work.name, median(forward),
              median(stateless), median(ratios), pair.equal() ? "same bits" : "UNLIKE OUTPUTS");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = argc > 2 ? std::atoi(argv[2]) : 0;
  kvc_context* context = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  check(kvc_context_create(&config, &context, &error), error);
  for (const Case& work :
       {Case{"decode 1 x 8k", 1, 8192, 1}, Case{"decode 16 x 2k", 16, 2048, 1}, Case{"decode 64 x 512", 64, 512, 1},
        Case{"verify 16 x 8 at 1k", 16, 1024, 8}, Case{"prefill 1 x 1k", 1, 1024, 1024}}) {
    measure(context, work, rounds);
  }
  kvc_context_destroy(context);
}
