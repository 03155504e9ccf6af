// See step.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/step.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

using Step = kvc_backend_step;

constexpr int64_t kAlignment = 16;
constexpr int64_t kNodeBytes = KVC_BACKEND_NODE_FANOUT * static_cast<int64_t>(sizeof(int32_t));
constexpr const char* kPurpose = "a step's index arrays";

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
// Targets, then values.
int64_t change_bytes(int64_t count) {
  return padded(count * static_cast<int64_t>(sizeof(int32_t*))) + count * kNodeBytes;
}

// Room for the blocks of planned work: of items that are no shared ones, which have more queries and are few.
BlockCounts most_blocks(const kvc_backend_planned& planned, const BlockCut& many) {
  const kvc_backend_layer& layer = *planned.layer;
  const int32_t group = layer.num_q_heads / layer.num_kv_heads, of_item = most_item_rows(many);
  const int32_t most = group > of_item ? group : of_item;
  const int64_t heads = planned.max_items * layer.num_kv_heads;
  return {heads, heads * ((most + many.rows - 1) / many.rows)};
}
int64_t planned_bytes(const kvc_backend_planned& planned, const BlockCut& many) {
  return padded(most_blocks(planned, many).both() * static_cast<int64_t>(sizeof(AttendBlock)));
}

// Changes that are still to be sent, over all mirrors.
class Changes {
 public:
  explicit Changes(const kvc_backend_stage& args) : args_(args) {}
  int64_t left() const {
    int64_t count = -sent_;
    for (int32_t i = mirror_; i < args_.num_changes; ++i) count += args_.changes[i].num_ids;
    return count;
  }
  // Writes the next `count`, as change_bytes(count).
  void write(int64_t count, unsigned char* to) {
    int32_t** targets = reinterpret_cast<int32_t**>(to);
    unsigned char* values = to + change_bytes(count) - count * kNodeBytes;
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
  }

 private:
  const kvc_backend_stage& args_;
  int32_t mirror_ = 0;
  int64_t sent_ = 0;  // of changes[mirror_]
};

// One copy, from a pinned buffer that it takes, of [0, bytes) to [0, bytes) of the step's memory.
class Copy {
 public:
  Copy(Step* step, void* stream, kvc_error* error)
      : step_(step), stream_(static_cast<cudaStream_t>(stream)), error_(error) {}
  kvc_status take() {
    index_ = step_->next;
    step_->next = (index_ + 1) % Step::kStaged;
    return check(cudaEventSynchronize(step_->copied[index_]), "cudaEventSynchronize", kPurpose, error_);
  }
  unsigned char* host() const { return step_->pinned[index_]; }
  kvc_status send(int64_t begin, int64_t end) {
    if (begin == end) return KVC_OK;
    const kvc_status sent = check(cudaMemcpyAsync(step_->device + begin, host() + begin,
                                                  static_cast<size_t>(end - begin), cudaMemcpyHostToDevice, stream_),
                                  "cudaMemcpyAsync", kPurpose, error_);
    if (sent != KVC_OK) return sent;
    return check(cudaEventRecord(step_->copied[index_], stream_), "cudaEventRecord", kPurpose, error_);
  }

 private:
  Step* step_;
  cudaStream_t stream_;
  kvc_error* error_;
  int32_t index_ = 0;
};

void add_range(Step* step, const void* host, int64_t bytes, const void* device) {
  step->ranges[step->num_ranges++] = {static_cast<const char*>(host), bytes, static_cast<const char*>(device)};
}

// Writes the arrays and gives them their places; what does not fit has none. Returns where they end.
int64_t write_arrays(Step* step, const kvc_backend_stage& args, int64_t end, unsigned char* host) {
  for (int32_t i = 0; i < args.num_arrays && step->num_ranges < step->max_ranges; ++i) {
    const kvc_backend_array& array = args.arrays[i];
    const int64_t bytes = args.max_tokens > 0 ? array.capacity_bytes : array.bytes;
    if (end + padded(bytes) > step->capacity) break;
    if (array.bytes > 0) memcpy(host + end, array.data, static_cast<size_t>(array.bytes));
    if (bytes > 0) add_range(step, array.data, bytes, step->device + end);
    end += padded(bytes);
  }
  return end;
}

kvc_backend_attend attend_of(const kvc_backend_planned& planned) {
  kvc_backend_attend attend = {};
  attend.layer = planned.layer;
  attend.items = planned.items;
  attend.num_items = planned.num_items;
  return attend;
}

// As far as they leave room for the changes.
int64_t write_blocks(Step* step, const kvc_backend_stage& args, int64_t end, int64_t limit, unsigned char* host) {
  for (int32_t i = 0; i < args.num_planned && step->num_blocks < step->max_blocks; ++i) {
    const kvc_backend_planned& planned = args.planned[i];
    const kvc_backend_attend attend = attend_of(planned);
    const BlockCounts count = count_all_blocks(attend, step->many);
    const int64_t bytes = padded(count.both() * static_cast<int64_t>(sizeof(AttendBlock)));
    if (count.both() == 0 || end + bytes > limit) continue;
    list_all_blocks(attend, step->many, reinterpret_cast<AttendBlock*>(host + end));
    step->blocks[step->num_blocks++] = {
        planned.items, reinterpret_cast<AttendBlock*>(step->device + end), count, nullptr, nullptr, {}, 0, nullptr,
        nullptr};
    end += bytes;
  }
  return end;
}

template <class T>
void translate(const Step* step, const T** data) {
  if (*data != nullptr) *data = static_cast<const T*>(staged_address(step, *data));
}

kvc_backend_rows rows_on_device(const Step* step, kvc_backend_rows rows) {
  translate(step, &rows.token_begin);
  translate(step, &rows.kv_lengths);
  translate(step, &rows.positions);
  translate(step, &rows.key_ends);
  translate(step, &rows.stream_sinks);
  translate(step, &rows.stream_windows);
  translate(step, &rows.tree_begin);
  translate(step, &rows.tree_offset);
  translate(step, &rows.tree_nodes);
  translate(step, &rows.key_begins);
  return rows;
}

// The header: sizes, then Live of each planned work that there can be; behind them the rows of each.
int64_t sizes_bytes(int32_t max_planned) {
  return padded(static_cast<int64_t>(sizeof(Step::Sizes)) + max_planned * static_cast<int64_t>(sizeof(Step::Live)));
}
int64_t header_bytes(int32_t max_planned) {
  return sizes_bytes(max_planned) + max_planned * padded(static_cast<int64_t>(sizeof(kvc_backend_rows)));
}

// The same in a graph's step: everything has its place, by its capacity. end: in and out.
kvc_status write_fixed(Step* step, const kvc_backend_stage& args, int64_t* end, unsigned char* host, kvc_error* error) {
  step->header_bytes = sizes_bytes(step->max_blocks);
  memset(host, 0, static_cast<size_t>(step->header_bytes));
  *reinterpret_cast<Step::Sizes*>(host) = {args.num_tokens, args.num_rows};
  auto* const live = reinterpret_cast<Step::Live*>(host + sizeof(Step::Sizes));
  for (int32_t i = 0; i < args.num_planned; ++i) {
    const kvc_backend_planned& planned = args.planned[i];
    const kvc_backend_attend attend = attend_of(planned);
    const BlockCounts count = count_all_blocks(attend, step->many), most = most_blocks(planned, step->many);
    if (count.few > most.few || count.many > most.many) {
      return fail(error, KVC_ERROR_UNSUPPORTED,
                  "the step is %lld thread blocks of attention, and the graph has room for %lld",
                  static_cast<long long>(count.both()), static_cast<long long>(most.both()));
    }
    auto* const blocks = reinterpret_cast<AttendBlock*>(host + *end);
    list_blocks(attend, kFewRows, blocks);
    list_blocks(attend, step->many, blocks + most.few);
    live[i] = {count.few, count.many, planned.num_tiles};
    const int64_t at = step->header_bytes + i * padded(static_cast<int64_t>(sizeof(kvc_backend_rows)));
    const kvc_backend_rows translated = rows_on_device(step, *planned.rows);
    memcpy(host + at, &translated, sizeof translated);
    step->blocks[step->num_blocks++] = {planned.items,
                                        reinterpret_cast<AttendBlock*>(step->device + *end),
                                        count,
                                        reinterpret_cast<kvc_backend_rows*>(step->device + at),
                                        reinterpret_cast<Step::Live*>(step->device + sizeof(Step::Sizes)) + i,
                                        most,
                                        planned.max_tiles,
                                        nullptr,
                                        nullptr};
    *end += planned_bytes(planned, step->many);
  }
  return KVC_OK;
}

void forget(Step* step, const kvc_backend_stage& args) {
  step->num_ranges = step->num_blocks = 0;
  for (int32_t i = 0; i < args.num_changes && i < step->max_ranges; ++i) {
    const kvc_backend_mirror& mirror = *args.changes[i].mirror;
    add_range(step, mirror.host, mirror.num_nodes * kNodeBytes, mirror.device);
  }
}

// Sends [0, end) of the copy that has been taken, and behind it the next changes.
kvc_status send_changes(Step* step, Changes* changes, Copy* copy, int64_t end, void* stream, kvc_error* error) {
  const int64_t count = changes->left() < step->max_changes ? changes->left() : step->max_changes;
  const int64_t bytes = change_bytes(count);
  if (count > 0) changes->write(count, copy->host() + end);
  const kvc_status sent = copy->send(0, end + (count > 0 ? bytes : 0));
  if (sent != KVC_OK || count == 0) return sent;
  const unsigned char* on = step->device + end;
  return place_nodes(reinterpret_cast<int32_t* const*>(on),
                     reinterpret_cast<const int32_t*>(on + bytes - count * kNodeBytes), count, stream, error);
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
  free(step->ranges);
  free(step->blocks);
  free(step);
}

}  // namespace

const void* staged_address(const kvc_backend_step* step, const void* data) {
  if (step == nullptr) return nullptr;
  const char* const host = static_cast<const char*>(data);
  const Step::Range *const ranges = step->ranges, *const end = ranges + step->num_ranges;
  const Step::Range* const next =
      std::upper_bound(ranges, end, host, [](const char* a, const Step::Range& range) { return a < range.host; });
  if (next == ranges) return nullptr;
  const Step::Range& range = next[-1];
  return host - range.host < range.bytes ? range.device + (host - range.host) : nullptr;
}

int32_t max_tokens_of(const kvc_backend_step* step) { return step == nullptr ? 0 : step->max_tokens; }

kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error) {
  if (step == nullptr || step->max_tokens > 0) return KVC_OK;
  return check_not_captured(stream, "a call of a forward that is in no graph", error);
}

const Step::Sizes* live_sizes_of(const kvc_backend_step* step) {
  return max_tokens_of(step) > 0 ? reinterpret_cast<const Step::Sizes*>(step->device) : nullptr;
}

const int64_t* live_tokens_of(const kvc_backend_step* step) {
  const Step::Sizes* const sizes = live_sizes_of(step);
  return sizes == nullptr ? nullptr : &sizes->tokens;
}

const kvc_backend_step::Blocks* staged_blocks(const kvc_backend_step* step, const kvc_backend_item* items) {
  for (int32_t i = 0; step != nullptr && i < step->num_blocks; ++i) {
    if (step->blocks[i].items == items) return &step->blocks[i];
  }
  return nullptr;
}

kvc_status mirror_create(kvc_backend_device* device, const int32_t* nodes, int64_t num_nodes,
                         kvc_backend_mirror** mirror, kvc_error* error) {
  auto* const made = static_cast<kvc_backend_mirror*>(calloc(1, sizeof(kvc_backend_mirror)));
  if (made == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a mirror");
  *made = {nodes, nullptr, num_nodes};
  void* memory = nullptr;
  const kvc_status status = allocate(device, num_nodes * kNodeBytes, 256, 0, &memory, error);
  made->device = static_cast<int32_t*>(memory);
  if (status == KVC_OK) {
    *mirror = made;
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
                       kvc_error* error) {
  constexpr int64_t kMostMirrors = 64;
  const CurrentDevice current(*device_of(opened));
  auto* const step = static_cast<Step*>(calloc(1, sizeof(Step)));
  if (step == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a step");
  step->many = device_of(opened)->many;
  step->max_ranges = static_cast<int32_t>(limits->num_arrays + kMostMirrors);
  step->max_blocks = limits->num_planned;
  step->max_changes = static_cast<int32_t>(limits->num_changes > 64 ? limits->num_changes : 64);
  step->capacity = header_bytes(limits->num_planned) + limits->array_bytes +
                   kAlignment * (limits->num_arrays + limits->num_planned) + change_bytes(step->max_changes);
  for (int32_t i = 0; i < limits->num_planned; ++i) step->capacity += planned_bytes(limits->planned[i], step->many);
  step->ranges = static_cast<Step::Range*>(calloc(static_cast<size_t>(step->max_ranges), sizeof(Step::Range)));
  step->blocks = static_cast<Step::Blocks*>(calloc(static_cast<size_t>(step->max_blocks) + 1, sizeof(Step::Blocks)));
  kvc_status status = KVC_OK;
  if (step->ranges == nullptr || step->blocks == nullptr) {
    status = fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a step");
  }
  void* memory = nullptr;
  if (status == KVC_OK) {
    status = check(cudaMalloc(&memory, static_cast<size_t>(step->capacity)), "cudaMalloc", kPurpose, error);
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
  forget(step, *args);
  Changes changes(*args);
  Copy copy(step, stream, error);
  // More changes than one copy holds go ahead: the places of later copies are the arrays' own.
  while (changes.left() > step->max_changes) {
    kvc_status status = copy.take();
    if (status == KVC_OK) status = send_changes(step, &changes, &copy, 0, stream, error);
    if (status != KVC_OK) return status;
  }
  kvc_status status = copy.take();
  if (status != KVC_OK) return status;
  const bool fixed = args->max_tokens > 0;
  step->max_tokens = args->max_tokens;
  step->max_rows = args->max_rows;
  int64_t end = write_arrays(step, *args, fixed ? header_bytes(step->max_blocks) : 0, copy.host());
  std::sort(step->ranges, step->ranges + step->num_ranges,
            [](const Step::Range& a, const Step::Range& b) { return a.host < b.host; });
  if (fixed) {
    status = write_fixed(step, *args, &end, copy.host(), error);
  } else {
    end = write_blocks(step, *args, end, step->capacity - change_bytes(changes.left()), copy.host());
  }
  return status == KVC_OK ? send_changes(step, &changes, &copy, end, stream, error) : status;
}

kvc_status unstage(kvc_backend_device* opened, kvc_backend_step* step, void* stream, kvc_error* error) {
  if (step->header_bytes == 0) return KVC_OK;
  const CurrentDevice current(*device_of(opened));
  return check(
      cudaMemsetAsync(step->device, 0, static_cast<size_t>(step->header_bytes), static_cast<cudaStream_t>(stream)),
      "cudaMemsetAsync", "the end of a graph's step", error);
}

const void* staged(const kvc_backend_step* step, const void* data) { return staged_address(step, data); }

}  // namespace kvc::kernels::cuda
