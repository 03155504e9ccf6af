// UcxEndpoint: a UCP worker, which sends and receives active messages.
//
// Thread safety: one call at a time. Ownership: owns the worker, and the memory of messages that arrive. In a child of
// fork(), connect, send and flush fail, poll returns nothing, and the destructor does not touch the worker. UCX may
// announce a message before its data (rendezvous). The data is then received into memory of this class. poll returns
// messages in the order in which they arrived, so a message that waits for its data delays the messages after it.
//
// UCX notices the end of a peer over TCP and RDMA, but not over shared memory. So an address begins with the process
// that made it (Process). poll checks from time to time whether such processes of this machine still exist.
//
// There are two kinds of peers:
//   - If UCX notices errors of the peer, it reads the caller's data until the message is sent. disconnect may force the
//     end of unsent messages.
//   - Otherwise, UCX cannot end a message that the peer does not receive. So UCX gets no data of the caller: the data
//   is
//     copied into a ring of the receiver (receive_ring.h), or into memory of this class. Until there is room, the
//     message waits in Peer::queue.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "common/process.h"
#include "kvcache_transport.h"
#include "kvcache_ucx.h"
#include "receive_ring.h"

namespace kvc {

class UcxEndpoint {
 public:
  static constexpr char kName[] = "ucx", kWhere[] = "transport ucx";
  static constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;

  // Throws std::bad_alloc.
  static Status open(const kvc_ucx_config& config, std::unique_ptr<UcxEndpoint>* out);
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  int64_t address(void* buffer, int64_t capacity) const noexcept;
  Status connect(const void* address, int64_t bytes, uint64_t* peer);
  int32_t flush(uint64_t peer, int64_t timeout_ms);
  void disconnect(uint64_t peer) noexcept;
  Status send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
              uint64_t operation);
  int64_t poll(kvc_transport_event* events, int64_t capacity);

 private:
  // A message that waits for room. `data` is the caller's.
  struct Queued {
    std::vector<uint8_t> header;
    const void* data;
    int64_t data_bytes;
    uint64_t operation;
  };
  enum class RingUse { kAllowed, kRequested, kMapped, kRefused };
  struct Peer {
    UcxEndpoint* owner;
    uint64_t number;
    ucp_ep_h ep;
    int64_t watched;  // the id of the peer's process, if it is on this machine: poll checks that it exists; 0 = none
    bool notices_errors;
    bool lost = false;
    RingUse ring_use = RingUse::kRefused;
    uint64_t ring_request = 0;  // number of its kHello
    SendRing ring;
    std::deque<Queued> queue;   // only if UCX does not notice errors
    int64_t sending_bytes = 0;  // bytes in `Sending` of this peer
  };
  // A send that UCX has not finished.
  struct Sending {
    Peer* peer;  // null: a reply to a sender
    UcxEndpoint* owner;
    bool has_data;  // data of the caller, so that the end is an event
    uint64_t operation;
    int64_t bytes;
    std::vector<uint8_t> header, data;  // UCX reads them until the send is done
  };
  struct Message {
    UcxHead head = {};
    std::vector<uint8_t> header, data;
    bool complete = true;
  };
  // A kHello that arrived.
  struct Hello {
    ucp_ep_h reply;
    uint64_t sender;
    Process process;
  };

  UcxEndpoint() = default;
  bool in_child() const noexcept;
  ucs_status_t make_ep(Peer* peer, const ucp_address_t* address, bool notices_errors) const noexcept;
  void lose(Peer* peer);
  void look_at_processes();
  void close_peer(Peer* peer, bool force) noexcept;
  void progress();
  void add_sent(uint64_t operation);
  // Sends an active message. bytes: of data, which is the caller's if made->has_data. Returns the status of UCX.
  ucs_status_t send_message(ucp_ep_h ep, std::unique_ptr<Sending> made, const void* data, size_t bytes, uint32_t flags);
  ucs_status_t send_control(ucp_ep_h ep, const UcxHead& head, const void* data, size_t bytes, uint32_t flags);
  ucs_status_t send_copy(Peer* peer, const Queued& message);
  // Sends the first message of the queue. Returns false if it must wait.
  bool send_queued(Peer* peer);
  void send_queue(Peer* peer);
  void drop_queue(Peer* peer);
  void request_ring(Peer* peer);
  void take_control();
  void take_ring(const Message& message);
  void answer(const Hello& hello);
  void release_rings();
  void look_at_rings(int64_t now_ms);
  void end_ring(const Message& bye);
  bool fill_event(const Message& message, kvc_transport_event* event);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                 const ucp_am_recv_param_t* param);
  ucs_status_t take(const void* header, size_t header_bytes, void* data, size_t data_bytes,
                    const ucp_am_recv_param_t* param);
  static void on_data(void* request, ucs_status_t status, size_t bytes, void* message);

  pid_t process_ = 0;
  Process own_ = {};
  bool may_share_memory_ = false;
  int64_t looked_ms_ = 0;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<uint8_t> address_;
  uint64_t last_peer_ = 0, last_ring_ = 0;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> closed_;  // peers that were closed. A callback of UCX may still refer to them
  std::map<Sending*, std::unique_ptr<Sending>> sending_;
  std::vector<void*> requests_;  // open requests to close or to flush an endpoint of UCX
  std::deque<std::unique_ptr<Message>> messages_;
  std::vector<std::unique_ptr<Message>> polled_;  // messages to which the events of the last poll point
  std::deque<std::unique_ptr<Message>> control_;  // kRing and kReleased
  std::deque<Hello> hellos_;
  std::map<uint64_t, std::unique_ptr<ReceiveRing>> rings_;
  std::vector<std::unique_ptr<ReceiveRing>> spare_rings_;
  std::deque<kvc_transport_event> events_;
};

}  // namespace kvc
