// Attends of MLA layers with the caller's up-projections: q and out as the model has them, [T, Hq, Dn + R] and
// [T, Hq, Dv]. Rows with few new tokens are attended in latent space (absorbed: q W_UK, then o W_UV); of rows with
// many, the new tokens attend to each other by K and V of their own (decompressed), the earlier ones are attended
// absorbed, and the two are merged by LSE. plan/latent_plan.h says which.
//
// For a backend both are ordinary attends: over the stored rows with fewer heads, and over a dense K and V in scratch
// that has the shape of one large page. Heads are computed as many at a time as scratch holds.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "context/device_step.h"
#include "layer/geometry.h"
#include "plan/latent_plan.h"
#include "plan/work_plan.h"

namespace kvc {

// A checked call.
struct LatentCall {
  kvc_backend_attend attend;  // with layer, tensors and options, without a plan; q and out as above
  kvc_backend_plan plan;      // of all rows, without items
  uint32_t flags;             // KVC_ATTEND_*, as the caller gave them
  kvc_backend_tensor w_uk;    // [Hq, Dn, latent]: token_stride from head to head
  kvc_backend_tensor w_uv;    // [Hq, Dv, latent]
  LatentShape shape;
  const int64_t* slots;  // [T]: of the new tokens, where calls of the backend read them; null over an encoder sequence
  bool rope_given;       // attend.cos_sin is the caller's
};

// Checks the up-projections of a call, and says what dims q and out have; of a call without, those of the layer.
Status read_projections(const kvc_attend_args& args, const kvc_backend_layer& layer, DLDevice device, LatentCall* call);

// What such calls compute in, and their plans, of one step. A plan is made and staged by the first layer that needs it;
// layers after it use it again, as long as a step does not need more plans than are kept.
//
// Thread safety: none. Nothing is allocated after create.
class LatentScratch {
 public:
  // first_slot: of its plans among those of the step. Of a cache without MLA layers: null.
  static Status create(const std::shared_ptr<Context>& context, const Geometry& geometry, int32_t first_slot,
                       std::unique_ptr<LatentScratch>* out);
  static int64_t bytes_needed(const Context& context, const Geometry& geometry);

  // Appends the plans, by slot, as kvc_backend_step_limits has them.
  void list_plans(std::vector<const kvc_backend_plan*>* plans) const;
  // Forgets the plans of the last step.
  void start() noexcept;
  // step: the forward's, empty on devices that stage nothing.
  Status attend(const Context& context, const LatentCall& call, DeviceStep* step, void* stream);

 private:
  class Run;
  // Rows [begin, end) of a group, cut by a shape. Groups have unlike page tables, and layers unlike sets of RoPE
  // factors.
  struct PlanKey {
    const int32_t *roots, *key_sets;  // as the group's and the layer's plan has them
    int32_t begin, end;
    uint32_t flags;
    bool decompressed;
    WorkShape shape;
    friend bool operator==(const PlanKey& a, const PlanKey& b) noexcept = default;
  };
  struct KeptPlan {
    WorkPlan work;
    kvc_backend_plan plan = {};
    kvc_backend_layer layer = {};  // that plan.layer points to
    PlanKey key = {};
    bool made = false;  // in this step
  };
  // What the plans of a layer's head counts can need.
  struct Needs {
    kvc_backend_layer layer = {};  // with the most heads
    int64_t buffer_bytes = 0, partial_floats = 0, items = 0, tiles = 0;
  };
  static Needs needs(const Context& context, const Geometry& geometry);
  KeptPlan& find_plan(const PlanKey& key) noexcept;

  static constexpr size_t kPlans = 4;
  std::shared_ptr<DeviceMemory> buffer_, partials_;
  std::shared_ptr<DeviceMemory> zeros_;  // the page list of decompressed rows, which have one page
  std::vector<int32_t> tile_counters_;
  kvc_backend_layer widest_ = {};  // of the cache's MLA layers, that with the most heads
  std::vector<KeptPlan> plans_;    // [kPlans]
  size_t next_plan_ = 0;           // the one that is made anew if none fits
  bool streaming_ = false;         // sequences may stream
  bool deterministic_ = false;     // KVC_CACHE_DETERMINISTIC: all rows in latent space
};

}  // namespace kvc
