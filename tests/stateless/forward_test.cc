// The stateless call over the pages of a real cache is the forward path: same plan, same kernels, same bits.
#include "flash_call.h"

namespace kvt {
namespace {

TEST(FlashAttnForward, SameBitsAsTheForwardPath) {
  for (int threads : {1, 3}) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (int64_t window : {0, 37}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, " + name_of(type) + ", window " + std::to_string(window));
        const ContextPtr context = make_context(threads);
        CacheSpec spec;
        spec.page_size = 16;
        spec.max_batch_tokens = 800;
        spec.flags = KVC_CACHE_NO_PREFIX_SHARING;
        spec.rollback = 800;  // pages behind windows stay
        spec.groups = {{window, 200}};
        spec.layers = {LayerSpec{0, 8, 2, 64, 0, type}};
        const CachePtr cache = make_cache(context.get(), spec);
        kvc_seq sequences[3];
        ASSERT_EQ(kvc_seq_add(cache.get(), 3, sequences, nullptr), KVC_OK);
        std::mt19937 random(5);
        DLManagedTensorVersioned *pool = nullptr;
        ASSERT_EQ(kvc_cache_export_pool(cache.get(), 0, KVC_POOL_KV, KVC_POOL_WRITABLE, &pool, nullptr), KVC_OK);
        const Managed keep(pool);
        for (const std::vector<int32_t> &lengths :
             {std::vector<int32_t>{700, 33, 5}, {1, 1, 1}, {1, 7, 40}, {1, 1, 1}}) {
          const int64_t tokens = lengths[0] + lengths[1] + lengths[2];
          Array q(type, {tokens, 8, 64}), k(type, {tokens, 2, 64}), v(type, {tokens, 2, 64}),
              out(type, {tokens, 8, 64});
          Array lse(DType::kF32, {tokens, 8}), other(type, {tokens, 8, 64}), other_lse(DType::kF32, {8, tokens});
          for (Array *a : {&q, &k, &v}) a->fill_random(&random);
          kvc_batch batch;
          kvc_batch_init(&batch);
          batch.sequences = sequences, batch.append_lengths = lengths.data(), batch.num_sequences = 3;
          kvc_forward step = 0;
          kvc_error error = KVC_ERROR_INIT;
          ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &step, &error), KVC_OK) << error.message;
          kvc_attend_args attend;
          kvc_attend_args_init(&attend);
          attend.q = q.dl(), attend.k = k.dl(), attend.v = v.dl(), attend.out = out.dl(), attend.lse = lse.dl();
          ASSERT_EQ(kvc_forward_attend(cache.get(), step, 0, &attend, &error), KVC_OK) << error.message;
          ASSERT_EQ(kvc_forward_end(cache.get(), step, &error), KVC_OK) << error.message;

          // The pool [pages, 2, Hkv, page_size, D] as two caches [pages, page_size, Hkv, D].
          const DLTensor &kv = pool->dl_tensor;
          int64_t shape[4] = {kv.shape[0], kv.shape[3], kv.shape[2], kv.shape[4]};
          int64_t strides[4] = {kv.strides[0], kv.strides[3], kv.strides[2], kv.strides[4]};
          DLTensor k_cache = kv, v_cache = kv;
          for (DLTensor *t : {&k_cache, &v_cache}) t->ndim = 4, t->shape = shape, t->strides = strides;
          k_cache.dtype = v_cache.dtype = dl_type(type);
          v_cache.byte_offset += static_cast<uint64_t>(kv.strides[1] * size_of(type));
          Indexes<> table(std::vector<int32_t>(3 * 60, -1), {3, 60}), cached(std::vector<int32_t>(3)), cu({0, 0, 0, 0});
          for (int r = 0; r < 3; r++) {
            int64_t length = 0;
            ASSERT_EQ(kvc_seq_lengths(cache.get(), 1, &sequences[r], &length, nullptr), KVC_OK);
            ASSERT_EQ(kvc_seq_pages(cache.get(), sequences[r], 0, table.values.data() + r * 60, 60, nullptr, nullptr),
                      KVC_OK);
            cached.values[static_cast<size_t>(r)] = static_cast<int32_t>(length);
            cu.values[static_cast<size_t>(r) + 1] = cu.values[static_cast<size_t>(r)] + lengths[static_cast<size_t>(r)];
          }
          kvc_flash_attn_args args;
          kvc_flash_attn_args_init(&args);
          args.flags = KVC_FLASH_ATTN_CAUSAL | (window ? KVC_FLASH_ATTN_WINDOW_LEFT : 0);
          args.window_left = static_cast<int32_t>(window ? window - 1 : 0);
          args.q = q.dl(), args.k_cache = &k_cache, args.v_cache = &v_cache, args.out = other.dl();
          args.softmax_lse = other_lse.dl(), args.cache_seqlens = cached.dl(), args.block_table = table.dl();
          args.cu_seqlens_q = cu.dl();
          ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, &error), KVC_OK) << error.message;
          ASSERT_TRUE(out.bytes == other.bytes);
          for (int64_t t = 0; t < tokens; t++) {
            for (int64_t h = 0; h < 8; h++) ASSERT_EQ(lse.get({t, h}), other_lse.get({h, t}));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvt
