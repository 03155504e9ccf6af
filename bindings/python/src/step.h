// kvcache.Step: one forward over a batch, from Cache.forward() to end() or abort().
//
// If a Step is garbage-collected while its forward is open, the forward stays open. Only the `with` statement, end()
// and abort() close a forward. So page ids do not depend on the garbage collector. A Step keeps its Cache object alive,
// but the cache can still be closed.
#pragma once

#include <nanobind/nanobind.h>

#include "cache.h"
#include "kvcache.h"
#include "tables.h"

namespace kvcpy {

namespace nb = nanobind;

class Step {
 public:
  static Step begin(nb::handle_t<Cache> cache, nb::handle sequences, nb::handle lengths, nb::handle layers,
                    nb::handle parents, nb::handle spans, nb::handle encoder_group, nb::handle graph,
                    nb::handle stream);

  nb::object attend(int64_t layer, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
                    nb::handle dtype, double softcap, double softmax_scale, nb::handle alibi_slopes, nb::handle sinks,
                    bool causal, bool alibi_signed, nb::handle part, nb::handle rope_cos_sin, nb::handle w_uk,
                    nb::handle w_uv, nb::handle indices, int64_t index_block, nb::handle rel_bias, bool rel_bias_zero,
                    nb::handle key_bias, nb::handle mask, bool spans, bool step_window) const;
  nb::object select(int64_t layer, nb::handle q, int64_t count, nb::handle weights, nb::handle out, nb::handle dtype,
                    bool each_head, int64_t index_block, int64_t first_blocks, int64_t last_blocks,
                    nb::handle candidates, int64_t candidate_block, nb::handle rope_cos_sin) const;
  void append(int64_t layer, nb::handle k, nb::handle v, bool as_stored, nb::handle dtype, nb::handle k_scale,
              nb::handle v_scale, nb::handle rope_cos_sin) const;
  nb::object load_state(int64_t layer, int64_t state, nb::handle out, nb::handle dtype, int64_t token) const;
  void store_state(int64_t layer, int64_t state, nb::handle tensor, nb::handle dtype, int64_t token) const;
  void end();
  void abort();
  void cancel() const;
  // Called at the end of a `with` block. Ends the forward if it is still open. Aborts the forward if an exception
  // leaves the block (`failed`), or if the end fails.
  void leave(bool failed);
  nb::str describe_text() const;
  nb::object describe() const;
  Tables tables(int64_t group, nb::handle part, bool slots, nb::handle pad, nb::handle arrays) const;
  // Return int32 arrays. The first call copies them, so they stay valid after the forward.
  nb::object positions();
  nb::object last_rows();

  static void bind(nb::module_& module);

 private:
  Step(nb::object cache, kvc_forward forward, Work work)
      : cache_(std::move(cache)), forward_(forward), work_(std::move(work)) {}

  std::shared_ptr<CacheHandle> open() const;
  void read_info();
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear_references(PyObject* self);
  static const PyType_Slot kSlots[];

  nb::object cache_;
  kvc_forward forward_;
  const Work work_;
  bool closed_ = false;
  nb::object positions_, last_rows_;
};

}  // namespace kvcpy
