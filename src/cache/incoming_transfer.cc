// Transfers: the code of the receiver.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "cache/cache_transfers.h"

namespace kvc {

// Call it before writes to pages of a transfer. Orders them after the work that earlier calls have enqueued on these
// pages.
Status CacheTransfers::begin_writes() {
  MutexLock cache_lock(cache_mutex_);
  return order_.enter(stream_.get());
}

Status CacheTransfers::end_writes(Status written) {
  MutexLock cache_lock(cache_mutex_);
  Status left = order_.leave(stream_.get());
  return written.ok() ? std::move(left) : std::move(written);
}

// The number of ranks out of tp_size that send to this cache.
size_t CacheTransfers::count_senders(int32_t tp_size) const noexcept {
  size_t count = 0;
  const Geometry& geometry = layers_.geometry();
  for (int32_t rank = 0; rank < tp_size; ++rank) count += have_parts(geometry, {{rank, tp_size}, geometry.tp}) ? 1 : 0;
  return count;
}

// Ignores a second sender with the same rank, and a sender whose tp_size is not that of the first sender.
Status CacheTransfers::take_open(Transfer* transfer, const TransferMessage& message, std::span<const uint8_t> address) {
  const Geometry& geometry = layers_.geometry();
  if (message.count < 1 || message.count > kMaxTpSize || message.part < 0 || message.part >= message.count ||
      !can_have_ranks(geometry, static_cast<int32_t>(message.count))) {
    return Status::error(KVC_ERROR_CORRUPT, "the sender has rank %" PRId64 " of %" PRId64, message.part, message.count);
  }
  const TpRank tp{static_cast<int32_t>(message.part), static_cast<int32_t>(message.count)};
  for (const Peer& peer : transfer->peers) {
    if (peer.tp.size != tp.size || peer.tp == tp) return Status();
  }
  if (!have_parts(geometry, {tp, geometry.tp})) return Status();
  Peer peer;
  peer.tp = tp;
  peer.reply = message.reply;
  peer.reply_token = message.reply_token;
  peer.parts = transfer_parts(layers_, {tp, geometry.tp}, transfer->begins, transfer->num_tokens);
  peer.heard_ms = now_ms();
  transfer->peers.reserve(transfer->peers.size() + 1);  // so that nothing fails after connect
  KVC_TRY(link_->connect(std::vector<uint8_t>(address.begin(), address.end()), &peer.endpoint));
  transfer->opened_ms = peer.heard_ms;
  transfer->num_senders = count_senders(tp.size);
  transfer->peers.push_back(std::move(peer));
  return Status();
}

Status CacheTransfers::take_rows(Transfer* transfer, Peer* peer, const TransferMessage& m,
                                 std::span<const uint8_t> data) {
  TransferPart* part = nullptr;
  if (m.part >= 0 && m.part < static_cast<int64_t>(peer->parts.size())) {
    part = &peer->parts[static_cast<size_t>(m.part)];
  }
  // If the sender aborts a forward, it sends rows again. These replace the rows that were received before.
  if (part == nullptr || peer->ended || m.position < part->begin || m.position > part->next || m.count < 1 ||
      m.count > part->end - m.position || m.count > static_cast<int64_t>(data.size()) ||
      m.count * part->unit_bytes != static_cast<int64_t>(data.size())) {
    return Status::error(KVC_ERROR_CORRUPT,
                         "a message has %zu bytes for %" PRId64 " units from %" PRId64 " on of part %" PRId64
                         ", which is not expected",
                         data.size(), m.count, m.position, m.part);
  }
  const auto group = static_cast<size_t>(part->group);
  if (part->state) {
    transfer->states[group].resize(static_cast<size_t>(part->end));
    std::memcpy(transfer->states[group].data() + m.position, data.data(), data.size());
  } else {
    const int64_t page_rows = layers_.geometry().page_size / part->row_tokens;
    const std::vector<int32_t>& pages = transfer->pages[group];
    slots_.clear();
    for (int64_t i = m.position; i < m.position + m.count; ++i) {
      slots_.push_back(int64_t{pages[static_cast<size_t>(i / page_rows)]} * page_rows + i % page_rows);
    }
    KVC_TRY(begin_writes());
    KVC_TRY(end_writes(copy_->write_run(part->run, slots_, data.data(), stream_.get())));
  }
  part->next = m.position + m.count;
  transfer->bytes += static_cast<int64_t>(data.size());
  return Status();
}

Status CacheTransfers::take_end(Transfer* transfer, Peer* peer, const TransferMessage& message) {
  const auto open = std::find_if_not(peer->parts.begin(), peer->parts.end(),
                                     [](const TransferPart& part) { return part.complete(); });
  if (open != peer->parts.end() || message.count < KVC_ROPE_SET_SHORT || message.count > KVC_ROPE_SET_LONG) {
    return Status::error(KVC_ERROR_CORRUPT,
                         "the sender has ended, with factor set %" PRId64 " and %" PRId64 " of %" PRId64 " tokens",
                         message.count, tokens_of(peer->parts, transfer->num_tokens), transfer->num_tokens);
  }
  for (const TransferPart& part : peer->parts) {
    if (!part.state || part.end == 0) continue;
    const auto group = static_cast<size_t>(part.group);
    KVC_TRY(begin_writes());
    KVC_TRY(end_writes(
        copy_->write_states(part.group, transfer->pages[group].back(), transfer->states[group].data(), stream_.get())));
  }
  MutexLock cache_lock(cache_mutex_);
  const int32_t slot = store_.slot_of(transfer->sequence);
  const auto other =
      std::find_if(transfer->peers.begin(), transfer->peers.end(), [](const Peer& p) { return p.ended; });
  if (other != transfer->peers.end() && rope_sets_.of(slot) != message.count) {
    return Status::error(KVC_ERROR_CORRUPT, "the senders have the factor sets %d and %" PRId64, rope_sets_.of(slot),
                         message.count);
  }
  rope_sets_.set(slot, static_cast<int32_t>(message.count));
  peer->ended = true;
  return Status();
}

// Answers each sender when all its data has arrived. The transfer is done only when the transport has sent all answers,
// because the caller may stop polling after that.
Status CacheTransfers::advance_receiver(Transfer* transfer) {
  bool answered = false;
  for (Peer& peer : transfer->peers) {
    if (!peer.ended || peer.answer != 0 || peer.lost) continue;
    const TransferMessage message = message_to(*transfer, peer, MessageKind::kDone);
    peer.lost = !link_->send_text(peer.endpoint, message, "done", &peer.answer).ok();
    answered = true;
  }
  if (answered) progress();
  transfer->done = transfer->all_opened();
  for (const Peer& peer : transfer->peers) {
    transfer->done = transfer->done && (peer.lost || (peer.answer != 0 && !link_->is_open(peer.answer)));
  }
  return Status();
}

}  // namespace kvc
