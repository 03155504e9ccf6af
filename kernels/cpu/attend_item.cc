// Chooses the kernel that computes an item, from the table of the SIMD target. If that table has no entry, the entry of
// the base target is used.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/rope_table.h"
#include "kernels/common/stored_format.h"
#include "kernels/cpu/implementation.h"

namespace kvc::kernels {
namespace {

// Returns the kernels of a SIMD target for a pair of types. Fields that the target lacks come from its base target.
AttendFormat find_format(const Implementation& implementation, Type q, Type stored) {
  AttendFormat found;
  for (const Implementation* i = &implementation; i != nullptr; i = i->base) {
    const AttendFormat& format = i->formats->of[static_cast<int>(q)][static_cast<int>(stored)];
    if (found.decode == nullptr) found.decode = format.decode;
    if (found.panels == nullptr) found.panels = format.panels;
    if (found.decode_rows == 0) found.decode_rows = format.decode_rows;
    if (found.row_group == 0) found.row_group = format.row_group;
    if (found.score == nullptr) found.score = format.score;
  }
  return found;
}

}  // namespace

void attend_item(const Implementation& implementation, const kvc_backend_attend* args, const kvc_backend_item* item,
                 Scratch* scratch) {
  const kvc_backend_layer& layer = *args->layer;
  // Keys that are rotated on read, or that lie in two pools, are first copied to scratch as float32
  // (attend/staged_keys.h). So the kernels for float32 process the copies.
  const bool staged = layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT || key_table_of_row(args, item->row) != nullptr;
  const Type q = staged ? Type::kF32 : type_of(args->q.dtype), stored = staged ? Type::kF32 : stored_type(layer);
  const AttendFormat format = find_format(implementation, q, stored);
  const bool lists = args->lists.block_tokens > 0;
  const int32_t queries = lists ? 1 : item->q_end - item->q_begin;
  const int32_t rows = queries * (layer.num_q_heads / layer.num_kv_heads);
  // A deterministic cache computes all rows with one kernel, because the kernels round differently.
  const bool panels = rows > format.decode_rows || args->plan->fold_keys > 0;
  const AttendItem kernel = panels ? format.panels : format.decode;
  if (!lists) return kernel(args, item, nullptr, scratch);
  const int32_t heads_each = args->lists.head_stride == 0 ? item->head_end - item->head_begin : 1;
  for (int32_t query = 0; query < item->q_end - item->q_begin; ++query) {
    for (int32_t head = item->head_begin; head < item->head_end; head += heads_each) {
      ListedQuery listed = {query, head, head + heads_each, 0, nullptr};
      find_listed_keys(*args, *item, &scratch->list, &listed);
      kernel(args, item, &listed, scratch);
    }
  }
}

ScoreItem score_kernel(const Implementation& implementation, Type q, Type stored) {
  return find_format(implementation, q, stored).score;
}

int32_t preferred_rows(const Implementation& implementation, const kvc_backend_layer* layer) {
  const Type stored = stored_type(*layer);
  const int32_t group = find_format(implementation, stored, stored).row_group, multiple = 2 * implementation.lanes;
  const int32_t dims = layer->head_dim > layer->v_head_dim ? layer->head_dim : layer->v_head_dim;
  return rows_of_pass((dims + multiple - 1) / multiple * multiple) / group * group;
}

}  // namespace kvc::kernels
