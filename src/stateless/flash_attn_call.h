// A FlashAttnCall has the arguments of kvc_flash_attn_with_kvcache, after their shapes, dtypes and options were
// checked. FlashAttnRows (flash_attn_rows.h) reads the values of the index tensors.
#pragma once

#include "context/context.h"
#include "kvcache_backend.h"
#include "stateless/foreign_cache.h"
#include "tensor/host_reads.h"
#include "tensor/index_tensor.h"

namespace kvc {

struct FlashAttnCall {
  int64_t rows = 0;         // B, the rows of the batch
  int64_t row_queries = 0;  // Sq, the queries of each row; -1: ragged
  int64_t row_new = 0;      // Sn, the new tokens of each row; -1: ragged
  ForeignCache cache;
  kvc_backend_layer layer = {};  // the layer for attend; cache.layer is the layer for append
  int64_t capacity = 0;          // largest number of tokens of each row
  bool appends = false;
  bool causal = false;
  int32_t window_right = -1;   // number of keys that a query sees after itself; -1: all
  int32_t num_splits = 0;      // parts into which the keys of a row are split; 0: the library decides
  bool unlike_scales = false;  // new K and V are stored with scales that differ between rows

  TensorView q, qv, out, lse, k, v, q_descale, k_descale, v_descale, alibi_slopes, sinks, indices;
  IndexTensor cache_seqlens, batch_idx, leftpad, rotary_seqlens, cu_seqlens_q, cu_seqlens_k_new;
  IndexTable block_table;
  RotaryTables rotary;
  kvc_backend_attend attend = {};  // tensors and options, without a plan
  uint32_t flags = 0;              // KVC_ATTEND_*

  // Returns the floats of scratch that the call needs to convert sinks to float32.
  int64_t sink_floats() const noexcept {
    return sinks.rank == 0 || attend.sinks != nullptr ? 0 : float32_copy_floats(sinks.shape[0]);
  }
  bool paged() const noexcept { return block_table.given(); }
  // Returns whether queries attend to lists of slots.
  bool has_lists() const noexcept { return attend.lists.block_tokens > 0; }
  bool host_reads_lists() const noexcept { return host_reads(device_); }
  // Whether lengths, offsets and page ids are on the device. Then the host does not read their values.
  bool indexes_on_device = false;

  // Reads and checks all arguments, or reports the first argument that is wrong. Writes to no tensor.
  static Status read(const kvc_flash_attn_args& args, const Context& context, FlashAttnCall* out);

 private:
  Status read_cache(const kvc_flash_attn_args& args);
  Status read_queries(const kvc_flash_attn_args& args);
  Status read_new(const kvc_flash_attn_args& args);
  Status read_indexes(const kvc_flash_attn_args& args);
  Status read_outputs(const kvc_flash_attn_args& args);
  Status read_options(const kvc_flash_attn_args& args);
  Status read_lists(const kvc_flash_attn_args& args, const kvc_backend& backend);
  Status read_scales(const kvc_flash_attn_args& args);
  Status check_disjoint() const;
  Status check_index_devices();
  Status check_tokens(const DLTensor* tensor, const char* name, int64_t dims, bool written, TensorView* view) const;

  DLDevice device_ = {};
  int64_t tokens_ = 0;  // rows of q
};

}  // namespace kvc
