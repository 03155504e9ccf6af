/* A complete backend, to begin a new one from: CONTRIBUTING.md, "Add a backend".
 *
 * It is a plug-in for the device type CPU, in C, because the table is plain C. It has memory and moves bytes by itself.
 * For all arithmetic it calls the float64 reference, which it opens as a device of its own. So it passes every test
 * from the first day, and a new backend replaces one function after another by its own. What it does not fill is for
 * devices that work asynchronously.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvcache_backend.h"

const kvc_backend *kvc_cpu_backend_get(uint32_t version); /* kernels/cpu/backend.cc */

/* An open device. It is constant after open, so any thread may use it. */
struct kvc_backend_device {
  const kvc_backend *cpu;
  kvc_backend_device *reference; /* of `cpu` */
};

static const char kName[] = "example";

static kvc_status fail(kvc_error *error, kvc_status status, const char *message) {
  error->code = status;
  snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

static kvc_status open_device(const kvc_backend_open_args *args, kvc_backend_device **device, kvc_error *error) {
  kvc_backend_open_args reference = *args;
  kvc_backend_device *opened;
  kvc_status status;
  if (args->simd != NULL && strcmp(args->simd, kName) != 0) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "simd: the example backend has one implementation, \"example\"");
  }
  opened = calloc(1, sizeof *opened);
  if (opened == NULL) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "no memory for a device");
  opened->cpu = kvc_cpu_backend_get(KVC_BACKEND_VERSION);
  reference.simd = "reference";
  status = opened->cpu->open(&reference, &opened->reference, error);
  if (status != KVC_OK) {
    free(opened);
    return status;
  }
  *device = opened;
  return KVC_OK;
}

static void close_device(kvc_backend_device *device) {
  if (device == NULL) return;
  device->cpu->close(device->reference);
  free(device);
}

/* `device` may be NULL: the names do not depend on it. */
static int32_t implementations(kvc_backend_device *device, const char **names, int32_t capacity) {
  (void)device;
  if (capacity > 0) names[0] = kName;
  return 1;
}

static const char *implementation(kvc_backend_device *device) {
  (void)device;
  return kName;
}

/* ---- Layers and memory ------------------------------------------------------------------------ */

/* kernels/common/layer_check.h has this list for backends in C++. */
static kvc_status check_layer(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_error *error) {
  return device->cpu->check_layer(device->reference, layer, error);
}

/* Work items of one query over all heads, and splits of 128 keys or more. */
static void tiling(kvc_backend_device *device, const kvc_backend_layer *layer, kvc_backend_tiling *out) {
  (void)device;
  memset(out, 0, sizeof *out);
  out->decode_max_queries = 1;
  out->query_tile = 16;
  out->heads_per_item = layer->num_kv_heads;
  out->split_align = 16;
  out->min_split_keys = 128;
}

static kvc_status allocate(kvc_backend_device *device, int64_t bytes, int64_t alignment, int32_t huge, void **memory,
                           kvc_error *error) {
  const size_t step = alignment < (int64_t)sizeof(void *) ? sizeof(void *) : (size_t)alignment;
  (void)device;
  (void)huge;
  if (posix_memalign(memory, step, bytes > 0 ? (size_t)bytes : 1) != 0) {
    error->required = bytes;
    error->code = KVC_ERROR_OUT_OF_MEMORY;
    snprintf(error->message, sizeof error->message, "the host refused %lld bytes of memory", (long long)bytes);
    return KVC_ERROR_OUT_OF_MEMORY;
  }
  memset(*memory, 0, (size_t)bytes);
  return KVC_OK;
}

static void release(kvc_backend_device *device, void *memory, int64_t bytes) {
  (void)device;
  (void)bytes;
  free(memory);
}

static kvc_status upload(kvc_backend_device *device, void *target, const void *source, int64_t bytes, int32_t wait,
                         void *stream, kvc_error *error) {
  (void)device;
  (void)wait;
  (void)stream;
  (void)error;
  memcpy(target, source, (size_t)bytes);
  return KVC_OK;
}

static kvc_status download(kvc_backend_device *device, void *target, const void *source, int64_t bytes, void *stream,
                           kvc_error *error) {
  (void)device;
  (void)stream;
  (void)error;
  memcpy(target, source, (size_t)bytes);
  return KVC_OK;
}

/* ---- Moving stored rows ----------------------------------------------------------------------- */

/* Scales that lie after the rows of a page, as a pool of rows. Scales that lie elsewhere have row_bytes 0. */
static kvc_backend_pool pool_of(const kvc_backend_scales *scales) {
  kvc_backend_pool pool = {scales->data, scales->page_stride_bytes, scales->head_stride_bytes,
                           scales->slot_stride_bytes, scales->row_bytes};
  return pool;
}

static unsigned char *row_at(const kvc_backend_pool *pool, int32_t page_size, int64_t slot, int32_t head) {
  return (unsigned char *)pool->data + slot / page_size * pool->page_stride_bytes + head * pool->head_stride_bytes +
         slot % page_size * pool->slot_stride_bytes;
}

/* All that a token of the layer has in its slot. An MLA row is in k alone. */
static int32_t pools_of(const kvc_backend_layer *layer, kvc_backend_pool pools[4]) {
  const kvc_backend_pool all[4] = {layer->k, pool_of(&layer->k_scales), layer->v, pool_of(&layer->v_scales)};
  const int32_t end = layer->row_kind == KVC_BACKEND_ROW_LATENT ? 2 : 4;
  int32_t n = 0, i;
  for (i = 0; i < end; ++i) {
    if (all[i].row_bytes > 0) pools[n++] = all[i];
  }
  return n;
}

static kvc_status copy_slots(kvc_backend_device *device, const kvc_backend_layer *layer,
                             const kvc_backend_slot_copy *copies, int64_t num_copies, void *stream, kvc_error *error) {
  kvc_backend_pool pools[4];
  const int32_t num_pools = pools_of(layer, pools);
  int64_t i;
  int32_t p, head, moved;
  (void)device;
  (void)stream;
  (void)error;
  for (i = 0; i < num_copies; ++i) {
    const kvc_backend_slot_copy *copy = &copies[i];
    for (moved = 0; moved < copy->num_slots; ++moved) {
      /* Source and target may overlap: each slot is read before it is written. */
      const int32_t slot = copy->target_slot > copy->source_slot ? copy->num_slots - 1 - moved : moved;
      for (p = 0; p < num_pools; ++p) {
        for (head = 0; head < layer->num_kv_heads; ++head) {
          unsigned char *const target = row_at(&pools[p], layer->page_size, copy->target_slot + slot, head);
          if (copy->source_slot < 0) {
            memset(target, 0, (size_t)pools[p].row_bytes);
            continue;
          }
          memmove(target, row_at(&pools[p], layer->page_size, copy->source_slot + slot, head),
                  (size_t)pools[p].row_bytes);
        }
      }
    }
  }
  return KVC_OK;
}

/* Rows of one pool to a dense array [num_tokens, heads, row_bytes], or back. */
static void gather_pool(const kvc_backend_gather *args, kvc_backend_pool pool, void *rows) {
  unsigned char *dense = rows;
  int64_t token;
  int32_t head;
  if (rows == NULL) return;
  for (token = 0; token < args->num_tokens; ++token) {
    for (head = 0; head < args->layer->num_kv_heads; ++head, dense += pool.row_bytes) {
      unsigned char *stored;
      if (args->slots[token] < 0) continue;
      stored = row_at(&pool, args->layer->page_size, args->slots[token], head);
      memcpy(args->store ? stored : dense, args->store ? dense : stored, (size_t)pool.row_bytes);
    }
  }
}

static kvc_status gather(kvc_backend_device *device, const kvc_backend_gather *args, void *stream, kvc_error *error) {
  (void)device;
  (void)stream;
  (void)error;
  gather_pool(args, args->layer->k, args->k);
  gather_pool(args, args->layer->v, args->v);
  gather_pool(args, pool_of(&args->layer->k_scales), args->k_scale);
  gather_pool(args, pool_of(&args->layer->v_scales), args->v_scale);
  return KVC_OK;
}

static kvc_status states(kvc_backend_device *device, const kvc_backend_states *args, void *stream, kvc_error *error) {
  int64_t byte;
  int32_t i;
  (void)device;
  (void)stream;
  (void)error;
  for (i = 0; i < args->num_rows; ++i) {
    unsigned char *row = (unsigned char *)args->rows + i * args->row_stride_bytes;
    unsigned char *page;
    if (args->pages[i] == KVC_BACKEND_STATE_SKIP) continue;
    if (args->pages[i] == KVC_BACKEND_STATE_FILL) {
      for (byte = 0; byte < args->state_bytes; ++byte) row[byte] = ((const unsigned char *)&args->fill)[byte % 8];
      continue;
    }
    page = (unsigned char *)args->pool + args->pages[i] * args->page_stride_bytes;
    if (args->store) {
      memcpy(page, row, (size_t)args->state_bytes);
    } else {
      memcpy(row, page, (size_t)args->state_bytes);
    }
  }
  return KVC_OK;
}

/* ---- Arithmetic, by the reference ------------------------------------------------------------- */

static kvc_status rope_table(kvc_backend_device *device, const kvc_backend_rope_table *args, kvc_error *error) {
  return kvc_cpu_backend_get(KVC_BACKEND_VERSION)->rope_table(device != NULL ? device->reference : NULL, args, error);
}

static kvc_status rope(kvc_backend_device *device, const kvc_backend_rope *args, void *stream, kvc_error *error) {
  return device->cpu->rope(device->reference, args, stream, error);
}

static kvc_status append(kvc_backend_device *device, const kvc_backend_append *args, void *stream, kvc_error *error) {
  return device->cpu->append(device->reference, args, stream, error);
}

/* The reference runs the items of args->plan by the `run` of the host that open was given, and merges split ones. */
static kvc_status attend(kvc_backend_device *device, const kvc_backend_attend *args, void *stream, kvc_error *error) {
  return device->cpu->attend(device->reference, args, stream, error);
}

static kvc_status merge(kvc_backend_device *device, const kvc_backend_merge *args, void *stream, kvc_error *error) {
  return device->cpu->merge(device->reference, args, stream, error);
}

static kvc_status project(kvc_backend_device *device, const kvc_backend_project *args, void *stream, kvc_error *error) {
  return device->cpu->project(device->reference, args, stream, error);
}

/* ---- The table -------------------------------------------------------------------------------- */

const kvc_backend *kvc_backend_get(uint32_t version) {
  static const kvc_backend table = {
      .struct_size = sizeof(kvc_backend),
      .version = KVC_BACKEND_VERSION,
      .device_type = kDLCPU,
      .name = kName,
      .open = open_device,
      .close = close_device,
      .implementations = implementations,
      .implementation = implementation,
      .check_layer = check_layer,
      .tiling = tiling,
      .allocate = allocate,
      .release = release,
      .upload = upload,
      .download = download,
      .rope_table = rope_table,
      .rope = rope,
      .append = append,
      .attend = attend,
      .copy_slots = copy_slots,
      .gather = gather,
      .merge = merge,
      .states = states,
      .project = project,
  };
  return version == KVC_BACKEND_VERSION ? &table : NULL;
}
