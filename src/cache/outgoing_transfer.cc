// Transfers: the code of the sender. The sender enqueues the copy of each chunk of rows under the cache's lock, so that
// no call can free the pages of an open forward at the same time. On a GPU, it waits without the lock until the bytes
// are on the host.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "cache/cache_transfers.h"
#include "layer/layout_manifest.h"

namespace kvc {
namespace {

constexpr int kMostChunks = 16;  // the largest number of chunks that one poll sends

}  // namespace

Status CacheTransfers::send(kvc_seq sequence, std::span<const uint8_t> bytes, kvc_transfer* transfer) {
  KVC_TRY(check_can_transfer());
  TransferDescription description;
  KVC_TRY(decode_description(bytes, &description));
  KVC_TRY(check_description(description));
  return add_outgoing(sequence, description, transfer);
}

// Checks that the receiver has the model and the layout of this cache.
Status CacheTransfers::check_description(const TransferDescription& description) const {
  KVC_TRY(check_same_model({"receiver", "Receiver"}, description.fingerprint, description.manifest, core_.geometry,
                           layout_manifest_of_all_ranks(core_.geometry)));
  if (description.begins.size() != static_cast<size_t>(core_.num_groups())) {
    return Status::error(KVC_ERROR_CORRUPT, "the description has %zu groups, and its layout has %d",
                         description.begins.size(), core_.num_groups());
  }
  if (!can_have_ranks(core_.geometry, description.tp.size)) {
    return Status::error(KVC_ERROR_LAYOUT,
                         "the receiver has tp_size %d and the cache %d, which a recurrent group or the number of kv "
                         "heads does not allow",
                         description.tp.size, core_.geometry.tp.size);
  }
  return Status();
}

Status CacheTransfers::add_outgoing(uint64_t sequence, const TransferDescription& description, uint64_t* id) {
  MutexLock lock(mutex_);
  KVC_TRY(make_link());
  if (description.transport != link_->name()) {
    return Status::error(KVC_ERROR_LAYOUT, "the receiver has the transport \"%s\", and the cache has \"%s\"",
                         description.transport.c_str(), link_->name());
  }
  Transfer made;
  made.id = last_ + 1;
  made.sending = true;
  made.sequence = sequence;
  made.num_tokens = description.num_tokens;
  made.timeout_ms = description.timeout_ms;
  const TransferRanks ranks = {core_.geometry.tp, description.tp};
  if (!have_parts(core_.geometry, ranks)) {
    made.done = true;
    transfers_.emplace(last_ + 1, std::move(made));
    *id = ++last_;
    return Status();
  }
  made.begins = description.begins;
  made.states.resize(made.begins.size());
  Peer& peer = made.peers.emplace_back();
  peer.reply = description.transfer;
  peer.reply_token = description.token;
  peer.parts = transfer_parts(core_.layers, ranks, made.begins, made.num_tokens);
  KVC_TRY(check_rows(peer.parts));
  KVC_TRY(make_token(&made.token));
  SentMarks::Mark mark;
  mark.sequence = sequence;
  mark.appended.resize(static_cast<size_t>(core_.layers.size()));
  {
    MutexLock cache_lock(core_.mutex);
    KVC_TRY(check_sent(sequence, description));
  }
  KVC_TRY(link_->connect(description.address, &peer.endpoint));
  peer.heard_ms = peer.spoke_ms = now_ms();
  const uint64_t endpoint = peer.endpoint;
  try {
    transfers_.emplace(last_ + 1, std::move(made));
    MutexLock cache_lock(core_.mutex);
    core_.sent.add(last_ + 1, std::move(mark));
  } catch (const std::bad_alloc&) {
    transfers_.erase(last_ + 1);
    link_->disconnect(endpoint);
    throw;
  }
  *id = ++last_;
  return Status();
}

// Returns UNSUPPORTED if a row of a part is larger than one message.
Status CacheTransfers::check_rows(const std::vector<TransferPart>& parts) const {
  for (const TransferPart& part : parts) {
    if (part.unit_bytes <= link_->buffer_bytes()) continue;
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %d stores %" PRId64 " bytes for a token, and a message has %" PRId64, part.run.layer,
                         part.unit_bytes, link_->buffer_bytes());
  }
  return Status();
}

// Checks that the sequence can provide all rows that the receiver expects.
Status CacheTransfers::check_sent(uint64_t sequence, const TransferDescription& description) const {
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(sequence, 0, &slot));
  if (core_.store.has_streamed(slot)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "sequence %" PRIu64 " has or had a streaming window", sequence);
  }
  if (core_.store.length(slot) > description.num_tokens || description.num_tokens > core_.geometry.store.max_length) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "the receiver expects %" PRId64 " tokens, the sequence has %" PRId64
                         ", and the cache allows %" PRId64,
                         description.num_tokens, core_.store.length(slot), core_.geometry.store.max_length);
  }
  for (int32_t g = 0; g < core_.num_groups(); ++g) {
    const GroupRules& rules = core_.rules(g);
    if (rules.holds_state()) continue;
    // `freed`: how many leading tokens the group has freed, or will have freed when the sequence has all tokens.
    const int64_t now = core_.store.list(slot, g).first, later = rules.droppable_pages(description.num_tokens);
    const int64_t freed = std::max(now, later) * rules.page_size;
    const int64_t begin = description.begins[static_cast<size_t>(g)];
    if (freed <= begin) continue;
    return Status::error(KVC_ERROR_EVICTED,
                         "the receiver needs tokens of group %d from %" PRId64 " on, and those before %" PRId64
                         " are freed here, with pages of %" PRId64 " tokens",
                         g, begin, freed, rules.page_size)
        .in_group(g);
  }
  return Status();
}

Status CacheTransfers::open(Transfer* transfer) {
  const int32_t buffer = link_->take();
  if (buffer < 0) return Status();
  std::vector<uint8_t> address;
  if (Status known = link_->address(&address); !known.ok()) {
    link_->give_back(buffer);
    return known;
  }
  std::memcpy(link_->data(buffer), address.data(), address.size());
  Peer& peer = transfer->receiver();
  TransferMessage message = message_to(*transfer, peer, MessageKind::kOpen);
  message.part = core_.geometry.tp.rank;
  message.count = core_.geometry.tp.size;
  uint64_t operation = 0;
  KVC_TRY(link_->send(peer.endpoint, message, buffer, static_cast<int64_t>(address.size()), &operation));
  peer.opened = operation != 0;
  return Status();
}

Status CacheTransfers::advance_sender(Transfer* transfer) {
  Peer& peer = transfer->receiver();
  if (!peer.opened) KVC_TRY(open(transfer));
  if (!peer.opened || peer.ended) return Status();
  for (int chunks = 0; chunks < kMostChunks; ++chunks) {
    const int32_t buffer = link_->take();
    if (buffer < 0) return Status();
    TransferPart* part = nullptr;
    int64_t count = 0;
    Status read = read_chunk(transfer, link_->data(buffer), link_->buffer_bytes(), &part, &count);
    if (!read.ok() || count == 0) {
      link_->give_back(buffer);
      KVC_TRY(std::move(read));
      break;
    }
    TransferMessage message = message_to(*transfer, peer, MessageKind::kRows);
    message.part = part - peer.parts.data();
    message.position = part->next;
    message.count = count;
    uint64_t operation = 0;
    KVC_TRY(link_->send(peer.endpoint, message, buffer, count * part->unit_bytes, &operation));
    if (operation == 0) return Status();
    part->next += count;
    transfer->bytes += count * part->unit_bytes;
    peer.spoke_ms = now_ms();
  }
  int32_t rope_set = 0;
  if (!all_sent(*transfer, &rope_set)) return Status();
  uint64_t operation = 0;
  KVC_TRY(say(*transfer, &peer, MessageKind::kEnd, rope_set, &operation));
  peer.ended = operation != 0;
  return Status();
}

// Finds the first part with units that the cache has and has not sent yet. A unit is a row, or a byte of states. Copies
// as many of these units to `data` as fit. Sets *out to the part, and *count to the number of copied units. If no part
// has such units now, *count stays 0.
Status CacheTransfers::read_chunk(Transfer* transfer, uint8_t* data, int64_t capacity, TransferPart** out,
                                  int64_t* count) {
  bool reads_states = false;
  KVC_TRY(begin_chunk(transfer, data, capacity, out, count, &reads_states));
  if (*count == 0) return Status();
  const TransferPart& part = **out;
  if (!part.state) return copy_->end_run(data, *count * part.unit_bytes, stream_.get());
  std::vector<uint8_t>& states = transfer->states[static_cast<size_t>(part.group)];
  if (reads_states) {
    if (Status read = states_copy_->end_read(part.group, states.data(), stream_.get()); !read.ok()) {
      states.clear();
      return read;
    }
  }
  std::memcpy(data, states.data() + part.next, static_cast<size_t>(*count));
  return Status();
}

// Finds the part for read_chunk, and enqueues the copy of its rows. If it is a part of states, enqueues a read of the
// states of its group, unless this was done before, and then sets *reads_states.
Status CacheTransfers::begin_chunk(Transfer* transfer, uint8_t* data, int64_t capacity, TransferPart** out,
                                   int64_t* count, bool* reads_states) {
  MutexLock cache_lock(core_.mutex);
  SentMarks::Mark& mark = core_.sent.of(transfer->id);
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(transfer->sequence, 0, &slot));
  if (mark.restart != INT64_MAX) {
    for (TransferPart& part : transfer->receiver().parts) {
      part.next = std::min(part.next, part.state ? 0 : std::max(mark.restart / part.row_tokens, part.begin));
    }
    for (std::vector<uint8_t>& states : transfer->states) states.clear();
    mark.restart = INT64_MAX;
  }
  if (core_.store.is_suspended(slot) || core_.store.is_pending(slot)) return Status();
  const int64_t length = core_.store.length(slot);
  for (TransferPart& part : transfer->receiver().parts) {
    if (part.complete()) continue;
    int64_t available = part.end;
    if (part.state) {
      KVC_TRY(begin_states(transfer, slot, part, reads_states));
      if (transfer->states[static_cast<size_t>(part.group)].empty()) continue;
    } else {
      const bool in_step = mark.appended[static_cast<size_t>(part.run.layer)] != 0;
      const int64_t held = core_.store.held(slot, part.group, part.run.layer);
      available = std::min(part.end, (in_step ? length + mark.in_step : held) / part.row_tokens);
    }
    *count = std::min(available - part.next, capacity / part.unit_bytes);
    if (*count <= 0) {
      *count = 0;
      continue;
    }
    *out = &part;
    return part.state ? Status() : begin_rows(slot, part, *count, data);
  }
  return Status();
}

Status CacheTransfers::begin_rows(int32_t slot, const TransferPart& part, int64_t count, uint8_t* data) {
  const PageTable& table = core_.store.table(part.group);
  const PageList& list = core_.store.list(slot, part.group);
  const int64_t page_rows = core_.rules(part.group).page_size / part.row_tokens;
  slots_.clear();
  for (int64_t i = part.next; i < part.next + count;) {
    const int32_t page = table.at(list, i / page_rows);
    if (page < 0) {
      return Status::error(KVC_ERROR_EVICTED, "token %" PRId64 " of group %d was freed before it was sent",
                           i * part.row_tokens, part.group)
          .in_group(part.group);
    }
    const int64_t end = std::min(part.next + count, (i / page_rows + 1) * page_rows);
    for (; i < end; ++i) slots_.push_back(int64_t{page} * page_rows + i % page_rows);
  }
  KVC_TRY(core_.order.enter(stream_.get()));
  Status begun = copy_->begin_run(part.run, slots_, data, stream_.get());
  Status left = core_.order.leave(stream_.get());
  return begun.ok() ? std::move(left) : std::move(begun);
}

// If the cache has the states after the last token, and they were not read before, enqueues a read of them and sets
// *begun.
Status CacheTransfers::begin_states(Transfer* transfer, int32_t slot, const TransferPart& part, bool* begun) {
  std::vector<uint8_t>& states = transfer->states[static_cast<size_t>(part.group)];
  const int64_t length = core_.store.length(slot);
  if (!states.empty() || length < transfer->num_tokens) return Status();
  if (length > transfer->num_tokens) {
    return Status::error(KVC_ERROR_ORDER,
                         "the sequence has %" PRId64 " tokens, and its state after %" PRId64 " was not sent yet",
                         length, transfer->num_tokens);
  }
  if (core_.store.busy(slot)) return Status();
  states.resize(static_cast<size_t>(part.end));
  KVC_TRY(core_.order.enter(stream_.get()));
  const int32_t page = core_.store.list(slot, part.group).tail_page;
  Status read = states_copy_->begin_read(part.group, page, states.data(), stream_.get());
  Status left = core_.order.leave(stream_.get());
  *begun = read.ok() && left.ok();
  if (!*begun) states.clear();
  return read.ok() ? std::move(left) : std::move(read);
}

// Returns whether the sequence has all tokens, and all of its present rows and states were sent.
bool CacheTransfers::all_sent(const Transfer& transfer, int32_t* rope_set) {
  MutexLock cache_lock(core_.mutex);
  int32_t slot = -1;
  if (!core_.store.resolve(transfer.sequence, 0, &slot).ok() || core_.sent.of(transfer.id).restart != INT64_MAX)
    return false;
  *rope_set = core_.rope_sets.of(slot);
  return core_.store.length(slot) >= transfer.num_tokens &&
         std::all_of(transfer.receiver().parts.begin(), transfer.receiver().parts.end(),
                     [](const TransferPart& part) { return part.complete(); });
}

}  // namespace kvc
