// kvcache.Tables: what foreign attention kernels want to know of a step, as numpy arrays; and kvcache.Plan, which makes
// them of a server's own arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "context.h"
#include "kvcache.h"

namespace kvcpy {

namespace nb = nanobind;

// Arrays are None where they were not asked for.
struct Tables {
  nb::object block_table, cache_seqlens, cu_seqlens_q, cu_seqlens_k, indptr, indices, last_page_len, key_starts,
      leftpad, batch_rows, sink_tokens, hole_tokens, slot_mapping, positions, last_rows, generation_word;
  bool causal = false;
  int64_t num_rows = 0, num_queries = 0, page_size = 0, max_seqlen_q = 0, max_seqlen_k = 0, max_pages = 0,
          num_pages = 0, num_keys = 0, generation = 0;

  // Views of the library's arrays that keep `owner` alive, or copies if it is null.
  Tables(const kvc_tables& tables, nb::handle owner);
  // What a caller asks for: the in-fields of a kvc_tables.
  static kvc_tables wanted(nb::handle part, bool slots, nb::handle pad, nb::handle arrays);

  static void bind(nb::module_& module);
};

class Plan {
 public:
  Plan(nb::handle_t<Context> context, nb::dict config);
  ~Plan();
  Plan(const Plan&) = delete;

  // With the GIL held: it is what makes threads take turns.
  uint64_t build(nb::dict arrays, bool rows_grew);
  Tables tables(int64_t step, nb::handle part);
  void check(nb::handle generation) const;

  static void bind(nb::module_& module);

 private:
  const std::shared_ptr<ContextHandle> context_;
  kvc_plan* plan_ = nullptr;
  bool graph_ = false;
};

}  // namespace kvcpy
