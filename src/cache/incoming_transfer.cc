// Transfers: the code of the receiver.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "cache/cache_transfers.h"

namespace kvc {

Status CacheTransfers::begin_receive(const kvc_receive_args& args, uint64_t* sequence, std::vector<int64_t>* begins) {
  MutexLock lock(core_.mutex);
  int32_t prefix = -1;
  if (args.prefix != 0) KVC_TRY(core_.store.check_prefix(args.prefix, args.num_tokens, &prefix));
  for (int32_t g = 0; g < core_.num_groups(); ++g)
    begins->push_back(core_.store.first_received(g, prefix, args.num_tokens));
  KVC_TRY(core_.store.begin_receive(prefix, args.num_tokens, sequence, core_.copies.plan()));
  Status cleared = core_.copies.make(nullptr);
  if (!cleared.ok()) core_.store.abandon_load(core_.store.slot_of(*sequence));
  return cleared;
}

Status CacheTransfers::receive(const kvc_receive_args& args, kvc_transfer* transfer) {
  KVC_TRY(check_can_transfer());
  uint64_t sequence = 0;
  std::vector<int64_t> begins;
  KVC_TRY(begin_receive(args, &sequence, &begins));
  Status received;
  try {
    received = add_incoming(args, sequence, std::move(begins), transfer);
  } catch (const std::bad_alloc&) {
    received =
        Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a transfer of %" PRId64 " tokens", args.num_tokens);
  }
  if (received.ok()) return received;
  MutexLock lock(core_.mutex);
  core_.store.abandon_load(core_.store.slot_of(sequence));
  return received;
}

// Registers a sequence that begin_receive has created. begins: SequenceStore::first_received of each group. On failure,
// the caller must abandon the sequence.
Status CacheTransfers::add_incoming(const kvc_receive_args& args, uint64_t sequence, std::vector<int64_t> begins,
                                    uint64_t* transfer) {
  MutexLock lock(mutex_);
  KVC_TRY(make_link());
  std::vector<uint8_t> address;
  KVC_TRY(link_->address(&address));  // checked early: without an address, no sender can connect
  Transfer made;
  made.id = last_ + 1;
  made.sequence = sequence;
  made.num_tokens = args.num_tokens;
  made.timeout_ms = args.timeout_ms;
  made.opened_ms = now_ms();
  KVC_TRY(make_token(&made.token));
  const int32_t groups = core_.num_groups();
  made.states.resize(static_cast<size_t>(groups));
  made.pages.resize(static_cast<size_t>(groups));
  MutexLock cache_lock(core_.mutex);
  const int32_t slot = core_.store.slot_of(sequence);
  for (int32_t g = 0; g < groups; ++g) {
    const PageList& list = core_.store.list(slot, g);
    std::vector<int32_t>& pages = made.pages[static_cast<size_t>(g)];
    pages.assign(static_cast<size_t>(list.size), -1);
    core_.store.table(g).for_each(list, 0, list.size,
                                  [&](int64_t index, int32_t page) { pages[static_cast<size_t>(index)] = page; });
  }
  made.begins = std::move(begins);
  const TpRank tp = core_.geometry.tp;
  const std::vector<TransferPart> all = transfer_parts(core_.layers, {tp, tp}, made.begins, args.num_tokens);
  KVC_TRY(check_rows(all));
  made.begun_tokens = tokens_of(all, args.num_tokens);
  transfers_.emplace(last_ + 1, std::move(made));
  ++core_.num_received;
  *transfer = ++last_;
  return Status();
}

// Orders writes to pages of a transfer after the work that earlier calls have enqueued on these pages. Must be called
// before the writes.
Status CacheTransfers::begin_writes() {
  MutexLock cache_lock(core_.mutex);
  return core_.order.enter(stream_.get());
}

Status CacheTransfers::end_writes(Status written) {
  MutexLock cache_lock(core_.mutex);
  Status left = core_.order.leave(stream_.get());
  return written.ok() ? std::move(left) : std::move(written);
}

// Returns how many ranks of a sender with tp_size ranks send to this cache.
size_t CacheTransfers::count_senders(int32_t tp_size) const noexcept {
  size_t count = 0;
  const Geometry& geometry = core_.geometry;
  for (int32_t rank = 0; rank < tp_size; ++rank) count += have_parts(geometry, {{rank, tp_size}, geometry.tp}) ? 1 : 0;
  return count;
}

// Adds a rank of the sender. Ignores a second sender with the same rank, a sender whose tp_size is not that of the
// first sender, and a rank that has nothing to send to this cache.
Status CacheTransfers::take_open(Transfer* transfer, const TransferMessage& message, std::span<const uint8_t> address) {
  const Geometry& geometry = core_.geometry;
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
  peer.parts = transfer_parts(core_.layers, {tp, geometry.tp}, transfer->begins, transfer->num_tokens);
  peer.heard_ms = now_ms();
  transfer->peers.reserve(transfer->peers.size() + 1);  // so that no call fails after connect
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
  // After the sender has aborted a forward, it sends rows of the same tokens again. They replace the rows that were
  // received before.
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
    const int64_t page_rows = core_.geometry.page_size / part->row_tokens;
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
  MutexLock cache_lock(core_.mutex);
  const int32_t slot = core_.store.slot_of(transfer->sequence);
  const auto other =
      std::find_if(transfer->peers.begin(), transfer->peers.end(), [](const Peer& p) { return p.ended; });
  if (other != transfer->peers.end() && core_.rope_sets.of(slot) != message.count) {
    return Status::error(KVC_ERROR_CORRUPT, "the senders have the factor sets %d and %" PRId64,
                         core_.rope_sets.of(slot), message.count);
  }
  core_.rope_sets.set(slot, static_cast<int32_t>(message.count));
  peer->ended = true;
  return Status();
}

// Sends an answer to each sender whose data has all arrived. The transfer is done only when the transport has sent all
// answers, because the caller may stop polling after that. A sender whose connection is lost needs no answer.
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
