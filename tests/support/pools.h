// Page pools in memory of the caller, in the layouts of servers, for caches to adopt.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dtype.h"

namespace kvt {

enum class Layout {
  kOwn,         // the library's
  kHnd,         // [pages, 2, Hkv, page_size, D] in one tensor a layer
  kNhd,         // [pages, 2, page_size, Hkv, D]
  kHalves,      // [2, pages, page_size, Hkv, D]
  kHndApart,    // K [pages, Hkv, page_size, D] and V
  kNhdApart,    // K [pages, page_size, Hkv, D] and V
  kInterleaved  // all layers of a group in one allocation: [pages, page_size, layers, K then V, Hkv, D]
};
inline constexpr Layout kAdoptedLayouts[] = {Layout::kHnd,      Layout::kNhd,      Layout::kHalves,
                                             Layout::kHndApart, Layout::kNhdApart, Layout::kInterleaved};
inline const char *name_of(Layout layout) {
  constexpr const char *kNames[] = {"own", "HND", "NHD", "halves", "HND apart", "NHD apart", "interleaved"};
  return kNames[static_cast<int>(layout)];
}

// A managed tensor over shared memory. It counts how many are alive.
struct Pool {
  std::shared_ptr<std::vector<uint8_t>> memory;
  std::vector<int64_t> shape, strides;  // elements
  DLManagedTensorVersioned tensor{};

  static inline std::atomic<int> alive{0};

  static DLManagedTensorVersioned *make(std::shared_ptr<std::vector<uint8_t>> memory, int64_t offset_bytes,
                                        DLDataType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    Pool *pool = new Pool;
    pool->memory = std::move(memory);
    pool->shape = std::move(shape);
    pool->strides = std::move(strides);
    pool->tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    pool->tensor.manager_ctx = pool;
    pool->tensor.deleter = [](DLManagedTensorVersioned *t) {
      alive--;
      delete static_cast<Pool *>(t->manager_ctx);
    };
    pool->tensor.dl_tensor = {
        pool->memory->data(), test_device(),        static_cast<int32_t>(pool->shape.size()), dtype,
        pool->shape.data(),   pool->strides.data(), static_cast<uint64_t>(offset_bytes)};
    alive++;
    return &pool->tensor;
  }
};

// Gives every layer of a config storage in this layout, except layers that cannot have it (int8, 4 bits, recurrent,
// readers of another layer). pages: of each group. K and V of different dims, and MLA rows, are apart in any layout.
inline void add_pools(Layout layout, const std::vector<int64_t> &pages, int page_size,
                      std::vector<kvc_layer_config> *layers) {
  const auto adopts = [](const kvc_layer_config &l) {
    return l.kv_layer == 0 && l.num_states == 0 && l.dtype.code != kDLInt && l.dtype.bits != 4;
  };
  const auto type = [](const kvc_layer_config &l) {
    if (l.row_format == KVC_ROW_FORMAT_FP8_DS_MLA) return DLDataType{kDLUInt, 8, 1};
    return l.dtype.bits ? l.dtype : DLDataType{kDLFloat, 32, 1};
  };
  const auto element = [&](const kvc_layer_config &l) { return int64_t{type(l).bits} / 8; };
  const auto k_dim = [](const kvc_layer_config &l) {
    return int64_t{l.row_format == KVC_ROW_FORMAT_FP8_DS_MLA ? 656 : l.head_dim};
  };
  const auto v_dim = [](const kvc_layer_config &l) { return int64_t{l.v_head_dim ? l.v_head_dim : l.head_dim}; };
  const auto padded = [](int64_t bytes) { return (bytes + 3) / 4 * 4; };
  const auto part_bytes = [&](const kvc_layer_config &l, int part) {  // of a token: K, then V
    if (part == 1 && l.latent_dim) return int64_t{0};
    return padded(l.num_kv_heads * (part ? v_dim(l) : k_dim(l)) * element(l));
  };
  std::vector<std::shared_ptr<std::vector<uint8_t>>> blocks(pages.size());  // of an interleaved group
  std::vector<int64_t> used(pages.size()), token_bytes(pages.size());
  for (const kvc_layer_config &l : *layers) {
    if (adopts(l)) token_bytes[l.group] += part_bytes(l, 0) + part_bytes(l, 1);
  }
  for (kvc_layer_config &l : *layers) {
    if (layout == Layout::kOwn || !adopts(l)) continue;
    const DLDataType dtype = type(l);
    const int64_t n = pages[l.group] + 1, h = l.num_kv_heads, s = page_size;  // a page more than the cache needs
    const bool together = l.latent_dim == 0 && v_dim(l) == l.head_dim;
    const auto fresh = [&](int64_t elements) {
      return std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(elements * element(l)) + 64, 0xff);
    };
    if (layout == Layout::kInterleaved) {
      auto &block = blocks[l.group];
      const int64_t token = token_bytes[l.group];
      if (!block) block = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(n * s * token) + 64, 0xff);
      for (int part = 0; part < (l.latent_dim ? 1 : 2); part++) {
        const int64_t d = part ? v_dim(l) : k_dim(l), step = token / element(l);
        (part ? l.v_storage : l.k_storage) =
            Pool::make(block, used[l.group], dtype, {n, h, s, d}, {s * step, d, step, 1});
        used[l.group] += part_bytes(l, part);
      }
      continue;
    }
    const bool heads_first = layout == Layout::kHnd || layout == Layout::kHndApart;
    const auto apart = [&](int64_t d) {
      const int64_t page = h * s * d;
      return Pool::make(fresh(n * page), 0, dtype, {n, h, s, d},
                        {page, heads_first ? s * d : d, heads_first ? d : h * d, 1});
    };
    if (!together || layout == Layout::kHndApart || layout == Layout::kNhdApart) {
      l.k_storage = apart(k_dim(l));
      if (!l.latent_dim) l.v_storage = apart(v_dim(l));
      continue;
    }
    const int64_t d = l.head_dim, half = h * s * d;
    const bool halves = layout == Layout::kHalves;
    l.kv_storage = Pool::make(
        fresh(2 * n * half), 0, dtype, {n, 2, h, s, d},
        {halves ? half : 2 * half, halves ? n * half : half, heads_first ? s * d : d, heads_first ? d : h * d, 1});
  }
}

// Releases the storages of a config that no cache has adopted.
inline void drop_pools(std::vector<kvc_layer_config> *layers) {
  for (kvc_layer_config &l : *layers) {
    for (DLManagedTensorVersioned **storage : {&l.kv_storage, &l.k_storage, &l.v_storage}) {
      if (*storage) (*storage)->deleter(*storage);
      *storage = nullptr;
    }
  }
}

}  // namespace kvt
