// Scene: the stored bytes of its keys.
#include <cmath>
#include <cstring>

#include "kernels/common/scales.h"
#include "pool.h"
#include "scene.h"
#include "tests/support/block_rows.h"
#include "tests/support/e2m1.h"
#include "tests/support/uint4.h"

namespace kvc::kernels::test {

// Stores a row of one head. `values` then has the values as they are read.
void Scene::store_row(const kvc_backend_pool& pool, const kvc_backend_scales& scales, int64_t page, int head,
                      int64_t slot, float* values, int dims) {
  if (config_.kv == Kind::kU4) {
    const int all = layer_.row_kind == KVC_BACKEND_ROW_LATENT ? config_.head_dim | config_.v_head_dim : dims;
    unsigned char* const target = address_of_row(pool, page, head, slot);
    *token_scale(&scales, page, head, slot) = kvt::store_uint4_row(values, dims, all & -all, target);
    return;
  }
  if (const kvt::BlockFormat* format = block_format(config_.kv)) {
    unsigned char* const target = address_of_row(pool, page, head, slot);
    auto* const page_scales = reinterpret_cast<unsigned char*>(token_scale(&scales, page, head, slot));
    kvt::quantise_block_row(*format, values, dims, target, page_scales);
    kvt::read_block_row(*format, target, page_scales, dims, dims, values);
    return;
  }
  if (config_.kv == Kind::kE2m1) {
    const float head_scale = scales.data != nullptr ? *token_scale(&scales, page, head, slot) : 1.0f;
    unsigned char* const target = address_of_row(pool, page, head, slot);
    kvt::quantise_e2m1(std::vector<float>(values, values + dims), head_scale, target);
    kvt::read_e2m1_row(target, dims, head_scale, dims, values);
    return;
  }
  float scale = 1.0f;
  if (scales.data != nullptr) {
    float& stored = *token_scale(&scales, page, head, slot);
    if (config_.kv == Kind::kI8) stored = int8_scale(values, dims);
    scale = stored;
  }
  const int bytes = bytes_of(config_.kv);
  unsigned char* target = address_of_row(pool, page, head, slot);
  for (int d = 0; d < dims; ++d) {
    write_number(config_.kv, target + d * bytes, values[d] / scale);
    values[d] = read_number(config_.kv, target + d * bytes) * scale;
  }
}

void Scene::store_key(int row, int position) {
  const int64_t page = pages_[row][position / config_.page_size], slot = position % config_.page_size;
  for (int h = 0; h < config_.kv_heads; ++h) {
    store_row(layer_.k, layer_.k_scales, page, h, slot, &k(row, position, h, k_begin()), config_.head_dim - k_begin());
    if (layer_.row_kind == KVC_BACKEND_ROW_LATENT) continue;
    store_row(layer_.v, layer_.v_scales, page, h, slot, &v(row, position, h, 0), config_.v_head_dim);
  }
}

void Scene::poison(const kvc_backend_pool& pool, const kvc_backend_scales& scales, int row, int position) {
  const int64_t page = pages_[row][position / config_.page_size], slot = position % config_.page_size;
  for (int h = 0; h < config_.kv_heads; ++h) {
    std::memset(address_of_row(pool, page, h, slot), 0xff, static_cast<size_t>(pool.row_bytes));
    if (scales.row_bytes > 0) {
      std::memset(token_scale(&scales, page, h, slot), 0xff, static_cast<size_t>(scales.row_bytes));
    }
  }
}

void Scene::poison_key(int row, int position) {
  poison(layer_.k, layer_.k_scales, row, position);
  poison_value(row, position);
}

void Scene::poison_value(int row, int position) { poison(layer_.v, layer_.v_scales, row, position); }

void Scene::store_value_bytes(int row, int position, const std::vector<unsigned char>& bytes,
                              const std::vector<unsigned char>& page_scales) {
  const int64_t page = pages_[row][position / config_.page_size], slot = position % config_.page_size;
  std::memcpy(address_of_row(layer_.v, page, 0, slot), bytes.data(), bytes.size());
  if (!page_scales.empty()) {
    std::memcpy(token_scale(&layer_.v_scales, page, 0, slot), page_scales.data(), page_scales.size());
  }
}

}  // namespace kvc::kernels::test
