// UcxEndpoint: a UCP worker, which sends and receives active messages.
//
// Thread safety: one call at a time. Ownership: owns the worker, and the memory of messages that arrive. In a child of
// fork(), connect and send fail, poll returns nothing, and the destructor does not touch the worker. UCX may announce a
// message before its data (rendezvous). The data is then received into memory of this class. poll returns messages in
// the order in which they arrived, so a message that waits for its data delays the messages after it.
//
// UCX notices the end of a peer over TCP and RDMA, but not over shared memory. So an address begins with the process
// that made it (Process). poll checks from time to time whether such processes of this machine still exist.
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
  void disconnect(uint64_t peer) noexcept;
  Status send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
              uint64_t operation);
  int64_t poll(kvc_transport_event* events, int64_t capacity);

 private:
  struct Peer {
    UcxEndpoint* owner;
    uint64_t number;
    ucp_ep_h ep;
    int64_t watched;  // the id of the peer's process, if it is on this machine: poll checks that it exists; 0 = none
    bool notices_errors;
    bool lost = false;
  };
  // A send that UCX has not finished.
  struct Sending {
    UcxEndpoint* owner;
    bool has_data;
    uint64_t operation;
    std::vector<uint8_t> header;  // UCX reads it until the send is done
  };
  struct Message {
    std::vector<uint8_t> header, data;
    bool complete = true;
  };

  UcxEndpoint() = default;
  bool in_child() const noexcept;
  ucs_status_t make_ep(Peer* peer, const ucp_address_t* address, bool notices_errors) const noexcept;
  void lose(Peer* peer);
  void look_at_processes();
  void close_peer(Peer* peer, bool force) noexcept;
  void note_sent(const Sending& sending);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_error(void* peer, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                 const ucp_am_recv_param_t* param);
  static void on_data(void* request, ucs_status_t status, size_t bytes, void* message);

  pid_t process_ = 0;
  Process own_ = {};
  bool may_share_memory_ = false;
  int64_t looked_ms_ = 0;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<uint8_t> address_;
  uint64_t last_peer_ = 0;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> closed_;  // peers that were closed. A callback of UCX may still refer to them
  std::map<Sending*, std::unique_ptr<Sending>> sending_;
  std::vector<void*> closing_;  // open requests to close an endpoint
  std::deque<std::unique_ptr<Message>> messages_;
  std::vector<std::unique_ptr<Message>> polled_;  // messages to which the events of the last poll point
  std::deque<kvc_transport_event> events_;
};

}  // namespace kvc
