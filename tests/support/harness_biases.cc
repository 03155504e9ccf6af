// Biases and masks of the model's calls: random ones, and their entries by the definition.
#include <algorithm>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

bool Harness::Attended::unmasked(int64_t token, int64_t kv_head, int64_t key) const {
  if (mask.empty()) return true;
  const int64_t head = mask_shape[1] == 1 ? 0 : kv_head;
  return mask[static_cast<size_t>((token * mask_shape[1] + head) * mask_shape[2] + key)] != 0;
}

double Harness::Attended::bias(int64_t row, int64_t token, int64_t head, int64_t kv_head, int64_t key,
                               int64_t distance) const {
  double sum = 0;
  if (!rel_bias.empty()) {
    const int64_t entries = rel_shape[2], nearest = std::clamp<int64_t>(distance, 0, entries - 1);
    const int64_t table = ((rel_shape[0] == 1 ? 0 : token) * rel_shape[1] + head) * entries;
    if (nearest == distance || !rel_zero) sum = static_cast<double>(rel_bias[static_cast<size_t>(table + nearest)]);
  }
  if (key_bias.empty()) return sum;
  const int64_t of_head = key_shape[2] == 1 ? 0 : kv_head;
  return sum + static_cast<double>(key_bias[static_cast<size_t>((row * key_shape[1] + key) * key_shape[2] + of_head)]);
}

// Random biases and masks for some calls. Entries of inert rows, of keys beyond a row's, and of tokens from T on are
// never read.
void Harness::draw_biases(const Open &open, int layer, int64_t rows, Attended *how) {
  if (options_.plain_inputs || !chance(0.35)) return;
  const LayerSpec &l = spec_.layers[layer];
  const bool cross = is_cross(static_cast<size_t>(l.group));
  int64_t keys = 1, rows_with_trees = 0;
  for (const OpenRow &row : open.rows) {
    if (row.sequence < 0) continue;
    keys = std::max(keys, cross ? length_in(row.sequence, l.group) : row.start + row.length);
    rows_with_trees += row.tree;
  }
  keys += uniform(0, 3);
  const auto number = [&] { return static_cast<float>(uniform(-64, 64)) / 32.0f; };
  if (chance(0.5)) {
    const int64_t shape[3] = {chance(0.5) ? 1 : std::max<int64_t>(rows, 1), l.hq, uniform(1, 40)};
    std::copy_n(shape, 3, how->rel_shape);
    how->rel_bias.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (float &x : how->rel_bias) x = number();
    how->rel_zero = chance(0.5);
  }
  if (chance(0.5)) {
    const int64_t shape[3] = {static_cast<int64_t>(open.rows.size()), keys, chance(0.5) ? 1 : l.hkv};
    std::copy_n(shape, 3, how->key_shape);
    how->key_bias.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (float &x : how->key_bias) x = number();
  }
  if (chance(0.5)) {
    const int64_t shape[3] = {rows, chance(0.5) ? 1 : l.hkv, keys};
    std::copy_n(shape, 3, how->mask_shape);
    how->mask.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (uint8_t &x : how->mask) x = chance(0.7) ? 1 : 0;
  }
  how->no_spans = chance(0.5);
  how->step_window = rows_with_trees == 0 && chance(0.5);
}

}  // namespace kvt
