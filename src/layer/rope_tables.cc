#include "layer/rope_tables.h"

namespace kvc {
namespace {

// The number of float64 values in the table of one set.
int64_t table_size(const RopeClass& rope) noexcept {
  return int64_t{KVC_BACKEND_ROPE_LEVELS} * KVC_BACKEND_ROPE_RADIX * rope.rope_dim;
}

int64_t class_bytes(const RopeClass& rope) noexcept {
  return table_size(rope) * static_cast<int64_t>(rope.sets.size() * sizeof(double));
}

}  // namespace

int64_t RopeTables::bytes_needed(const std::vector<RopeClass>& classes) noexcept {
  int64_t bytes = 0;
  for (const RopeClass& rope : classes) bytes += class_bytes(rope);
  return bytes;
}

Status RopeTables::create(const std::shared_ptr<Context>& context, const std::vector<RopeClass>& classes,
                          RopeTables* out) {
  for (const RopeClass& rope : classes) {
    Table table = {rope, nullptr};
    KVC_TRY(DeviceMemory::allocate(context, class_bytes(rope), DeviceMemory::kPageAlignment, false, &table.memory));
    auto* values = static_cast<double*>(table.memory->data());
    for (const RopeFrequencies& set : rope.sets) {
      const kvc_backend_rope_table args = {rope.rope_dim, 0, set.inverse.data(), set.attention_factor, values};
      kvc_error error = KVC_ERROR_INIT;
      KVC_TRY(Status::from(context->backend().rope_table(context->device(), &args, &error), error));
      values += table_size(rope);
    }
    out->tables_.push_back(std::move(table));
  }
  return Status();
}

}  // namespace kvc
