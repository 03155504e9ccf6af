// Runs attention of MLA layers for calls with up-projections (w_uk and w_uv). q and out have the shapes of the model,
// [T, Hq, Dn + R] and [T, Hq, Dv]. There are two forms of this computation, and plan/latent_plan.h chooses one for each
// row:
//   - absorbed: a row with few new tokens attends in latent space (q W_UK, then o W_UV).
//   - decompressed: for a row with many new tokens, K and V of these tokens are computed, and the tokens attend to each
//     other. They attend to earlier tokens in the absorbed form, and both results are merged by LSE.
//
// A backend computes both forms as usual attention. The absorbed form attends over the stored rows, for some of the
// heads. The decompressed form attends over a dense K and V in scratch, in the shape of one large page. As many heads
// are computed at a time as scratch can hold.
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
  kvc_backend_tensor w_uk;    // [Hq, Dn, latent]; token_stride is the stride of heads
  kvc_backend_tensor w_uv;    // [Hq, Dv, latent]; token_stride is the stride of heads
  LatentShape shape;
  // [T]: slots of the new tokens, at the address for calls of the backend; null for a cross-attention layer
  const int64_t* slots;
  bool rope_given;  // attend.cos_sin is the caller's
};

// Checks the up-projections of a call, and sets call->shape to the dims of q and out. Without up-projections, these
// are the dims of the layer.
Status read_projections(const kvc_attend_args& args, const kvc_backend_layer& layer, DLDevice device, LatentCall* call);

// The scratch and the plans of all LatentCalls of one step. The first layer that needs a plan makes and stages it.
// Later layers use the plan again, unless the step needs more than kPlans plans.
//
// Thread safety: none. Nothing is allocated after create.
class LatentScratch {
 public:
  // first_slot: kvc_backend_plan.slot of the first plan of this object. *out stays null for a cache without MLA
  // layers.
  static Status create(const std::shared_ptr<Context>& context, const Geometry& geometry, int32_t first_slot,
                       std::unique_ptr<LatentScratch>* out);
  static int64_t bytes_needed(const Context& context, const Geometry& geometry);

  // Appends the plans, ordered by slot, as kvc_backend_step_limits needs them.
  void list_plans(std::vector<const kvc_backend_plan*>* plans) const;
  // Drops the plans of the last step.
  void start() noexcept;
  // step: the DeviceStep of the forward, which is empty on devices that stage nothing.
  Status attend(const Context& context, const LatentCall& call, DeviceStep* step, void* stream);

 private:
  class Run;
  // What a plan depends on: rows [begin, end) of a group, and how their work is cut. Each group has its own page
  // tables, and a layer can have its own sets of RoPE factors.
  struct PlanKey {
    const int32_t *roots, *key_sets;  // from the plan of the group and the layer
    int32_t begin, end;
    uint32_t flags;
    bool decompressed;
    int32_t listed_keys;  // see WorkPlan::build
    WorkShape shape;
    friend bool operator==(const PlanKey& a, const PlanKey& b) noexcept = default;
  };
  struct KeptPlan {
    WorkPlan work;
    kvc_backend_plan plan = {};
    kvc_backend_layer layer = {};  // plan.layer points to this field
    PlanKey key = {};
    bool made = false;  // in this step
  };
  // The largest sizes that a plan can need, for any number of heads.
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
  kvc_backend_layer widest_ = {};  // the MLA layer with the most heads
  std::vector<KeptPlan> plans_;    // [kPlans]
  size_t next_plan_ = 0;           // index of the plan that is replaced next
  bool streaming_ = false;         // sequences may stream
  bool deterministic_ = false;     // KVC_CACHE_DETERMINISTIC: all rows use the absorbed form
};

}  // namespace kvc
