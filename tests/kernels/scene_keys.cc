// Scene: the stored bytes of its keys.
#include <cmath>
#include <cstring>

#include "kernels/common/scales.h"
#include "pool.h"
#include "scene.h"
#include "tests/support/ds_mla.h"
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
  if (config_.kv == Kind::kDsMla) {
    unsigned char* const target = address_of_row(pool, page, head, slot);
    kvt::quantise_ds_mla(values, target);
    kvt::read_ds_mla(target, dims, values);
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

void Scene::poison_key(int row, int position) {
  const int64_t page = pages_[row][position / config_.page_size], slot = position % config_.page_size;
  for (int h = 0; h < config_.kv_heads; ++h) {
    const auto fill = [&](const kvc_backend_pool& pool, const kvc_backend_scales& scales) {
      std::memset(address_of_row(pool, page, h, slot), 0xff, static_cast<size_t>(pool.row_bytes));
      if (has_row_scales(config_.kv)) *token_scale(&scales, page, h, slot) = NAN;
    };
    fill(layer_.k, layer_.k_scales);
    fill(layer_.v, layer_.v_scales);
  }
}

void Scene::store_value_bytes(int row, int position, const std::vector<unsigned char>& bytes) {
  const int64_t page = pages_[row][position / config_.page_size];
  std::memcpy(address_of_row(layer_.v, page, 0, position % config_.page_size), bytes.data(), bytes.size());
}

}  // namespace kvc::kernels::test
