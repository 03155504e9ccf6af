// The calls for transfers of a cache.
#include <cinttypes>

#include "cache/cache.h"
#include "layer/layout_manifest.h"

namespace kvc {

Status Cache::check_can_transfer() const {
  bool encoders = false;
  for (const auto& group : geometry_.store.groups) encoders = encoders || group.rules.holds_encoder();
  const char* missing = geometry_.tables_only ? "pools" : encoders ? "a cache without encoder groups" : nullptr;
  if (missing == nullptr) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "a transfer needs %s", missing);
}

CacheTransfers& Cache::transfers() {
  MutexLock lock(mutex_);
  if (!transfers_) transfers_ = std::make_unique<CacheTransfers>(layers_, &mutex_, &order_, &store_, &rope_sets_);
  return *transfers_;
}

// Returns STALE_ID if the cache never had a transfer.
Status Cache::find_transfers(kvc_transfer transfer, CacheTransfers** out) {
  MutexLock lock(mutex_);
  *out = transfers_.get();
  if (*out != nullptr) return Status();
  return Status::error(KVC_ERROR_STALE_ID, "transfer %" PRIu64 " does not exist", transfer);
}

Status Cache::set_transport(const kvc_transport& transport) {
  KVC_TRY(check_can_transfer());
  return transfers().set_transport(transport);
}

Status Cache::begin_receive(const kvc_receive_args& args, uint64_t* sequence, std::vector<int64_t>* begins) {
  MutexLock lock(mutex_);
  int32_t prefix = -1;
  if (args.prefix != 0) KVC_TRY(store_.check_prefix(args.prefix, args.num_tokens, &prefix));
  for (int32_t g = 0; g < num_groups(); ++g) begins->push_back(store_.first_received(g, prefix, args.num_tokens));
  copies_.clear();
  KVC_TRY(store_.begin_receive(prefix, args.num_tokens, sequence, &copies_));
  Status cleared = copy_slots(copies_, nullptr);
  if (!cleared.ok()) store_.abandon_load(store_.slot_of(*sequence));
  return cleared;
}

Status Cache::receive_transfer(const kvc_receive_args& args, kvc_transfer* transfer) {
  KVC_TRY(check_can_transfer());
  CacheTransfers& all = transfers();
  uint64_t sequence = 0;
  std::vector<int64_t> begins;
  KVC_TRY(begin_receive(args, &sequence, &begins));
  Status received;
  try {
    received = all.receive(sequence, std::move(begins), args.num_tokens, args.timeout_ms, transfer);
  } catch (const std::bad_alloc&) {
    received =
        Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a transfer of %" PRId64 " tokens", args.num_tokens);
  }
  if (received.ok()) return received;
  MutexLock lock(mutex_);
  store_.abandon_load(store_.slot_of(sequence));
  return received;
}

Status Cache::describe_transfer(kvc_transfer transfer, std::vector<uint8_t>* out) {
  CacheTransfers* all = nullptr;
  KVC_TRY(find_transfers(transfer, &all));
  return all->describe(transfer, out);
}

Status Cache::send_transfer(kvc_seq sequence, std::span<const uint8_t> bytes, kvc_transfer* transfer) {
  KVC_TRY(check_can_transfer());
  TransferDescription description;
  KVC_TRY(decode_description(bytes, &description));
  KVC_TRY(check_same_model({"receiver", "Receiver"}, description.fingerprint, description.manifest, geometry_,
                           layout_manifest_of_all_ranks(geometry_)));
  if (description.begins.size() != static_cast<size_t>(num_groups())) {
    return Status::error(KVC_ERROR_CORRUPT, "the description has %zu groups, and its layout has %d",
                         description.begins.size(), num_groups());
  }
  if (!can_have_ranks(geometry_, description.tp.size)) {
    return Status::error(KVC_ERROR_LAYOUT,
                         "the receiver has tp_size %d and the cache %d, which a recurrent group or the number of kv "
                         "heads does not allow",
                         description.tp.size, geometry_.tp.size);
  }
  return transfers().send(sequence, description, transfer);
}

Status Cache::poll_transfer(kvc_transfer transfer, kvc_transfer_info* info) {
  CacheTransfers* all = nullptr;
  KVC_TRY(find_transfers(transfer, &all));
  return all->poll(transfer, info);
}

Status Cache::cancel_transfer(kvc_transfer transfer) {
  CacheTransfers* all = nullptr;
  KVC_TRY(find_transfers(transfer, &all));
  return all->cancel(transfer);
}

}  // namespace kvc
