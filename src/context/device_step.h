// What a device whose calls return before their work is done keeps of a cache's bookkeeping, as handles of its backend:
// NodeMirror, of a group's node pool; DeviceStep, of the index arrays of one forward, and ArrayList, which they are
// written down in. On other devices the first two are empty, and cost nothing.
//
// Thread safety: none. Ownership: keep their context alive.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "context/context.h"

namespace kvc {

class NodeMirror {
 public:
  // nodes: [num_nodes, fanout], at this address until the mirror goes.
  static Status create(std::shared_ptr<Context> context, const int32_t* nodes, int64_t num_nodes, NodeMirror* out);
  NodeMirror() = default;
  NodeMirror(NodeMirror&& other) noexcept;
  NodeMirror& operator=(NodeMirror&&) = delete;
  ~NodeMirror();

  kvc_backend_mirror* get() const noexcept { return mirror_; }

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_mirror* mirror_ = nullptr;
};

class DeviceStep {
 public:
  static Status create(std::shared_ptr<Context> context, const kvc_backend_step_limits& limits, DeviceStep* out);
  DeviceStep() = default;
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;
  ~DeviceStep();

  const kvc_backend_step* get() const noexcept { return step_; }
  Status stage(const kvc_backend_stage& args, void* stream);
  Status unstage(void* stream);
  // Where the device has what is at `data` here; null: nowhere.
  template <class T>
  const T* staged(const T* data) const noexcept {
    return static_cast<const T*>(context_->backend().staged(step_, data));
  }

 private:
  std::shared_ptr<Context> context_;
  kvc_backend_step* step_ = nullptr;
};

// Arrays of a stage; those that a step does not use have no elements and keep their place.
class ArrayList {
 public:
  void clear() noexcept { arrays_.clear(); }
  template <class T>
  void add(const T* data, int64_t count, int64_t capacity) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    if (capacity > 0) arrays_.push_back({data, count * kBytes, capacity * kBytes});
  }
  const std::vector<kvc_backend_array>& arrays() const noexcept { return arrays_; }

 private:
  std::vector<kvc_backend_array> arrays_;
};

}  // namespace kvc
