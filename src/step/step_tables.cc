// Tables of a forward for other kernels.
#include <cinttypes>

#include "step/step.h"
#include "tensor/borrowed_tensor.h"

namespace kvc {
namespace {

constexpr uint32_t kFlags = KVC_TABLES_PAD_VALUE | KVC_TABLES_SLOTS;
constexpr uint32_t kArrays = KVC_TABLES_DENSE | KVC_TABLES_CSR | KVC_TABLES_TOKENS;

// Checks that tables of a part can describe the keys that the rows of the step see.
Status check_part(const kvc_backend_rows& rows, bool cross, int32_t part) {
  const bool branches = part == KVC_TABLES_PREFIX || part == KVC_TABLES_BRANCHES;
  if (part != KVC_TABLES_WHOLE && !branches) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "part %d is not WHOLE, PREFIX or BRANCHES", part);
  }
  if (cross) {
    if (!branches) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "part %d: the keys of a cross group do not branch", part);
  }
  if (branches && rows.tree_nodes == nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "part %d: the forward has no trees", part);
  }
  if (branches || ForwardTables::only_chains(rows)) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "part %d (WHOLE): a tree of the forward branches; ask for PREFIX and for BRANCHES", part);
}

}  // namespace

Status Step::check_tables(int32_t group, const kvc_tables& wanted) const {
  KVC_TRY(layers_.check_group(group, false));
  if ((wanted.flags & ~kFlags) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", wanted.flags);
  }
  if ((wanted.arrays & ~kArrays) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "arrays 0x%x has unknown bits", wanted.arrays);
  }
  if ((wanted.flags & KVC_TABLES_PAD_VALUE) == 0 && wanted.pad_value != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "pad_value %d without KVC_TABLES_PAD_VALUE", wanted.pad_value);
  }
  const SequenceStoreConfig::Group& config = layers_.geometry().store.groups[static_cast<size_t>(group)];
  const int32_t encoder = forward_->kind.encoder_group;
  const char* refused = config.rules.holds_state() ? "is recurrent: it has no keys"
                        : encoder >= 0 && encoder != group
                            ? "is not the one to which the forward appends encoder tokens"
                            : nullptr;
  if (refused != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "group %d %s", group, refused).in_group(group);
  }
  if (config.rules.compresses()) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "group %d has a row for each %" PRId64 " tokens, and tables name tokens", group,
                         config.rules.tokens_per_row)
        .in_group(group);
  }
  const bool cross = reads_encoder(group);
  const kvc_backend_rows& rows = forward_->batch->rows();
  KVC_TRY(check_part(rows, cross, wanted.part));
  if (rows.key_ends != nullptr && !cross) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the forward has spans, which tables cannot describe without a mask");
  }
  const bool slots = (wanted.flags & KVC_TABLES_SLOTS) != 0 || wanted.part == KVC_TABLES_BRANCHES;
  const int64_t tokens = config.num_pages * config.rules.page_size;
  if (!slots || tokens <= int64_t{1} << 31) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "%" PRId64 " slots of group %d do not fit int32", tokens, group)
      .in_group(group);
}

Status Step::tables(int32_t group, kvc_tables* out) {
  KVC_TRY(check_tables(group, *out));
  const SequenceStoreConfig::Group& config = layers_.geometry().store.groups[static_cast<size_t>(group)];
  const bool cross = reads_encoder(group);
  Status made = forward_->tables.make(*forward_->batch, {group, config.rules, config.num_pages, cross}, out);
  if (!made.ok()) {
    forward_->tables.refuse(context(), forward_->stream);
    return made;
  }
  const bool tokens = out->arrays == 0 || (out->arrays & KVC_TABLES_TOKENS) != 0;
  if (tokens && !cross) {
    int64_t* const slots = const_cast<int64_t*>(forward_->batch->slot_mapping(group));
    out->slot_mapping = borrowed_tensor(slots, &forward_->info_shapes[0]);
  }
  KVC_TRY(forward_->tables.place(layers_.context(), forward_->stream, out));
  if (!tokens) return Status();
  // positions and last_rows of kvc_forward_get_info, on the device.
  const int32_t *positions = nullptr, *last_rows = nullptr;
  forward_->device_rows(&positions, &last_rows);
  out->positions = borrowed_tensor(const_cast<int32_t*>(positions), &forward_->info_shapes[0]);
  out->last_rows = borrowed_tensor(const_cast<int32_t*>(last_rows), &forward_->info_shapes[1]);
  out->positions.device = out->last_rows.device = context().dl_device();
  return Status();
}

}  // namespace kvc
