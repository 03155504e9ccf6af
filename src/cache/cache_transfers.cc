// Transfers: the code of both sides.
#include "cache/cache_transfers.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/steady_clock.h"
#include "layer/layout_manifest.h"
#include "system/random.h"
#include "transfer/memory_transport.h"

namespace kvc {
namespace {

constexpr int64_t kFlushMs = 1000;  // the longest time for which the end of a transfer waits for its messages to leave
constexpr int64_t kMostRounds = 4;  // how many times one call of progress may poll the transport

Status no_transfer(uint64_t id) { return Status::error(KVC_ERROR_STALE_ID, "transfer %" PRIu64 " does not exist", id); }

}  // namespace

int64_t CacheTransfers::now_ms() noexcept { return steady_ns() / 1'000'000; }

// Makes a random token. A transfer accepts only messages with its token. So no transfer, in any process, accepts a
// message to another transfer that has ended.
Status CacheTransfers::make_token(uint64_t* token) {
  if (fill_random(token, sizeof *token)) return Status();
  return Status::error(KVC_ERROR_IO, "no random bytes for a transfer: %s", std::strerror(errno));
}

CacheTransfers::~CacheTransfers() {
  MutexLock lock(mutex_);
  while (!transfers_.empty()) end(transfers_.begin()->first, "the cache was destroyed");
}

Status CacheTransfers::check_can_transfer() const {
  const bool encoders = core_.geometry.store.num_encoder_groups() > 0;
  const char* missing = core_.geometry.tables_only ? "pools" : encoders ? "a cache without encoder groups" : nullptr;
  if (missing == nullptr) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "a transfer needs %s", missing);
}

Status CacheTransfers::set_transport(const kvc_transport& transport) {
  KVC_TRY(check_can_transfer());
  MutexLock lock(mutex_);
  if (link_) return Status::error(KVC_ERROR_ORDER, "the cache has the transport \"%s\"", link_->name());
  link_ = std::make_unique<TransportLink>(transport);
  return Status();
}

Status CacheTransfers::make_link() {
  if (!link_) {
    kvc_transport transport;
    open_memory_transport(&transport);
    try {
      link_ = std::make_unique<TransportLink>(transport);
    } catch (const std::bad_alloc&) {
      transport.close(transport.self);
      throw;
    }
  }
  if (copy_) return Status();
  if (stream_.get() == nullptr) KVC_TRY(stream_.open(core_.layers.context()));
  if (!states_copy_) KVC_TRY(PageCopy::create(core_.layers, &states_copy_));
  return RowCopy::create(core_.layers, &copy_, link_->buffer_bytes());
}

Status CacheTransfers::find(uint64_t id, Transfer** out) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return no_transfer(id);
  *out = &found->second;
  return Status();
}

Status CacheTransfers::describe(uint64_t id, std::vector<uint8_t>* out) {
  MutexLock lock(mutex_);
  Transfer* transfer = nullptr;
  KVC_TRY(find(id, &transfer));
  if (transfer->sending) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "transfer %" PRIu64 " is sent, and has no description", id);
  }
  TransferDescription description;
  description.transfer = id;
  description.token = transfer->token;
  description.num_tokens = transfer->num_tokens;
  description.timeout_ms = static_cast<int32_t>(transfer->timeout_ms);
  if (core_.geometry.fingerprint) description.fingerprint = *core_.geometry.fingerprint;
  description.begins = transfer->begins;
  description.tp = core_.geometry.tp;
  description.manifest = layout_manifest_of_all_ranks(core_.geometry);
  description.transport = link_->name();
  KVC_TRY(link_->address(&description.address));
  *out = encode_description(description);
  return Status();
}

TransferMessage CacheTransfers::message_to(const Transfer& transfer, const Peer& peer, MessageKind kind) noexcept {
  TransferMessage message;
  message.kind = kind;
  message.transfer = peer.reply;
  message.token = peer.reply_token;
  message.reply = transfer.id;
  message.reply_token = transfer.token;
  return message;
}

// Sends a message without data.
Status CacheTransfers::say(const Transfer& transfer, Peer* peer, MessageKind kind, int64_t count, uint64_t* operation) {
  TransferMessage message = message_to(transfer, *peer, kind);
  message.count = count;
  KVC_TRY(link_->send(peer->endpoint, message, -1, 0, operation));
  if (*operation != 0) peer->spoke_ms = now_ms();
  return Status();
}

void CacheTransfers::progress() {
  kvc_transport_event events[16] = {};
  bool any = true;
  for (int64_t rounds = 0; any && rounds < kMostRounds; ++rounds) {
    for (const kvc_transport_event& event : link_->poll(events, &any)) handle(event);
  }
}

void CacheTransfers::handle(const kvc_transport_event& event) {
  if (event.kind == KVC_TRANSPORT_LOST) {
    for (auto& [id, transfer] : transfers_) {
      if (transfer.done || !transfer.failure.ok()) continue;
      for (Peer& peer : transfer.peers) {
        if (peer.endpoint != event.peer) continue;
        peer.lost = !transfer.sending && peer.ended;  // all data has arrived
        if (peer.lost) continue;
        transfer.failure = Status::error(KVC_ERROR_IO, "the %s has ended", transfer.sending ? "receiver" : "sender");
      }
    }
    return;
  }
  TransferMessage message;
  if (event.kind != KVC_TRANSPORT_RECEIVED || event.header_bytes != sizeof message) return;
  std::memcpy(&message, event.header, sizeof message);
  const auto found = transfers_.find(message.transfer);
  // Ignore a message to a transfer that has ended, or that never existed.
  if (message.magic != TransferMessage::kMagic || found == transfers_.end()) return;
  Transfer& transfer = found->second;
  if (transfer.token != message.token || transfer.done || !transfer.failure.ok()) return;
  const auto peer = std::find_if(transfer.peers.begin(), transfer.peers.end(),
                                 [&](const Peer& p) { return p.reply_token == message.reply_token; });
  const bool known = peer != transfer.peers.end();
  if (!known && message.kind != MessageKind::kOpen) return;  // the sender was not accepted
  if (known) peer->heard_ms = now_ms();
  const std::span data(static_cast<const uint8_t*>(event.data), static_cast<size_t>(event.data_bytes));
  try {
    transfer.failure = take_message(&transfer, known ? &*peer : nullptr, message, data);
  } catch (const std::bad_alloc&) {
    transfer.failure =
        Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a message of transfer %" PRIu64, message.transfer);
  }
}

// peer: null for a message kOpen of a new sender.
Status CacheTransfers::take_message(Transfer* transfer, Peer* peer, const TransferMessage& message,
                                    std::span<const uint8_t> data) {
  switch (message.kind) {
    case MessageKind::kAlive:
      return Status();
    case MessageKind::kFailed:
      return Status::error(
          KVC_ERROR_IO, "the %s has ended the transfer: %.*s", transfer->sending ? "receiver" : "sender",
          static_cast<int>(std::min<size_t>(data.size(), 250)), reinterpret_cast<const char*>(data.data()));
    case MessageKind::kDone:
      if (!transfer->sending || !peer->ended) break;
      transfer->done = true;
      return Status();
    case MessageKind::kOpen:
      if (transfer->sending) break;
      return take_open(transfer, message, data);
    case MessageKind::kRows:
      if (transfer->sending) break;
      return take_rows(transfer, peer, message, data);
    case MessageKind::kEnd:
      if (transfer->sending) break;
      return take_end(transfer, peer, message);
  }
  return Status::error(KVC_ERROR_CORRUPT, "a message of kind %u came, which is not expected here",
                       static_cast<unsigned>(message.kind));
}

Status CacheTransfers::advance(Transfer* transfer) {
  KVC_TRY(transfer->sending ? advance_sender(transfer) : advance_receiver(transfer));
  if (transfer->done) return Status();
  const int64_t now = now_ms();
  for (Peer& peer : transfer->peers) {
    const bool speaks = transfer->sending ? peer.opened : !peer.ended;
    if (!speaks || now - peer.spoke_ms <= transfer->timeout_ms / 4) continue;
    uint64_t operation = 0;
    KVC_TRY(say(*transfer, &peer, MessageKind::kAlive, 0, &operation));
  }
  return check_alive(*transfer);
}

// Returns IO if a peer is silent for longer than timeout_ms, or if no further sender opens the transfer in that time. A
// sender that has sent all of its data may be silent.
Status CacheTransfers::check_alive(const Transfer& transfer) const {
  const int64_t now = now_ms();
  int64_t silent_ms = transfer.sending || transfer.all_opened() ? 0 : now - transfer.opened_ms;
  for (const Peer& peer : transfer.peers) {
    if (transfer.sending || !peer.ended) silent_ms = std::max(silent_ms, now - peer.heard_ms);
  }
  if (silent_ms <= transfer.timeout_ms) return Status();
  return Status::error(KVC_ERROR_IO, "the %s was silent for %" PRId64 " ms; timeout_ms: %" PRId64 " ms",
                       transfer.sending ? "receiver" : "sender", silent_ms, transfer.timeout_ms);
}

int64_t CacheTransfers::tokens_of_transfer(const Transfer& transfer) const noexcept {
  if (!transfer.sending && !transfer.all_opened()) return transfer.begun_tokens;
  int64_t tokens = transfer.num_tokens;
  for (const Peer& peer : transfer.peers) tokens = std::min(tokens, tokens_of(peer.parts, transfer.num_tokens));
  return tokens;
}

Status CacheTransfers::poll(uint64_t id, kvc_transfer_info* info) {
  MutexLock lock(mutex_);
  Transfer* transfer = nullptr;
  KVC_TRY(find(id, &transfer));
  progress();
  if (transfer->failure.ok() && !transfer->done) {
    try {
      transfer->failure = advance(transfer);
    } catch (const std::bad_alloc&) {
      transfer->failure = Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a message of transfer %" PRIu64, id);
    }
  }
  if (!transfer->failure.ok()) {
    Status failure = std::move(transfer->failure);
    end(id, failure.message());
    return failure;
  }
  info->done = transfer->done ? 1 : 0;
  info->tokens = tokens_of_transfer(*transfer);
  info->bytes = transfer->bytes;
  info->sequence = transfer->done && !transfer->sending ? transfer->sequence : 0;
  if (transfer->done) end(id, nullptr);
  return Status();
}

Status CacheTransfers::cancel(uint64_t id) {
  MutexLock lock(mutex_);
  Transfer* transfer = nullptr;
  KVC_TRY(find(id, &transfer));
  end(id, "it was cancelled");
  return Status();
}

// Ends a transfer. why: the reason that is sent to the peers; null if the transfer is done.
void CacheTransfers::end(uint64_t id, const char* why) {
  Transfer& transfer = transfers_.at(id);
  const int64_t until = now_ms() + kFlushMs;
  for (const Peer& peer : transfer.peers) {
    if (why != nullptr) {
      try {
        uint64_t operation = 0;
        (void)link_->send_text(peer.endpoint, message_to(transfer, peer, MessageKind::kFailed), why, &operation).ok();
      } catch (const std::bad_alloc&) {  // then the peer ends its transfer after its timeout
      }
    }
    link_->flush(peer.endpoint, std::max<int64_t>(0, until - now_ms()));
    link_->disconnect(peer.endpoint);
  }
  MutexLock cache_lock(core_.mutex);
  if (transfer.sending) {
    core_.sent.remove(id);
  } else {
    const int32_t slot = core_.store.slot_of(transfer.sequence);
    if (transfer.done) {
      core_.store.finish_fill(transfer.sequence);
    } else {
      core_.rope_sets.set(slot, KVC_ROPE_SET_SHORT);
      core_.store.abandon_load(slot);
    }
    --core_.num_received;
  }
  transfers_.erase(id);
}

}  // namespace kvc
