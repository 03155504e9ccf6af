// Copies of a cache's bookkeeping on an asynchronous device, as handles of its backend. A NodeMirror is the copy of the
// nodes of one group's page lists. A DeviceStep is the copy of the index arrays and plans of one forward. An ArrayList
// places these arrays in the memory of a DeviceStep. On other devices, NodeMirror and DeviceStep are empty and cost
// nothing.
//
// Thread safety: none. Ownership: NodeMirror and DeviceStep keep their context alive.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/context.h"

namespace kvc {

class NodeMirror {
 public:
  // nodes: [num_nodes, fanout]. The array must stay at its address as long as the mirror exists.
  static Status create(std::shared_ptr<Context> context, const int32_t* nodes, int64_t num_nodes, NodeMirror* out);
  NodeMirror() = default;
  NodeMirror(NodeMirror&& other) noexcept;
  NodeMirror& operator=(NodeMirror&&) = delete;
  ~NodeMirror();

  kvc_backend_mirror* get() const noexcept { return mirror_; }
  // Returns the device's copy of the nodes; null if there is no mirror.
  const int32_t* nodes() const noexcept { return nodes_; }

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_mirror* mirror_ = nullptr;
  const int32_t* nodes_ = nullptr;
};

class DeviceStep {
 public:
  static Status create(std::shared_ptr<Context> context, const kvc_backend_step_limits& limits, DeviceStep* out);
  DeviceStep() = default;
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;
  ~DeviceStep();

  const kvc_backend_step* get() const noexcept { return step_; }
  // Returns the address of the step's arrays on the device.
  const void* arrays() const noexcept { return arrays_; }
  Status stage(const kvc_backend_stage& args, void* stream);
  // Stages a plan that was made after the call of stage.
  Status stage_plan(kvc_backend_plan* plan, void* stream);
  Status unstage(void* stream);

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_step* step_ = nullptr;
  void* arrays_ = nullptr;
};

// Lists the arrays for a call of stage, and places them one after another in the step's memory. In a step of a graph,
// each array gets the room of its capacity, so it has the same address in every step.
class ArrayList {
 public:
  // device: the step's memory; null to count bytes only.
  void start(const void* device, bool by_capacity) noexcept {
    arrays_.clear();
    device_ = static_cast<const char*>(device);
    by_capacity_ = by_capacity;
    bytes_ = 0;
  }
  // Sets *on_device to the array's address on the device. The address is null if the array needs no room, or if start
  // was called with null.
  template <class T>
  void add(const T* data, int64_t count, int64_t capacity, const T** on_device) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    const int64_t room = (by_capacity_ ? capacity : count) * kBytes;
    *on_device = device_ == nullptr || room == 0 ? nullptr : reinterpret_cast<const T*>(device_ + bytes_);
    if (count > 0 && device_ != nullptr) arrays_.push_back({data, count * kBytes, *on_device});
    constexpr int64_t kAlignment = KVC_BACKEND_ARRAY_ALIGNMENT;
    bytes_ += (room + kAlignment - 1) / kAlignment * kAlignment;
  }
  const std::vector<kvc_backend_array>& arrays() const noexcept { return arrays_; }
  int64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<kvc_backend_array> arrays_;
  const char* device_ = nullptr;
  bool by_capacity_ = false;
  int64_t bytes_ = 0;
};

}  // namespace kvc
