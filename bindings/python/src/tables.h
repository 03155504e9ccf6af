// kvcache.Tables: the arrays that other attention kernels need for a step. kvcache.Plan: makes Tables from a server's
// own arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "context.h"
#include "kvcache.h"
#include "work.h"

namespace kvcpy {

namespace nb = nanobind;

// Arrays that were not requested are None.
struct Tables {
  nb::object block_table, cache_seqlens, cu_seqlens_q, cu_seqlens_k, indptr, indices, last_page_len, key_starts,
      leftpad, batch_rows, sink_tokens, hole_tokens, slot_mapping, positions, last_rows, generation_word;
  bool causal = false;
  int64_t num_rows = 0, num_queries = 0, page_size = 0, max_seqlen_q = 0, max_seqlen_k = 0, max_pages = 0,
          num_pages = 0, num_keys = 0, generation = 0;

  // On the host, makes numpy arrays: views of the library's arrays that keep `owner` alive, or copies if `owner` is
  // null. On a GPU, makes Tensors: views that keep `memory` alive, and whose bytes are written on the stream of `work`.
  Tables(const kvc_tables& tables, nb::handle owner, std::shared_ptr<void> memory, const Work& work);
  template <class Take>
  Tables(const kvc_tables& tables, const Take& take);
  // Returns a kvc_tables whose input fields are set from the arguments.
  static kvc_tables wanted(nb::handle part, bool slots, nb::handle pad, nb::handle arrays);

  static void bind(nb::module_& module);
};

class Plan {
 public:
  Plan(nb::handle_t<Context> context, nb::dict config);
  Plan(const Plan&) = delete;

  // Runs with the GIL held, so that the calls of several threads run one after another.
  uint64_t build(nb::dict arrays, bool rows_grew, nb::handle stream);
  Tables tables(int64_t step, nb::handle part);
  void check(nb::handle generation) const;

  static void bind(nb::module_& module);

 private:
  // The C plan. Tables on a GPU keep it alive.
  struct Handle {
    std::shared_ptr<ContextHandle> context;
    kvc_plan* plan = nullptr;
    ~Handle() { kvc_plan_destroy(plan); }
  };
  const std::shared_ptr<Handle> handle_ = std::make_shared<Handle>();
  Work work_;  // of the last build
  bool graph_ = false;
};

}  // namespace kvcpy
