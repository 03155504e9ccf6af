// UcxEndpoint: a UCP worker, which sends and receives active messages, and rings in shared memory.
//
// Thread safety: one call at a time. Ownership: owns the worker, and the memory of messages that arrive. In a child of
// fork(), connect, send and flush fail, poll returns nothing, and the destructor does not touch the worker.
//
// There are two kinds of peers:
//   - Peers of the same machine get messages through rings (rings.h), if the config allows shared memory and this
//     process may map the peer's memory. A message that finds no room waits in Link::queue. UCX's own messages over
//     shared memory are not used, because a killed sender can block them, and because UCX does not notice the end of a
//     peer there. An address begins with the process that made it (Process). poll checks from time to time whether such
//     processes still exist.
//   - UCX reaches all other peers, and notices their end. It reads the caller's data until the message is sent.
//     disconnect may force the end of unsent messages.
//
// UCX may announce a message before its data (rendezvous). The data is then received into memory of this class. poll
// returns the messages of a peer in the order in which they arrived, so a message that waits for its data delays the
// messages of UCX after it.
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
#include "rings.h"

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
  struct Link;
  struct Peer {
    UcxEndpoint* owner;
    uint64_t number;
    ucp_ep_h ep = nullptr;  // null if there is a link
    Link* link = nullptr;   // null if UCX reaches the peer
    // The id of the peer's process, if it is on this machine: poll checks that it exists; 0 = none.
    int64_t watched = 0;
    uint64_t endpoint = 0;  // RingAddress::endpoint of the peer, if it is on this machine
    bool lost = false;
    int64_t waiting = 0;  // number of `Queued` of this peer
    int64_t sending = 0;  // number of `Sending` of this peer
  };
  // A message that waits for room. `data` is the caller's.
  struct Queued {
    Peer* peer;
    std::vector<uint8_t> header;
    const void* data;
    int64_t data_bytes;
    uint64_t operation;
  };
  // The ring to another endpoint. All peers with its address share the ring, and their messages leave in one order.
  struct Link {
    std::unique_ptr<SendRing> ring;
    std::deque<Queued> queue;
    int peers = 0;
  };
  // A send that UCX has not finished.
  struct Sending {
    Peer* peer;
    bool has_data;  // so that the end is an event
    uint64_t operation;
    std::vector<uint8_t> header;  // UCX reads it until the send is done
  };
  struct Message {
    std::vector<uint8_t> header, data;
    bool complete = true;
  };

  UcxEndpoint() = default;
  bool in_child() const noexcept;
  ucs_status_t make_ep(Peer* peer, const ucp_address_t* address) const noexcept;
  void lose(Peer* peer);
  void look_at_processes();
  void close_peer(Peer* peer, bool force) noexcept;
  void progress();
  void add_sent(uint64_t operation);
  // Hands over events that are no messages, at most `capacity`. Returns their number.
  int64_t take_events(kvc_transport_event* events, int64_t capacity);

  Link* find_link(const RingAddress& address);
  // Writes a message into the ring. Returns false if there is no room now.
  bool put(SendRing* ring, const Queued& message);
  void send_queue(Link* link);
  // Removes the messages of a peer from the queue of its link.
  void drop_queue(Peer* peer) noexcept;
  void release_links() noexcept;
  int64_t take_records(kvc_transport_event* events, int64_t capacity);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                 const ucp_am_recv_param_t* param);
  ucs_status_t take(const void* header, size_t header_bytes, void* data, size_t data_bytes,
                    const ucp_am_recv_param_t* param);
  static void on_data(void* request, ucs_status_t status, size_t bytes, void* message);

  pid_t process_ = 0;
  Process own_ = {};
  int64_t looked_ms_ = 0;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<uint8_t> address_;
  uint64_t last_peer_ = 0;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> closed_;  // peers of UCX that were closed. A callback may still refer to them
  std::map<Sending*, std::unique_ptr<Sending>> sending_;
  std::vector<void*> requests_;  // open requests to close or to flush an endpoint of UCX
  std::deque<std::unique_ptr<Message>> messages_;
  std::vector<std::unique_ptr<Message>> polled_;  // messages to which the events of the last poll point
  std::deque<kvc_transport_event> events_;
  std::unique_ptr<ReceiveRings> rings_;        // null: no shared memory
  std::vector<ReceiveRings::Record> records_;  // to which the events of the last poll point
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace kvc
