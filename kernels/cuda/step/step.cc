// See step/step.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/step.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/step/send.h"

namespace kvc::kernels::cuda {
namespace {

using Step = kvc_backend_step;

constexpr int64_t kAlignment = 16;
constexpr int64_t kNodeBytes = KVC_BACKEND_NODE_FANOUT * static_cast<int64_t>(sizeof(int32_t));
constexpr const char* kPurpose = "a step's index arrays";

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
// The bytes for `count` changed nodes: their target addresses first, then their values.
int64_t change_bytes(int64_t count) {
  return padded(count * static_cast<int64_t>(sizeof(int32_t*))) + count * kNodeBytes;
}

int64_t block_bytes(const BlockCounts& blocks) {
  return padded(blocks.both() * static_cast<int64_t>(sizeof(AttendBlock)));
}
// The bytes of the first part of the header: the sizes of the step, and Live of each plan. The second part has the
// plans.
int64_t sizes_bytes(int32_t num_plans) {
  return padded(static_cast<int64_t>(sizeof(Step::Sizes)) +
                num_plans * static_cast<int64_t>(sizeof(kvc_backend_staged_plan::Live)));
}
constexpr int64_t kPlanBytes =
    (static_cast<int64_t>(sizeof(kvc_backend_plan)) + kAlignment - 1) / kAlignment * kAlignment;

// The changed nodes of all mirrors. Each write takes the next nodes, until none are left.
class Changes {
 public:
  explicit Changes(const kvc_backend_stage& args) : args_(args) {}
  int64_t left() const {
    int64_t count = -sent_;
    for (int32_t i = mirror_; i < args_.num_changes; ++i) count += args_.changes[i].num_ids;
    return count;
  }
  // Writes the next `count` changes, in the layout of change_bytes(count).
  ChangedNodes write(int64_t count, unsigned char* to) {
    int32_t** targets = reinterpret_cast<int32_t**>(to);
    unsigned char* values = to + change_bytes(count) - count * kNodeBytes;
    const ChangedNodes written = {targets, reinterpret_cast<const int32_t*>(values), count};
    while (count > 0) {
      const kvc_backend_node_changes& changes = args_.changes[mirror_];
      if (sent_ == changes.num_ids) {
        ++mirror_;
        sent_ = 0;
        continue;
      }
      const int64_t first = int64_t{changes.ids[sent_++]} * KVC_BACKEND_NODE_FANOUT;
      *targets++ = changes.mirror->device + first;
      memcpy(values, changes.mirror->host + first, kNodeBytes);
      values += kNodeBytes;
      --count;
    }
    return written;
  }

 private:
  const kvc_backend_stage& args_;
  int32_t mirror_ = 0;
  int64_t sent_ = 0;  // the number of nodes of changes[mirror_] that were written
};

// One transfer from a pinned buffer to the memory of the step.
class Transfer {
 public:
  Transfer(Step* step, void* stream, kvc_error* error)
      : step_(step), stream_(static_cast<cudaStream_t>(stream)), error_(error) {}
  // Chooses the next pinned buffer, and waits until its last transfer is done.
  kvc_status take() {
    index_ = step_->next;
    step_->next = (index_ + 1) % Step::kStaged;
    return check(cudaEventSynchronize(step_->copied[index_]), "cudaEventSynchronize", kPurpose, error_);
  }
  unsigned char* host() const { return step_->pinned[index_]; }
  // Sends the parts of the buffer, and as many changed nodes as fit. The nodes are written to the buffer from byte
  // `end` on.
  kvc_status send(const StepParts& parts, Changes* changes, int64_t end) {
    const int64_t count = changes->left() < step_->max_changes ? changes->left() : step_->max_changes;
    if (parts.words == 0 && count == 0) return KVC_OK;
    const ChangedNodes nodes = changes->write(count, host() + end);
    const kvc_status sent = send_parts(step_->device, host(), parts, nodes, stream_, error_);
    if (sent != KVC_OK) return sent;
    return check(cudaEventRecord(step_->copied[index_], stream_), "cudaEventRecord", kPurpose, error_);
  }

 private:
  Step* step_;
  cudaStream_t stream_;
  kvc_error* error_;
  int32_t index_ = 0;
};

// Writes the arrays to the places that the core chose, and adds them to `parts`. Returns the place after the last
// array, or, in a step of a graph, after the space for arrays.
int64_t write_arrays(const Step& step, const kvc_backend_stage& args, unsigned char* host, StepParts* parts) {
  int64_t end = step.header_bytes;
  for (int32_t i = 0; i < args.num_arrays; ++i) {
    const kvc_backend_array& array = args.arrays[i];
    if (array.bytes == 0) continue;
    const int64_t at = static_cast<const unsigned char*>(array.device) - step.device;
    memcpy(host + at, array.data, static_cast<size_t>(array.bytes));
    parts->add(at, at + array.bytes);
    if (at + array.bytes > end) end = at + array.bytes;
  }
  return args.max_tokens > 0 ? step.header_bytes + step.array_bytes : padded(end);
}

// For a step of a graph: writes the plan with its device addresses, and its sizes, to the header.
void write_live(Step* step, const kvc_backend_plan& plan, unsigned char* host) {
  Step::Slot& slot = step->slots[plan.slot];
  const int64_t live_at = static_cast<int64_t>(sizeof(Step::Sizes)) +
                          plan.slot * static_cast<int64_t>(sizeof(kvc_backend_staged_plan::Live));
  const int64_t plan_at = sizes_bytes(step->num_slots) + plan.slot * kPlanBytes;
  const kvc_backend_staged_plan::Live live = {slot.staged.count.few, slot.staged.count.many, plan.num_tiles};
  const kvc_backend_plan copy = plan_on_device(plan);
  memcpy(host + live_at, &live, sizeof live);
  memcpy(host + plan_at, &copy, sizeof copy);
  slot.staged.live_plan = reinterpret_cast<const kvc_backend_plan*>(step->device + plan_at);
  slot.staged.live = reinterpret_cast<const kvc_backend_staged_plan::Live*>(step->device + live_at);
  slot.staged.most = slot.most;
  slot.staged.max_tiles = plan.max_tiles;
  slot.staged.max_tokens = step->max_tokens;
}

// Whether the blocks that `listed` describes include all blocks of the plan.
bool has_blocks(const Step::Listed& listed, const kvc_backend_plan& plan) {
  if (plan.num_items > listed.items) return false;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const kvc_backend_item& item = plan.arrays.items[i];
    if (item.q_end - item.q_begin != listed.queries || item.head_begin != listed.head_begin ||
        item.head_end != listed.head_end) {
      return false;
    }
  }
  return true;
}

// Describes the blocks of a plan with at least one item. If the items have different queries or heads, the blocks count
// as unknown.
Step::Listed describe_blocks(const kvc_backend_plan& plan, const BlockCounts& count) {
  const kvc_backend_item& first = plan.arrays.items[0];
  const int64_t items = plan.num_items;
  const Step::Listed listed = {
      items, first.q_end - first.q_begin, first.head_begin, first.head_end, {count.few / items, count.many / items}};
  return has_blocks(listed, plan) ? listed : Step::Listed{};
}

// Must be called if blocks that were listed may not have been sent.
void forget_blocks(Step* step) {
  for (int32_t i = 0; i < step->num_slots; ++i) step->slots[i].listed = {};
}

// Writes the thread blocks of the plans, and adds them to `parts`. In a step of a graph the blocks have fixed places.
// Otherwise they begin at *end. Sets *end to the place after the blocks.
kvc_status write_plans(Step* step, const kvc_backend_stage& args, unsigned char* host, StepParts* parts, int64_t* end,
                       kvc_error* error) {
  const bool fixed = args.max_tokens > 0;
  // If there are more parts than StepParts can hold, the last part also covers places between parts. So all blocks must
  // be written.
  const bool keeps = fixed && parts->count + 2 * args.num_plans <= StepParts::kMost;
  for (int32_t i = 0; i < args.num_plans; ++i) {
    kvc_backend_plan& plan = *args.plans[i];
    Step::Slot& slot = step->slots[plan.slot];
    const bool known = keeps && has_blocks(slot.listed, plan);
    const BlockCounts& of_item = slot.listed.of_item;
    const BlockCounts count = known ? BlockCounts{plan.num_items * of_item.few, plan.num_items * of_item.many}
                                    : count_all_blocks(plan, step->many);
    if (count.few > slot.most.few || count.many > slot.most.many) {
      return fail(error, KVC_ERROR_UNSUPPORTED,
                  "the step needs %lld thread blocks of attention, and there is room for %lld",
                  static_cast<long long>(count.both()), static_cast<long long>(slot.most.both()));
    }
    const int64_t at = fixed ? slot.blocks_at : *end;
    auto* const blocks = reinterpret_cast<AttendBlock*>(host + at);
    const int64_t few = fixed ? slot.most.few : count.few;  // the index of the first block of many rows
    if (!known) {
      list_blocks(plan, kFewRows, blocks);
      list_blocks(plan, step->many, blocks + few);
      parts->add(at, at + block_bytes({count.few, 0}));
      parts->add(at + block_bytes({few, 0}), at + block_bytes({few, count.many}));
      slot.listed = fixed ? describe_blocks(plan, count) : Step::Listed{};
    }
    slot.staged = {};
    slot.staged.blocks = reinterpret_cast<const AttendBlock*>(step->device + at);
    slot.staged.count = count;
    if (fixed) write_live(step, plan, host);
    *end = at + block_bytes(fixed ? slot.most : count);
    plan.staged = &slot.staged;
  }
  return KVC_OK;
}

// Chooses the places of everything in the step's memory. Returns the size of this memory in bytes.
int64_t lay_out(Step* step, const kvc_backend_step_limits& limits) {
  step->header_bytes = sizes_bytes(limits.num_plans) + limits.num_plans * kPlanBytes;
  step->array_bytes = padded(limits.array_bytes);
  step->max_changes = static_cast<int32_t>(limits.num_changes > 64 ? limits.num_changes : 64);
  int64_t end = step->header_bytes + step->array_bytes;
  for (int32_t i = 0; i < limits.num_plans; ++i) {
    Step::Slot& slot = step->slots[i];
    slot.most = most_blocks(*limits.plans[i], limits.max_tokens, step->many);
    slot.blocks_at = end;
    if (i < limits.num_stage_plans) end += block_bytes(slot.most);
  }
  step->capacity = end + change_bytes(step->max_changes);
  for (int32_t i = 0; i < limits.num_plans; ++i) {
    const kvc_backend_plan& plan = *limits.plans[i];
    Step::Slot& slot = step->slots[i];
    slot.late_at = end;
    slot.late_bytes = padded(plan.max_items * static_cast<int64_t>(sizeof(kvc_backend_item))) +
                      padded(plan.max_tiles * static_cast<int64_t>(sizeof(kvc_backend_tile))) +
                      padded(plan.max_spans * static_cast<int64_t>(sizeof(kvc_backend_span))) +
                      padded(plan.max_parts * static_cast<int64_t>(sizeof(int64_t))) + block_bytes(slot.most);
    end += slot.late_bytes;
  }
  return end;
}

void drop(Step* step) {
  for (int i = 0; i < Step::kStaged; ++i) {
    if (step->copied[i] != nullptr) {
      cudaEventSynchronize(step->copied[i]);
      cudaEventDestroy(step->copied[i]);
    }
    if (step->pinned[i] != nullptr) cudaFreeHost(step->pinned[i]);
  }
  if (step->device != nullptr) cudaFree(step->device);
  free(step->slots);
  free(step);
}

}  // namespace

int32_t max_tokens_of(const kvc_backend_step* step) { return step == nullptr ? 0 : step->max_tokens; }

kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error) {
  if (step == nullptr || step->max_tokens > 0) return KVC_OK;
  return check_not_captured(stream, "a call belongs to a forward without a kvc_graph", error);
}

const Step::Sizes* live_sizes_of(const kvc_backend_step* step) {
  return max_tokens_of(step) > 0 ? reinterpret_cast<const Step::Sizes*>(step->device) : nullptr;
}

const int64_t* live_tokens_of(const kvc_backend_step* step) {
  const Step::Sizes* const sizes = live_sizes_of(step);
  return sizes == nullptr ? nullptr : &sizes->tokens;
}

kvc_status mirror_create(kvc_backend_device* device, const int32_t* nodes, int64_t num_nodes,
                         kvc_backend_mirror** mirror, const int32_t** on_device, kvc_error* error) {
  auto* const made = static_cast<kvc_backend_mirror*>(calloc(1, sizeof(kvc_backend_mirror)));
  if (made == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a mirror");
  *made = {nodes, nullptr, num_nodes};
  void* memory = nullptr;
  const kvc_status status = allocate(device, num_nodes * kNodeBytes, 256, 0, &memory, error);
  made->device = static_cast<int32_t*>(memory);
  if (status == KVC_OK) {
    *mirror = made;
    *on_device = made->device;
  } else {
    free(made);
  }
  return status;
}

void mirror_destroy(kvc_backend_device* device, kvc_backend_mirror* mirror) {
  release(device, mirror->device, mirror->num_nodes * kNodeBytes);
  free(mirror);
}

kvc_status step_create(kvc_backend_device* opened, const kvc_backend_step_limits* limits, kvc_backend_step** out,
                       void** arrays, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  auto* const step = static_cast<Step*>(calloc(1, sizeof(Step)));
  if (step == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a step");
  step->many = device_of(opened)->many;
  step->num_slots = limits->num_plans;
  step->slots = static_cast<Step::Slot*>(calloc(static_cast<size_t>(step->num_slots) + 1, sizeof(Step::Slot)));
  kvc_status status = KVC_OK;
  if (step->slots == nullptr) status = fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a step");
  const int64_t bytes = status == KVC_OK ? lay_out(step, *limits) : 0;
  void* memory = nullptr;
  if (status == KVC_OK) {
    status = check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc", kPurpose, error);
    step->device = static_cast<unsigned char*>(status == KVC_OK ? memory : nullptr);
  }
  for (int i = 0; i < Step::kStaged && status == KVC_OK; ++i) {
    void* pinned = nullptr;
    status = check(cudaHostAlloc(&pinned, static_cast<size_t>(step->capacity), cudaHostAllocDefault), "cudaHostAlloc",
                   kPurpose, error);
    if (status != KVC_OK) break;
    step->pinned[i] = static_cast<unsigned char*>(pinned);
    status = check(cudaEventCreateWithFlags(&step->copied[i], cudaEventDisableTiming), "cudaEventCreateWithFlags",
                   kPurpose, error);
  }
  if (status == KVC_OK) {
    *out = step;
    *arrays = step->device + step->header_bytes;
  } else {
    drop(step);
  }
  return status;
}

void step_destroy(kvc_backend_device* opened, kvc_backend_step* step) {
  const CurrentDevice current(*device_of(opened));
  drop(step);
}

kvc_status stage(kvc_backend_device* opened, kvc_backend_step* step, const kvc_backend_stage* args, void* stream,
                 kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  Changes changes(*args);
  Transfer transfer(step, stream, error);
  StepParts parts;
  parts.count = parts.words = 0;
  // Transfers before the last one send the changed nodes that do not fit into the last buffer.
  while (changes.left() > step->max_changes) {
    kvc_status status = transfer.take();
    if (status == KVC_OK) status = transfer.send(parts, &changes, 0);
    if (status != KVC_OK) return status;
  }
  kvc_status status = transfer.take();
  if (status != KVC_OK) return status;
  step->max_tokens = args->max_tokens;
  step->max_rows = args->max_rows;
  if (args->max_tokens > 0) {
    memset(transfer.host(), 0, static_cast<size_t>(sizes_bytes(step->num_slots)));
    *reinterpret_cast<Step::Sizes*>(transfer.host()) = {args->num_tokens, args->num_rows};
    parts.add(0, step->header_bytes);
  }
  int64_t end = write_arrays(*step, *args, transfer.host(), &parts);
  status = write_plans(step, *args, transfer.host(), &parts, &end, error);
  if (status == KVC_OK) status = transfer.send(parts, &changes, end);
  if (status != KVC_OK) forget_blocks(step);
  return status;
}

kvc_status stage_plan(kvc_backend_device* opened, kvc_backend_step* step, kvc_backend_plan* plan, void* stream,
                      kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  kvc_status status = check_not_captured(stream, "a call's plan is valid in this step only", error);
  if (status != KVC_OK) return status;
  Step::Slot& slot = step->slots[plan->slot];
  PlanPieces of_plan(step->many);
  of_plan.list_work(plan);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  status = device.upload.take(of_plan.pieces(), of_plan.count(), stream, error);
  if (status != KVC_OK) return status;
  const int64_t bytes = device.upload.place_at(step->device + slot.late_at, of_plan.pieces(), of_plan.count());
  if (bytes > slot.late_bytes) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "a plan needs %lld bytes, and there is room for %lld",
                static_cast<long long>(bytes), static_cast<long long>(slot.late_bytes));
  }
  of_plan.write(plan, &slot.staged);
  return bytes == 0 ? KVC_OK : device.upload.send_to(step->device + slot.late_at, bytes, stream, error);
}

kvc_status unstage(kvc_backend_device* opened, kvc_backend_step* step, void* stream, kvc_error* error) {
  if (step->max_tokens == 0) return KVC_OK;
  const CurrentDevice current(*device_of(opened));
  return check(cudaMemsetAsync(step->device, 0, static_cast<size_t>(sizes_bytes(step->num_slots)),
                               static_cast<cudaStream_t>(stream)),
               "cudaMemsetAsync", "the end of a graph's step", error);
}

}  // namespace kvc::kernels::cuda
