// CacheTransfers: the calls for transfers of a cache. It fills reserved sequences with data that other caches send, and
// sends sequences of this cache.
//
// Thread safety: a call locks the mutex of this class, and holds the cache's lock only for short parts. Ownership: owns
// the transport. Invariants
//   1. Each incoming transfer has a busy sequence, whose id no caller gets before the transfer is done.
//   2. In an outgoing transfer, the rows of each part before `next` were sent. At the last poll, the sequence had
//      these rows, or an open forward had appended them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache_core.h"
#include "context/device_stream.h"
#include "layer/page_copy.h"
#include "layer/row_copy.h"
#include "transfer/description.h"
#include "transfer/transfer_parts.h"
#include "transfer/transport_link.h"

namespace kvc {

class CacheTransfers {
 public:
  explicit CacheTransfers(CacheCore* core) : core_(*core) {}
  ~CacheTransfers();

  // The caller has checked everything in the args that can be checked without the cache.
  Status set_transport(const kvc_transport& transport);
  Status receive(const kvc_receive_args& args, kvc_transfer* transfer);
  Status describe(kvc_transfer transfer, std::vector<uint8_t>* out);
  Status send(kvc_seq sequence, std::span<const uint8_t> description, kvc_transfer* transfer);
  Status poll(kvc_transfer transfer, kvc_transfer_info* info);
  Status cancel(kvc_transfer transfer);

 private:
  // One rank of the other side of a transfer.
  struct Peer {
    TpRank tp;
    uint64_t endpoint = 0;                // the transport's number of the peer
    uint64_t reply = 0, reply_token = 0;  // id and token of the transfer at the peer
    std::vector<TransferPart> parts;      // what is sent between this rank and the peer
    bool opened = false;                  // sender: kOpen was sent
    bool ended = false;                   // sender: kEnd was sent. Receiver: kEnd and all data of the peer arrived
    uint64_t answer = 0;                  // receiver: the operation that sends kDone; 0 = not sent yet
    bool lost = false;                    // receiver: all data of the peer arrived, and then the connection was lost
    int64_t heard_ms = 0, spoke_ms = 0;   // times of the last message from the peer, and of the last message to it
  };
  struct Transfer {
    uint64_t id = 0;
    bool sending = false;
    uint64_t sequence = 0;
    uint64_t token = 0;      // random number that every message to this side must have
    int64_t num_tokens = 0;  // length of the sequence when the transfer is done
    int64_t timeout_ms = 0;
    std::vector<int64_t> begins;  // [groups]: the first token that is sent
    std::vector<Peer> peers;      // sender: one, or none if nothing is sent. Receiver: the senders whose kOpen arrived
    size_t num_senders = 0;       // receiver: number of ranks that send; 0 before the first kOpen
    int64_t begun_tokens = 0;     // receiver: number of tokens before the first row that is sent
    int64_t opened_ms = 0;  // receiver: when the last kOpen arrived; before the first one, when the transfer began
    std::vector<std::vector<uint8_t>> states;  // [groups]: bytes of states, once they were read or received
    std::vector<std::vector<int32_t>> pages;   // receiver: [groups], page ids of the sequence's list
    int64_t bytes = 0;                         // bytes of rows and states that were sent or received
    bool done = false;
    Status failure;

    Peer& receiver() noexcept { return peers.front(); }
    const Peer& receiver() const noexcept { return peers.front(); }
    bool all_opened() const noexcept { return num_senders > 0 && peers.size() == num_senders; }
  };

  Status check_can_transfer() const;
  Status begin_receive(const kvc_receive_args& args, uint64_t* sequence, std::vector<int64_t>* begins);
  Status add_incoming(const kvc_receive_args& args, uint64_t sequence, std::vector<int64_t> begins, uint64_t* transfer);
  Status check_description(const TransferDescription& description) const;
  Status add_outgoing(uint64_t sequence, const TransferDescription& description, uint64_t* transfer);
  Status make_link() KVC_REQUIRES(mutex_);
  Status find(uint64_t id, Transfer** out) KVC_REQUIRES(mutex_);
  void progress() KVC_REQUIRES(mutex_);
  void handle(const kvc_transport_event& event) KVC_REQUIRES(mutex_);
  Status take_message(Transfer* transfer, Peer* peer, const TransferMessage& message, std::span<const uint8_t> data)
      KVC_REQUIRES(mutex_);
  Status take_open(Transfer* transfer, const TransferMessage& message, std::span<const uint8_t> address)
      KVC_REQUIRES(mutex_);
  Status take_rows(Transfer* transfer, Peer* peer, const TransferMessage& message, std::span<const uint8_t> data)
      KVC_REQUIRES(mutex_);
  Status take_end(Transfer* transfer, Peer* peer, const TransferMessage& message) KVC_REQUIRES(mutex_);
  size_t count_senders(int32_t tp_size) const noexcept;
  Status advance(Transfer* transfer) KVC_REQUIRES(mutex_);
  Status advance_sender(Transfer* transfer) KVC_REQUIRES(mutex_);
  Status advance_receiver(Transfer* transfer) KVC_REQUIRES(mutex_);
  Status check_sent(uint64_t sequence, const TransferDescription& description) const KVC_REQUIRES(core_.mutex);
  Status check_rows(const std::vector<TransferPart>& parts) const KVC_REQUIRES(mutex_);
  static Status make_token(uint64_t* token);
  static int64_t now_ms() noexcept;
  Status check_alive(const Transfer& transfer) const;
  int64_t tokens_of_transfer(const Transfer& transfer) const noexcept;
  Status open(Transfer* transfer) KVC_REQUIRES(mutex_);
  Status read_chunk(Transfer* transfer, uint8_t* data, int64_t capacity, TransferPart** part, int64_t* count)
      KVC_REQUIRES(mutex_);
  Status begin_chunk(Transfer* transfer, uint8_t* data, int64_t capacity, TransferPart** part, int64_t* count,
                     bool* reads_states) KVC_REQUIRES(mutex_);
  Status begin_rows(int32_t slot, const TransferPart& part, int64_t count, uint8_t* data) KVC_REQUIRES(mutex_)
      KVC_REQUIRES(core_.mutex);
  Status begin_states(Transfer* transfer, int32_t slot, const TransferPart& part, bool* begun) KVC_REQUIRES(mutex_)
      KVC_REQUIRES(core_.mutex);
  Status begin_writes() KVC_REQUIRES(mutex_);
  Status end_writes(Status written) KVC_REQUIRES(mutex_);
  bool all_sent(const Transfer& transfer, int32_t* rope_set) KVC_REQUIRES(mutex_);
  Status say(const Transfer& transfer, Peer* peer, MessageKind kind, int64_t count, uint64_t* operation)
      KVC_REQUIRES(mutex_);
  static TransferMessage message_to(const Transfer& transfer, const Peer& peer, MessageKind kind) noexcept;
  void end(uint64_t id, const char* why) KVC_REQUIRES(mutex_);

  CacheCore& core_;

  Mutex mutex_;
  std::unique_ptr<TransportLink> link_ KVC_GUARDED_BY(mutex_);
  DeviceStream stream_ KVC_GUARDED_BY(mutex_);
  std::unique_ptr<RowCopy> copy_ KVC_GUARDED_BY(mutex_);
  std::unique_ptr<PageCopy> states_copy_ KVC_GUARDED_BY(mutex_);
  std::vector<int64_t> slots_ KVC_GUARDED_BY(mutex_);
  std::map<uint64_t, Transfer> transfers_ KVC_GUARDED_BY(mutex_);
  uint64_t last_ KVC_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvc
