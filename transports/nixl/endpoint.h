// NixlEndpoint: a NIXL agent, which sends and receives notifications.
//
// Thread safety: one call at a time. Ownership: of the agent. In a child of fork() nothing works, and the destructor
// leaves the agent alone.
//
// A notification has no completion and no bound on its way. So both sides count the messages, and the receiver answers
// with the number that it has handed out. That answer gives the event SENT. To answer, a receiver must know the sender:
// each connect begins with a notification that has the sender's address. Notifications of different lengths may
// overtake each other, so the receiver hands them out by their numbers.
//
// NIXL reports a lost agent only when something is sent to it, and over shared memory never. So connected agents get a
// short notification each second, and poll looks at times whether processes of this machine still exist.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "common/process.h"
#include "kvcache_nixl.h"
#include "nixl_library.h"

namespace kvc {

class NixlEndpoint {
 public:
  static constexpr char kName[] = "nixl", kWhere[] = "transport nixl";
  static constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;
  static constexpr size_t kMaxAgentBytes = 63;

  // Throws std::bad_alloc.
  static Status open(const kvc_nixl_config& config, std::unique_ptr<NixlEndpoint>* out);
  ~NixlEndpoint();
  NixlEndpoint(const NixlEndpoint&) = delete;
  NixlEndpoint& operator=(const NixlEndpoint&) = delete;

  int64_t address(void* buffer, int64_t capacity) const noexcept;
  Status connect(const void* address, int64_t bytes, uint64_t* peer);
  void disconnect(uint64_t peer) noexcept;
  Status send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
              uint64_t operation);
  int64_t poll(kvc_transport_event* events, int64_t capacity);

 private:
  enum class NoteKind : uint32_t { kHello = 1, kMessage = 2, kTaken = 3, kAlive = 4 };
  // The first bytes of a notification.
  struct Note {
    NoteKind kind;
    uint32_t header_bytes;  // kMessage
    uint64_t session;       // of the side that sends the messages
    uint64_t number;        // kMessage: its own; kTaken: how many were taken; kHello: of the next message
  };
  // The notifications of one call to NIXL. Messages point into them.
  struct Notes {
    const NixlLibrary* nixl;
    void* map = nullptr;
    ~Notes() {
      if (map != nullptr) nixl->destroy_notes(map);
    }
  };
  struct Message {
    std::shared_ptr<Notes> notes;
    std::string from;
    uint64_t session;
    std::string_view header, data;
  };
  // A message that the other side has not answered.
  struct Sent {
    uint64_t number, operation;
    bool has_data;
  };
  // An agent whose metadata NIXL has.
  struct Remote {
    std::string address;
    Process process = {};
    int peers = 0;  // of connect
    int64_t heard_ms = 0, spoke_ms = 0;
    // Messages to it.
    uint64_t session = 0, next = 0;
    std::deque<Sent> sent;
    // Messages from it.
    uint64_t their_session = 0, expected = 0, taken = 0, answered = 0;
    std::map<uint64_t, Message> early;
  };
  struct Peer {
    std::string agent;
    bool lost = false;
  };

  NixlEndpoint() = default;
  bool in_child() const noexcept;
  Status make_backend(const kvc_nixl_config& config);
  Status make_address();
  // The remote of an address, loaded if it is new.
  Status load(std::string_view address, std::string* agent);
  Status notify(const std::string& agent, const Note& note, std::string_view header, std::string_view data);
  // The same for what the transport itself sends: a failure means that the agent is lost.
  void tell(const std::string& agent, const Note& note, std::string_view data = {});
  void take_notes();
  void take(const std::shared_ptr<Notes>& notes, const std::string& agent, std::string_view bytes);
  void take_hello(const std::string& agent, const Note& note, std::string_view address);
  void answer();
  void look_at_remotes();
  // Forgets an agent. Its peers are lost, and its open operations end.
  void drop(const std::string& agent);
  void end_operation(const Sent& sent);

  pid_t process_ = 0;
  const NixlLibrary* nixl_ = nullptr;
  void* agent_ = nullptr;
  std::string name_, address_;
  uint64_t last_peer_ = 0, last_session_ = 0;
  int64_t looked_ms_ = 0;
  std::map<uint64_t, Peer> peers_;
  std::map<std::string, Remote> remotes_;
  std::string outgoing_;          // memory of a notification
  std::shared_ptr<Notes> notes_;  // empty, for the next call
  std::deque<Message> messages_;
  std::vector<Message> polled_;  // whose memory the last events show
  std::deque<kvc_transport_event> events_;
};

}  // namespace kvc
