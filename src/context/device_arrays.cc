#include "context/device_arrays.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/element_bytes.h"

namespace kvc {
namespace {

int64_t bytes_of(const DLTensor& array) noexcept {
  const int64_t elements = array.ndim == 2 ? array.shape[0] * array.strides[0] : array.shape[0];
  return elements * element_bytes(array.dtype);
}

}  // namespace

void DeviceArrays::clear() noexcept {
  pieces_.clear();
  bytes_ = 0;
}

std::vector<DeviceArrays::Piece>::const_iterator DeviceArrays::lower_bound(const void* array) const noexcept {
  return std::lower_bound(pieces_.begin(), pieces_.end(), array,
                          [](const Piece& piece, const void* source) { return std::less<>()(piece.source, source); });
}

void DeviceArrays::add(const DLTensor& array) {
  if (array.ndim == 0) return;
  const auto at = lower_bound(array.data);
  if (at != pieces_.end() && at->source == array.data) return;
  const int64_t bytes = bytes_of(array);
  pieces_.insert(at, {array.data, bytes, bytes_});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status DeviceArrays::reserve(const std::shared_ptr<Context>& context) {
  const int64_t needed = std::max(bytes_, kAlignment);  // empty arrays need an address on the device too
  if (memory_ && memory_->bytes() >= needed) return Status();
  const int64_t more = memory_ ? std::max(needed, 2 * memory_->bytes()) : needed;
  return DeviceMemory::allocate(context, more, kAlignment, false, &memory_);
}

Status DeviceArrays::upload(const std::shared_ptr<Context>& context, void* stream) {
  KVC_TRY(reserve(context));
  if (bytes_ == 0) return Status();
  staging_.resize(std::max(staging_.size(), static_cast<size_t>(bytes_)));
  for (const Piece& piece : pieces_) {
    if (piece.bytes > 0) std::memcpy(staging_.data() + piece.offset, piece.source, static_cast<size_t>(piece.bytes));
  }
  return context->upload(memory_->data(), staging_.data(), bytes_, stream);
}

void* DeviceArrays::find(const void* array) const noexcept {
  const auto at = lower_bound(array);
  const bool there = at != pieces_.end() && at->source == array && memory_;
  return there ? static_cast<char*>(memory_->data()) + at->offset : nullptr;
}

void DeviceArrays::point(DLTensor* array) const noexcept {
  array->data = find(array->data);
  if (memory_) array->device = memory_->context()->dl_device();
}

Status mark_stale(const Context& context, int64_t* word, void* stream) noexcept {
  static constexpr int64_t kStale = 0;
  Status sent = context.upload(word, &kStale, sizeof kStale, stream);
  if (sent.ok()) return sent;
  return Status::error(sent.code(), "the tables on the device could not be marked as stale: %s", sent.message());
}

}  // namespace kvc
