// attend() runs the work items of a layer. If several items write parts for a tile, the item that finishes last merges
// the parts.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/common/mask.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"
#include "kernels/cpu/merge_tile.h"

namespace kvc::kernels {
namespace {

// kTinyOperations multiply-adds take one thread about a microsecond. kSmallOperations take about as long as the wake-up
// of another thread.
constexpr int64_t kTinyOperations = 32 * 1024;
constexpr int64_t kSmallOperations = 512 * 1024;

struct Job {
  const kvc_backend_attend* args;
  const Implementation* implementation;
  Scratch* scratch;  // [workers]
  int32_t skipped;   // atomic: 1 = an item was skipped
};

// Counts a finished item of a tile. The last item to finish merges the tile. The increment of the counter acquires and
// releases, so the last item reads what the other items wrote.
void finish_item_of(const Job& job, int32_t index, Scratch* scratch) {
  const kvc_backend_plan& plan = *job.args->plan;
  const kvc_backend_tile& tile = plan.arrays.tiles[index];
  const int32_t finished = __atomic_fetch_add(&plan.counters[index], 1, __ATOMIC_ACQ_REL) + 1;
  if (finished == tile.item_end - tile.item_begin + tile.shared_items) {
    merge_tile(*job.args, tile, *job.implementation, scratch);
  }
}

void run_item(void* arg, int64_t index, int32_t worker) {
  Job& job = *static_cast<Job*>(arg);
  const kvc_backend_attend& args = *job.args;
  if (args.cancel_host != nullptr && __atomic_load_n(args.cancel_host, __ATOMIC_RELAXED) != 0) {
    __atomic_store_n(&job.skipped, 1, __ATOMIC_RELAXED);
    return;
  }
  const DefaultFloatEnvironment environment;
  const kvc_backend_plan_arrays& arrays = args.plan->arrays;
  const kvc_backend_item& item = arrays.items[index];
  Scratch* scratch = job.scratch + worker;
  attend_item(*job.implementation, &args, &item, scratch);
  for (int32_t span = item.span_begin; span < item.span_end; ++span) {
    finish_item_of(job, arrays.spans[span].tile, scratch);
  }
  if (!is_shared(&item) && item.tile >= 0) finish_item_of(job, item.tile, scratch);
}

// Estimates the work of the call as a kvc_backend_effort. The function reads at most 32 items.
int32_t effort_of(const kvc_backend_attend& args) {
  const kvc_backend_plan& plan = *args.plan;
  if (plan.num_items > 32) return KVC_EFFORT_LARGE;
  const int64_t dims = args.layer->head_dim + args.layer->v_head_dim;
  const int64_t group = args.layer->num_q_heads / args.layer->num_kv_heads;
  int64_t operations = 0;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
    const KeyRange keys = intersect({item.key_begin, item.key_end}, {0, plan.arrays.rows.kv_lengths[item.row]});
    operations += (item.q_end - item.q_begin) * group * (item.head_end - item.head_begin) * dims *
                  static_cast<int64_t>(keys.end - keys.begin);
  }
  if (operations <= kTinyOperations) return KVC_EFFORT_TINY;
  return operations <= kSmallOperations ? KVC_EFFORT_SMALL : KVC_EFFORT_LARGE;
}

}  // namespace

kvc_status attend(kvc_backend_device* device, const kvc_backend_attend* args, void*, kvc_error* error) {
  Job job = {args, device->implementation, device->scratch, 0};
  if (args->plan->num_items > 0) {
    std::fill_n(args->plan->counters, args->plan->num_tiles, 0);
    device->host->run(device->host->self, args->plan->num_items, effort_of(*args), run_item, &job);
  }
  if (__atomic_load_n(&job.skipped, __ATOMIC_RELAXED) != 0) {
    return fail(error, KVC_ERROR_CANCELLED, "attend was cancelled");
  }
  return KVC_OK;
}

}  // namespace kvc::kernels
