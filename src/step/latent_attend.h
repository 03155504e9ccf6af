// Attends of MLA layers with the caller's up-projections: q and out as the model has them, [T, Hq, Dn + R] and
// [T, Hq, Dv]. Rows with few new tokens are attended in latent space (absorbed: q W_UK, then o W_UV); of rows with
// many, the new tokens attend to each other by K and V of their own (decompressed), the earlier ones are attended
// absorbed, and the two are merged by LSE. plan/latent_plan.h says which.
//
// Both are attends like any other to a backend: over the stored rows with fewer heads, and over a dense K and V in
// scratch that looks like one large page. Heads are computed as many at a time as scratch holds.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "layer/geometry.h"
#include "plan/latent_plan.h"
#include "plan/work_plan.h"

namespace kvc {

// A checked call.
struct LatentCall {
  kvc_backend_attend attend;  // with layer, rows, tables and options; q and out as above, without items
  kvc_backend_tensor w_uk;    // [Hq, Dn, latent]: token_stride from head to head
  kvc_backend_tensor w_uv;    // [Hq, Dv, latent]
  LatentShape shape;
  const int64_t* slots;  // [T]: of the new tokens
  bool rope_given;       // attend.cos_sin is the caller's
};

// Checks the up-projections of a call, and says what dims q and out have; of a call without, those of the layer.
Status read_projections(const kvc_attend_args& args, const kvc_backend_layer& layer, DLDevice device, LatentCall* call);

// What such calls compute in, and their plans; of one step. Thread safety: none. Nothing is allocated after create.
class LatentScratch {
 public:
  // Of a cache without MLA layers: null.
  static Status create(const std::shared_ptr<Context>& context, const Geometry& geometry,
                       std::unique_ptr<LatentScratch>* out);
  static int64_t bytes_needed(const Context& context, const Geometry& geometry);

  Status attend(const Context& context, const LatentCall& call, void* stream);

 private:
  class Run;
  // What the plans of a layer's head counts can need.
  struct Needs {
    int64_t buffer_bytes = 0, partial_floats = 0, items = 0, tiles = 0;
  };
  static Needs needs(const Context& context, const Geometry& geometry);

  std::shared_ptr<DeviceMemory> buffer_, partials_;
  std::vector<int32_t> tile_counters_;
  std::unique_ptr<WorkPlan> plan_;
  std::vector<kvc_backend_item> items_;  // of decompressed rows
  bool streaming_ = false;               // sequences may stream
  bool deterministic_ = false;           // KVC_CACHE_DETERMINISTIC: all rows in latent space
};

}  // namespace kvc
