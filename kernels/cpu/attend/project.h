// Multiplies rows by the matrix of their head (projection), in register tiles of packed float32.
//
// Roofline: the limit is one read of the weights if there are few rows (decode), and the rate of multiply-adds if there
// are many. Rows are converted to float32 once. The matrix is converted in strips of kStrip columns, [in_dims][kStrip],
// and transposed if needed. A strip stays in the level-1 or level-2 cache while the register tiles of panel_tile.h
// multiply all rows with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_tile.h"
#include "kernels/cpu/attend/rows.h"

namespace kvc::kernels::KVC_TARGET {

KVC_INLINE const unsigned char* row_of_tensor(const kvc_backend_tensor& tensor, int64_t token, int64_t head) {
  return static_cast<const unsigned char*>(tensor.data) +
         (token * tensor.token_stride + head * tensor.head_stride) * element_bytes(type_of(tensor.dtype));
}

// Packs the columns [column, column + columns) of a matrix that is not transposed. The strip is [in_dims][kStrip], with
// zeros after `columns`.
static void pack_columns(const kvc_backend_project& args, int32_t head, int32_t column, int32_t columns, float* strip) {
  const Type type = type_of(args.weights.dtype);
  for (int32_t i = 0; i < args.in_dims; ++i, strip += kStrip) {
    const unsigned char* row = row_of_tensor(args.weights, head, i) + column * element_bytes(type);
    convert_row(Type::kF32, strip, type, row, columns);
    for (int32_t c = columns; c < kStrip; ++c) strip[c] = 0.0f;
  }
}

// Packs the columns of a transposed matrix, in blocks of kLanes x kLanes. rows: scratch for kLanes rows of in_dims
// floats, which are padded to whole vectors.
static void pack_rows(const kvc_backend_project& args, int32_t head, int32_t column, int32_t columns, float* rows,
                      float* strip) {
  const Type type = type_of(args.weights.dtype);
  const int32_t width = round_up(args.in_dims, kLanes);
  for (int32_t c = 0; c < kStrip; c += kLanes) {
    for (int32_t r = 0; r < kLanes; ++r) {
      float* row = rows + r * width;
      const int32_t filled = c + r < columns ? args.in_dims : 0;
      if (filled > 0) convert_row(Type::kF32, row, type, row_of_tensor(args.weights, head, column + c + r), filled);
      for (int32_t i = filled; i < width; ++i) row[i] = 0.0f;
    }
    for (int32_t i = 0; i < width; i += kLanes) {
      F32 block[kLanes];
      KVC_UNROLL for (int r = 0; r < kLanes; ++r) block[r] = load(rows + r * width + i);
      transpose(block);
      KVC_UNROLL for (int r = 0; r < kLanes; ++r) store(strip + (i + r) * kStrip + c, block[r]);
    }
  }
}

static void project_rows(const kvc_backend_project* args, int32_t head, int64_t token_begin, int64_t token_end,
                         Scratch* scratch) {
  const Type in_type = type_of(args->in.dtype), out_type = type_of(args->out.dtype);
  const int32_t rows = static_cast<int32_t>(token_end - token_begin), padded = round_up(rows, kTileRows);
  const int64_t out_bytes = element_bytes(out_type);
  for (int32_t r = 0; r < padded; ++r) {
    float* row = scratch->q + static_cast<int64_t>(r) * args->in_dims;
    if (r >= rows) {
      memset(row, 0, static_cast<size_t>(args->in_dims) * sizeof(float));
      continue;
    }
    const unsigned char* in = row_of_tensor(args->in, token_begin + r, head);
    convert_row(Type::kF32, row, in_type, in, args->in_dims);
    if (args->tail_dims == 0) continue;
    unsigned char* tail =
        const_cast<unsigned char*>(row_of_tensor(args->out, token_begin + r, head)) + args->out_dims * out_bytes;
    convert_row(out_type, tail, in_type, in + args->in_dims * element_bytes(in_type), args->tail_dims);
  }
  float tile[kTileRows * kStrip];
  for (int32_t column = 0; column < args->out_dims; column += kStrip) {
    const int32_t columns = min_of(kStrip, args->out_dims - column);
    if (args->transposed != 0) {
      pack_rows(*args, head, column, columns, scratch->v_panel, scratch->k_panel);
    } else {
      pack_columns(*args, head, column, columns, scratch->k_panel);
    }
    for (int32_t r = 0; r < padded; r += kTileRows) {
      const TileArgs product = {scratch->q + static_cast<int64_t>(r) * args->in_dims,
                                args->in_dims,
                                scratch->k_panel,
                                kStrip,
                                args->in_dims,
                                tile,
                                kStrip};
      multiply_columns<Converted<float>, false>(rows - r, (columns + kLanes - 1) / kLanes, product);
      for (int32_t i = r; i < min_of(r + kTileRows, rows); ++i) {
        unsigned char* out =
            const_cast<unsigned char*>(row_of_tensor(args->out, token_begin + i, head)) + column * out_bytes;
        convert_row(out_type, out, Type::kF32, tile + (i - r) * kStrip, columns);
      }
    }
  }
}

}  // namespace kvc::kernels::KVC_TARGET
