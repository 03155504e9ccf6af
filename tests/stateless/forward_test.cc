// The stateless call over the pages of a cache equals the forward path: same plan, same kernels, same bits.
#include "flash_call.h"

namespace kvt {
namespace {

// A layer of a cache as tensors of the caller, with the block tables of its sequences.
class CacheView {
 public:
  // The pool [pages, 2, Hkv, page_size, D] as two caches [pages, page_size, Hkv, D].
  CacheView(kvc_cache *cache, DType type) : cache_(cache) {
    DLManagedTensorVersioned *pool = nullptr;
    EXPECT_EQ(kvc_cache_export_pool(cache, 0, KVC_POOL_KV, KVC_POOL_WRITABLE, &pool, nullptr, nullptr), KVC_OK);
    pool_.reset(pool);
    const DLTensor &kv = pool->dl_tensor;
    const int dims[4] = {0, 3, 2, 4};
    for (int i = 0; i < 4; i++) shape_[i] = kv.shape[dims[i]], strides_[i] = kv.strides[dims[i]];
    k = v = kv;
    for (DLTensor *t : {&k, &v}) t->ndim = 4, t->shape = shape_, t->strides = strides_, t->dtype = dl_type(type);
    v.byte_offset += static_cast<uint64_t>(kv.strides[1] * size_of(type));
  }
  void read(const std::vector<kvc_seq> &sequences) {
    table = Indexes<>(std::vector<int32_t>(sequences.size() * 60, -1), {static_cast<int64_t>(sequences.size()), 60});
    lengths = Indexes<>(std::vector<int32_t>(sequences.size()));
    for (size_t r = 0; r < sequences.size(); r++) {
      int64_t length = 0;
      ASSERT_EQ(kvc_seq_lengths(cache_, 1, &sequences[r], &length, nullptr), KVC_OK);
      ASSERT_EQ(kvc_seq_pages(cache_, sequences[r], 0, table.values.data() + r * 60, 60, nullptr, nullptr), KVC_OK);
      lengths.values[r] = static_cast<int32_t>(length);
    }
  }

  DLTensor k, v;
  Indexes<> table, lengths;

 private:
  kvc_cache *cache_;
  Managed pool_;
  int64_t shape_[4], strides_[4];
};

struct Setting {
  int threads;
  DType type;
  int64_t window;
};

class BothPaths {
 public:
  explicit BothPaths(const Setting &s) : setting_(s), context_(make_context(s.threads)) {
    CacheSpec spec;
    spec.page_size = 16;
    spec.max_batch_tokens = 800;
    spec.flags = KVC_CACHE_NO_PREFIX_SHARING;
    spec.rollback = 800;  // so pages that left a window stay
    spec.groups = {{s.window, 200}};
    spec.layers = {LayerSpec{0, 8, 2, 64, 0, s.type}};
    cache_ = make_cache(context_.get(), spec);
    EXPECT_EQ(kvc_seq_add(cache_.get(), 3, sequences_.data(), nullptr), KVC_OK);
  }

  // A step by the forward path, and the same attention once more by the stateless call.
  void step(const std::vector<int32_t> &lengths) {
    const int64_t tokens = lengths[0] + lengths[1] + lengths[2];
    Array q(setting_.type, {tokens, 8, 64}), k(setting_.type, {tokens, 2, 64}), v(setting_.type, {tokens, 2, 64});
    Array out(setting_.type, {tokens, 8, 64}), lse(DType::kF32, {tokens, 8});
    for (Array *a : {&q, &k, &v}) a->fill_random(&random_);
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = sequences_.data(), batch.append_lengths = lengths.data(), batch.num_sequences = 3;
    kvc_forward forward = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache_.get(), &batch, nullptr, &forward, &error), KVC_OK) << error.message;
    kvc_attend_args attend;
    kvc_attend_args_init(&attend);
    attend.q = q.dl(), attend.k = k.dl(), attend.v = v.dl(), attend.out = out.dl(), attend.lse = lse.dl();
    ASSERT_EQ(kvc_forward_attend(cache_.get(), forward, 0, &attend, &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_end(cache_.get(), forward, &error), KVC_OK) << error.message;
    compare(lengths, &q, out, lse);
  }

 private:
  void compare(const std::vector<int32_t> &lengths, Array *q, const Array &out, const Array &lse) {
    const int64_t tokens = q->shape[0];
    Array other(setting_.type, out.shape), other_lse(DType::kF32, {8, tokens});
    CacheView view(cache_.get(), setting_.type);
    view.read(sequences_);
    Indexes<> cu({0, lengths[0], lengths[0] + lengths[1], static_cast<int32_t>(tokens)});
    kvc_flash_attn_args args;
    kvc_flash_attn_args_init(&args);
    args.flags = KVC_FLASH_ATTN_CAUSAL | (setting_.window ? KVC_FLASH_ATTN_WINDOW_LEFT : 0);
    args.window_left = static_cast<int32_t>(setting_.window ? setting_.window - 1 : 0);
    args.q = q->dl(), args.k_cache = &view.k, args.v_cache = &view.v, args.out = other.dl();
    args.softmax_lse = other_lse.dl(), args.cache_seqlens = view.lengths.dl(), args.block_table = view.table.dl();
    args.cu_seqlens_q = cu.dl();
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_flash_attn_with_kvcache(context_.get(), &args, nullptr, &error), KVC_OK) << error.message;
    ASSERT_TRUE(out.bytes == other.bytes);
    for (int64_t t = 0; t < tokens; t++) {
      for (int64_t h = 0; h < 8; h++) ASSERT_EQ(lse.get({t, h}), other_lse.get({h, t}));
    }
  }

  const Setting setting_;
  ContextPtr context_;
  CachePtr cache_;
  std::vector<kvc_seq> sequences_ = std::vector<kvc_seq>(3);
  std::mt19937 random_{5};
};

TEST(FlashAttnForward, SameBitsAsTheForwardPath) {
  const bool thin = test_every() > 1;
  for (int threads : {1, 3}) {
    if (thin && threads > 1) continue;
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (int64_t window : {0, 37}) {
        if (thin && (window == 0) != (type == DType::kF32)) continue;
        SCOPED_TRACE(std::to_string(threads) + " threads, " + name_of(type) + ", window " + std::to_string(window));
        BothPaths path({threads, type, window});
        for (const std::vector<int32_t> &lengths :
             {std::vector<int32_t>{thin ? 100 : 700, 33, 5}, {1, 1, 1}, {1, 7, 40}, {1, 1, 1}}) {
          path.step(lengths);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvt
