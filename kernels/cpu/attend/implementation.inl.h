// The body of a target's translation unit: its Implementation table, from the headers that KVC_TARGET was set for.
// The unit defines KVC_TARGET, KVC_TARGET_NAME and KVC_TARGET_TABLE, and KVC_TARGET_BF16_DOTS if it is to use BfDots,
// KVC_TARGET_BF16_TILES if BfTiles.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/attend/decode_pass.h"
#include "kernels/cpu/attend/panel_pass.h"
#include "kernels/cpu/attend/project.h"
#include "kernels/cpu/attend/quantise.h"
#include "kernels/cpu/implementation.h"

namespace kvc::kernels {
namespace KVC_TARGET {

// From so many rows a kv head on, packing pays for itself.
static constexpr int kPanelRows = 16;

// bf16 q over bf16 K and V. Where there are tiles, the CPU means them to be used in place of fast bf16 dots.
#if defined(KVC_TARGET_BF16_TILES)
using Bf16Decode = Widened<Bf16>;
using Bf16Panel = BfTiles;
#elif defined(KVC_TARGET_BF16_DOTS)
using Bf16Decode = BfDots;
using Bf16Panel = BfDots;
#else
using Bf16Decode = Widened<Bf16>;
using Bf16Panel = Widened<Bf16>;
#endif

template <class Format, class PanelFormat = Format>
static void attend_rows(const View& view) {
  if (view.num_rows >= kPanelRows || view.args->fold_keys > 0) {
    panel_item<PanelFormat>(view);
    return;
  }
  // The commonest head dim as a constant: its loops unroll. Others lose a few percent.
  if constexpr (kLanes == 16) {
    if (view.head_dim == 128) {
      decode_item<Format, 128>(view);
      return;
    }
  }
  decode_item<Format, 0>(view);
}

static void attend_item(const kvc_backend_attend* args, const kvc_backend_item* item, Scratch* scratch) {
  const View view = make_view(args, item, scratch);
  if (view.key_table != nullptr) {  // blocks are staged as float32
    attend_rows<Widened<float>>(view);
    return;
  }
  switch (type_of(args->layer->dtype)) {
    case Type::kF32:
      attend_rows<Widened<float>>(view);
      break;
    case Type::kF16:
      attend_rows<Widened<F16>>(view);
      break;
    case Type::kE4m3:
      attend_rows<Widened<E4m3>>(view);
      break;
    case Type::kE5m2:
      attend_rows<Widened<E5m2>>(view);
      break;
    case Type::kI8:
      attend_rows<Widened<I8>>(view);
      break;
    default:
      if (type_of(args->q.dtype) == Type::kBf16) {
        attend_rows<Bf16Decode, Bf16Panel>(view);
      } else {
        attend_rows<Widened<Bf16>>(view);
      }
      break;
  }
}

static int32_t preferred_rows(const kvc_backend_layer* layer) {
  const int32_t width = round_up(max_of(layer->head_dim, layer->v_head_dim), 2 * kLanes);
  const int32_t group = type_of(layer->dtype) == Type::kBf16 ? Bf16Panel::kRowGroup : Widened<float>::kRowGroup;
  return rows_of_pass(width) / group * group;
}

}  // namespace KVC_TARGET

const Implementation KVC_TARGET_TABLE = {
    KVC_TARGET_NAME,        KVC_TARGET::attend_item,  KVC_TARGET::convert_row,    KVC_TARGET::quantise_row,
    KVC_TARGET::rotate_row, KVC_TARGET::project_rows, KVC_TARGET::preferred_rows,
};

}  // namespace kvc::kernels
