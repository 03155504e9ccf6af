// The body of a target's translation unit: its Implementation table, from the headers that KVC_TARGET was set for.
// The unit defines KVC_TARGET, KVC_TARGET_NAME and KVC_TARGET_TABLE. One that differs from another target only in how
// it multiplies bf16 q by bf16 K and V (and, in the decode kernel, by e4m3 and int8), or in how e4m3 enters the decode
// kernel, defines that format, KVC_TARGET_BF16 (KVC_TARGET_BYTES) or KVC_TARGET_E4M3, and the other's table,
// KVC_TARGET_BASE, which attends all the rest: formats take most of the library's size.
// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/attend/decode_pass.h"
#if !defined(KVC_TARGET_E4M3)
#include "kernels/cpu/attend/panel_pass.h"
#endif
#include "kernels/cpu/attend/project.h"
#include "kernels/cpu/attend/quantise.h"
#include "kernels/cpu/implementation.h"

namespace kvc::kernels {
namespace KVC_TARGET {

// From how many rows of a kv head on packing pays for itself: see kDecodeRows.
template <class Format>
static bool wants_panels(const View& view) {
  return view.num_rows > Format::kDecodeRows || view.args->fold_keys > 0;
}

template <class Rows>
static void decode_rows(const View& view) {
  // The commonest head dims as constants: loops unroll, and addresses within a page are constants too.
  if constexpr (kLanes == 16) {
    const int32_t head_dim = view.head_dim == view.v_head_dim ? view.head_dim : 0;
    if (head_dim == 64) return decode_item<Rows, 64>(view);
    if (head_dim == 128) return decode_item<Rows, 128>(view);
    if (head_dim == 256) return decode_item<Rows, 256>(view);
  }
  decode_item<Rows, 0>(view);
}

#if !defined(KVC_TARGET_E4M3)
static int32_t preferred_rows_of(const kvc_backend_layer* layer, int32_t row_group) {
  const int32_t width = round_up(max_of(layer->head_dim, layer->v_head_dim), 2 * kLanes);
  return rows_of_pass(width) / row_group * row_group;
}
#endif

#if defined(KVC_TARGET_BF16)

#if defined(KVC_TARGET_BYTES)
template <class T>
static bool decode_bytes(const View& view) {
  const bool here = !view.staged && !wants_panels<KVC_TARGET_BYTES<T>>(view);
  if (here) decode_rows<KVC_TARGET_BYTES<T>>(view);
  return here;
}
#endif

static void attend_item(const kvc_backend_attend* args, const kvc_backend_item* item, Scratch* scratch) {
#if defined(KVC_TARGET_BYTES)
  if (type_of(args->q.dtype) == Type::kBf16) {
    const Type type = type_of(args->layer->dtype);
    if (type == Type::kE4m3 && decode_bytes<E4m3>(make_view(args, item, scratch))) return;
    if (type == Type::kI8 && decode_bytes<I8>(make_view(args, item, scratch))) return;
  }
#endif
  if (type_of(args->layer->dtype) == Type::kBf16 && type_of(args->q.dtype) == Type::kBf16) {
    const View view = make_view(args, item, scratch);
    const bool stored = !view.staged;  // else blocks are staged as float32
    if (stored && wants_panels<KVC_TARGET_BF16>(view)) {
      panel_item<KVC_TARGET_BF16>(view);
      return;
    }
    if constexpr (!KVC_TARGET_BF16::kTiles) {
      if (stored) {
        decode_rows<KVC_TARGET_BF16>(view);
        return;
      }
    }
  }
  KVC_TARGET_BASE.attend_item(args, item, scratch);
}

static int32_t preferred_rows(const kvc_backend_layer* layer) {
  if (type_of(layer->dtype) == Type::kBf16) return preferred_rows_of(layer, KVC_TARGET_BF16::kRowGroup);
  return KVC_TARGET_BASE.preferred_rows(layer);
}

#elif defined(KVC_TARGET_E4M3)

static void attend_item(const kvc_backend_attend* args, const kvc_backend_item* item, Scratch* scratch) {
  if (type_of(args->layer->dtype) == Type::kE4m3) {
    const View view = make_view(args, item, scratch);
    if (!view.staged && !wants_panels<Widened<E4m3>>(view)) {
      decode_rows<KVC_TARGET_E4M3>(view);
      return;
    }
  }
  KVC_TARGET_BASE.attend_item(args, item, scratch);
}

static int32_t preferred_rows(const kvc_backend_layer* layer) { return KVC_TARGET_BASE.preferred_rows(layer); }

#else

template <class Format>
static void attend_rows(const View& view) {
  if (wants_panels<Format>(view)) {
    panel_item<Format>(view);
  } else {
    decode_rows<typename DecodeFormatOf<Format>::Type>(view);
  }
}

static void attend_item(const kvc_backend_attend* args, const kvc_backend_item* item, Scratch* scratch) {
  const View view = make_view(args, item, scratch);
  if (view.staged) {  // blocks are staged as float32
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
      attend_rows<Widened<Bf16>>(view);
      break;
  }
}

static int32_t preferred_rows(const kvc_backend_layer* layer) {
  return preferred_rows_of(layer, Widened<float>::kRowGroup);
}

#endif

}  // namespace KVC_TARGET

const Implementation KVC_TARGET_TABLE = {
    KVC_TARGET_NAME,        KVC_TARGET::attend_item,  KVC_TARGET::convert_row,    KVC_TARGET::quantise_row,
    KVC_TARGET::rotate_row, KVC_TARGET::project_rows, KVC_TARGET::preferred_rows,
};

}  // namespace kvc::kernels
