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

// A second sender with the same description is ignored.
Status CacheTransfers::take_open(Transfer* transfer, const TransferMessage& message, std::span<const uint8_t> address) {
  if (transfer->connected) return Status();
  KVC_TRY(link_->connect(std::vector<uint8_t>(address.begin(), address.end()), &transfer->peer));
  transfer->connected = true;
  transfer->reply = message.reply;
  transfer->reply_token = message.reply_token;
  return Status();
}

Status CacheTransfers::take_rows(Transfer* transfer, const TransferMessage& m, std::span<const uint8_t> data) {
  TransferPart* part = nullptr;
  if (m.part >= 0 && m.part < static_cast<int64_t>(transfer->parts.size())) {
    part = &transfer->parts[static_cast<size_t>(m.part)];
  }
  // If the sender aborts a forward, it sends rows again. These replace the rows that were received before.
  if (part == nullptr || transfer->ended || m.position < part->begin || m.position > part->next || m.count < 1 ||
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

Status CacheTransfers::take_end(Transfer* transfer, const TransferMessage& message) {
  const auto open = std::find_if_not(transfer->parts.begin(), transfer->parts.end(),
                                     [](const TransferPart& part) { return part.complete(); });
  if (open != transfer->parts.end() || message.count < KVC_ROPE_SET_SHORT || message.count > KVC_ROPE_SET_LONG) {
    return Status::error(KVC_ERROR_CORRUPT,
                         "the sender has ended, with factor set %" PRId64 " and %" PRId64 " of %" PRId64 " tokens",
                         message.count, tokens_of(transfer->parts, transfer->num_tokens), transfer->num_tokens);
  }
  for (const TransferPart& part : transfer->parts) {
    if (!part.state || part.end == 0) continue;
    const auto group = static_cast<size_t>(part.group);
    KVC_TRY(begin_writes());
    KVC_TRY(end_writes(
        copy_->write_states(part.group, transfer->pages[group].back(), transfer->states[group].data(), stream_.get())));
  }
  MutexLock cache_lock(cache_mutex_);
  rope_sets_.set(store_.slot_of(transfer->sequence), static_cast<int32_t>(message.count));
  transfer->ended = true;
  return Status();
}

// The transfer is done only when the transport has sent the answer, because the caller may stop polling after that.
Status CacheTransfers::advance_receiver(Transfer* transfer) {
  if (!transfer->ended) return Status();
  if (transfer->answer == 0) {
    const TransferMessage message = message_to(*transfer, MessageKind::kDone);
    const Status answered = link_->send_text(transfer->peer, message, "done", &transfer->answer);
    transfer->done = !answered.ok();  // all data is here, and the sender is gone
    progress();
  }
  if (transfer->answer != 0 && !link_->is_open(transfer->answer)) transfer->done = true;
  return Status();
}

}  // namespace kvc
