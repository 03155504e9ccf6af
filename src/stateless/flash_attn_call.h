// FlashAttnCall: the arguments of kvc_flash_attn_with_kvcache, read and checked as far as shapes, dtypes and options
// go. What the values of its index tensors say is FlashAttnRows' (flash_attn_rows.h).
#pragma once

#include "context/context.h"
#include "kvcache_backend.h"
#include "stateless/foreign_cache.h"
#include "tensor/index_tensor.h"

namespace kvc {

struct FlashAttnCall {
  int64_t rows = 0;         // B
  int64_t row_queries = 0;  // Sq; -1: ragged
  int64_t row_new = 0;      // Sn; -1: ragged
  ForeignCache cache;
  kvc_backend_layer layer = {};  // what attends; cache.layer is what is appended to
  int64_t capacity = 0;          // tokens that each row's cache holds
  bool appends = false;
  bool causal = false;
  int32_t window_right = -1;  // -1: a query sees everything after it
  int32_t num_splits = 0;
  bool unlike_scales = false;  // new K and V are quantised, each row's by scales of its own

  TensorView q, qv, out, lse, k, v, q_descale, k_descale, v_descale, alibi_slopes, sinks;
  IndexTensor cache_seqlens, batch_idx, leftpad, rotary_seqlens, cu_seqlens_q, cu_seqlens_k_new;
  IndexTable block_table;
  RotaryTables rotary;
  kvc_backend_attend attend = {};  // tensors and options, without a plan
  uint32_t flags = 0;              // KVC_ATTEND_*

  // Sinks that are not float32 are converted once a call: numbers of scratch that this takes.
  int64_t sink_floats() const noexcept {
    return sinks.rank == 0 || attend.sinks != nullptr ? 0 : float32_copy_floats(sinks.shape[0]);
  }
  bool paged() const noexcept { return block_table.given(); }
  bool indexes_on_device = false;  // lengths, offsets and page ids are the device's: the host does not know them

  // Status with the first argument that does not fit; nothing is written.
  static Status read(const kvc_flash_attn_args& args, const Context& context, FlashAttnCall* out);

 private:
  Status read_cache(const kvc_flash_attn_args& args);
  Status read_queries(const kvc_flash_attn_args& args);
  Status read_new(const kvc_flash_attn_args& args);
  Status read_indexes(const kvc_flash_attn_args& args);
  Status read_outputs(const kvc_flash_attn_args& args);
  Status read_options(const kvc_flash_attn_args& args);
  Status read_scales(const kvc_flash_attn_args& args);
  Status check_disjoint() const;
  Status check_index_devices();
  Status check_tokens(const DLTensor* tensor, const char* name, int64_t dims, bool written, TensorView* view) const;

  DLDevice device_ = {};
  int64_t tokens_ = 0;  // rows of q
};

}  // namespace kvc
