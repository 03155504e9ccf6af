// What the tests of row formats share.
#pragma once

#include <vector>

#include "block_rows.h"
#include "fixture.h"

namespace kvt {

inline constexpr int kDsMlaDims = 576, kDsMlaLatentDims = 512, kDsMlaRowBytes = 656;

inline CacheSpec packed_spec(int heads = 4) {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  LayerSpec layer{0, heads, 1, kDsMlaDims, 0, DType::kDsMla};
  layer.latent = kDsMlaLatentDims;
  layer.scale = 0.05;
  spec.layers = {layer};
  return spec;
}

inline void append(World &w, const DLTensor *k, int tokens, uint32_t flags = 0) {
  const kvc_forward f = w.begin({w.seq}, {tokens});
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.k = k;
  args.flags = flags;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_append(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(kvc_forward_end(w.cache, f, &error), KVC_OK) << error.message;
}

inline std::vector<int32_t> pages_of(const World &w) {
  std::vector<int32_t> pages(8);
  int64_t count = 0;
  EXPECT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages.data(), 8, &count, nullptr), KVC_OK);
  pages.resize(static_cast<size_t>(count));
  return pages;
}

}  // namespace kvt
