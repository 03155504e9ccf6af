/* Makes DLPack tensors from plain arrays, for callers in C and C++. An engine that has its own tensor type does not need
 * this file.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kvc_tensor q, out;                                                    // on the stack, beside the arguments
 *   args.q = kvc_tensor_3d(&q, q_data, kvc_bf16(), tokens, q_heads, head_dim);
 *   args.out = kvc_tensor_3d(&out, out_data, kvc_bf16(), tokens, q_heads, head_dim);
 *
 * Each function fills *tensor and returns the DLTensor in it. This DLTensor points to the shape in *tensor. So *tensor must
 * exist until the call that uses it has returned, and must not be copied or moved. `data` is borrowed. Elements are
 * contiguous, and the last dimension has stride 1. `data` is memory of the CPU. For memory of another device, set
 * tensor->dl.device:
 *
 *   q.dl.device = (DLDevice){kDLCUDA, 0};
 *
 * For other strides, set tensor->strides (in elements) and tensor->dl.strides = tensor->strides.
 *
 * The functions check nothing, because the call that uses the tensor checks it. Threads: any.
 */
#ifndef KVCACHE_TENSOR_H_
#define KVCACHE_TENSOR_H_

#include <stddef.h>

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KVC_TENSOR_MAX_DIMS = 5 };

typedef struct kvc_tensor {
  DLTensor dl; /* the tensor that functions of the library take */
  int64_t shape[KVC_TENSOR_MAX_DIMS];
  int64_t strides[KVC_TENSOR_MAX_DIMS]; /* used only if dl.strides points to it */
} kvc_tensor;

/* ---- Element types ----------------------------------------------------------------------------- */

static inline DLDataType kvc_dtype(uint8_t code, uint8_t bits) {
  DLDataType type;
  type.code = code;
  type.bits = bits;
  type.lanes = 1;
  return type;
}
static inline DLDataType kvc_f32(void) { return kvc_dtype(kDLFloat, 32); }
static inline DLDataType kvc_f16(void) { return kvc_dtype(kDLFloat, 16); }
static inline DLDataType kvc_bf16(void) { return kvc_dtype(kDLBfloat, 16); }
static inline DLDataType kvc_e4m3(void) { return kvc_dtype(kDLFloat8_e4m3fn, 8); }
static inline DLDataType kvc_e5m2(void) { return kvc_dtype(kDLFloat8_e5m2, 8); }
static inline DLDataType kvc_i8(void) { return kvc_dtype(kDLInt, 8); }
static inline DLDataType kvc_i32(void) { return kvc_dtype(kDLInt, 32); }
static inline DLDataType kvc_i64(void) { return kvc_dtype(kDLInt, 64); }

/* ---- Tensors ----------------------------------------------------------------------------------- */

/* A tensor with num_dims dimensions, the first num_dims elements of `shape`. If num_dims is above KVC_TENSOR_MAX_DIMS, the
 * tensor has only KVC_TENSOR_MAX_DIMS dimensions, and the call that uses it refuses it. */
static inline DLTensor *kvc_tensor_nd(kvc_tensor *tensor, void *data, DLDataType dtype, int32_t num_dims,
                                      const int64_t *shape) {
  int32_t i;
  if (num_dims > KVC_TENSOR_MAX_DIMS) num_dims = KVC_TENSOR_MAX_DIMS;
  for (i = 0; i < KVC_TENSOR_MAX_DIMS; i++) {
    tensor->shape[i] = i < num_dims ? shape[i] : 0;
    tensor->strides[i] = 0;
  }
  tensor->dl.data = data;
  tensor->dl.device.device_type = kDLCPU;
  tensor->dl.device.device_id = 0;
  tensor->dl.ndim = num_dims;
  tensor->dl.dtype = dtype;
  tensor->dl.shape = tensor->shape;
  tensor->dl.strides = NULL;
  tensor->dl.byte_offset = 0;
  return &tensor->dl;
}

/* A tensor [n], such as an index array. */
static inline DLTensor *kvc_tensor_1d(kvc_tensor *tensor, void *data, DLDataType dtype, int64_t n) {
  return kvc_tensor_nd(tensor, data, dtype, 1, &n);
}
/* A tensor [rows, columns]. */
static inline DLTensor *kvc_tensor_2d(kvc_tensor *tensor, void *data, DLDataType dtype, int64_t rows, int64_t columns) {
  int64_t shape[2];
  shape[0] = rows, shape[1] = columns;
  return kvc_tensor_nd(tensor, data, dtype, 2, shape);
}
/* A tensor [tokens, heads, dims], such as q, k, v and out of a step. */
static inline DLTensor *kvc_tensor_3d(kvc_tensor *tensor, void *data, DLDataType dtype, int64_t tokens, int64_t heads,
                                      int64_t dims) {
  int64_t shape[3];
  shape[0] = tokens, shape[1] = heads, shape[2] = dims;
  return kvc_tensor_nd(tensor, data, dtype, 3, shape);
}
/* A tensor [batch, tokens, heads, dims], or a pool of pages. */
static inline DLTensor *kvc_tensor_4d(kvc_tensor *tensor, void *data, DLDataType dtype, int64_t batch, int64_t tokens,
                                      int64_t heads, int64_t dims) {
  int64_t shape[4];
  shape[0] = batch, shape[1] = tokens, shape[2] = heads, shape[3] = dims;
  return kvc_tensor_nd(tensor, data, dtype, 4, shape);
}

#ifdef __cplusplus
}
#endif
#endif /* KVCACHE_TENSOR_H_ */
