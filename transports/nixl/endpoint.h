// NixlEndpoint: a NIXL agent, which sends and receives notifications.
//
// Thread safety: one call at a time. Ownership: owns the agent. In a child of fork(), connect and send fail, poll
// returns nothing, and the destructor does not touch the agent.
//
// NIXL does not report when a notification has arrived. So both sides count the messages. The receiver sends back
// (kTaken) how many messages its poll has returned, and the sender then makes the events SENT. For this, the receiver
// needs the sender's address. So each connect first sends a notification with this address (kHello). Notifications of
// different lengths may overtake each other, so the receiver orders messages by their numbers.
//
// NIXL reports a lost agent only when a notification is sent to it, and never over shared memory. So a connected agent
// that gets no other notification gets a short one each second (kAlive). poll also checks from time to time whether the
// processes of this machine still exist.
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
  int32_t flush(uint64_t peer, int64_t timeout_ms);
  void disconnect(uint64_t peer) noexcept;
  Status send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
              uint64_t operation);
  int64_t poll(kvc_transport_event* events, int64_t capacity);

 private:
  enum class NoteKind : uint32_t { kHello = 1, kMessage = 2, kTaken = 3, kAlive = 4 };
  // The first bytes of a notification.
  struct Note {
    NoteKind kind;
    uint32_t header_bytes;  // size of the header of a kMessage
    uint64_t session;       // of the side that sends messages. It gets a new number when it loads the receiver's agent
    uint64_t number;        // kMessage: its number; kHello: of the next message; kTaken: of the first one not yet taken
  };
  // The notifications that one call of NIXL returned. Messages point into them.
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
  // A message that was sent, and that the receiver has not yet counted in a kTaken.
  struct Sent {
    uint64_t number, operation, peer;
    bool has_data;  // and its SENT event was not made yet
  };
  // An agent of another process (or this agent) that was loaded from its address.
  struct Remote {
    std::string address;
    Process process = {};
    int peers = 0;                       // peers that connect has returned for this agent
    int64_t heard_ms = 0, spoke_ms = 0;  // times of the last notifications from the agent and to it
    // Messages to the agent: the session, the number of the next message, and messages without an answer.
    uint64_t session = 0, next = 0;
    std::deque<Sent> sent;
    // Messages from the agent: its session; the number of the next message to arrive, to be returned by poll, and to be
    // reported to the agent; and messages that arrived too early.
    uint64_t their_session = 0, expected = 0, taken = 0, answered = 0;
    std::map<uint64_t, Message> early;
  };
  struct Peer {
    std::string agent;
    bool lost = false;
    uint64_t next = 0;  // number after the last message that was sent to this peer
  };

  NixlEndpoint() = default;
  bool in_child() const noexcept;
  Status make_backend(const kvc_nixl_config& config);
  Status make_address();
  // Finds the agent of an address. If it is new, adds it to remotes_, and gives its metadata to NIXL.
  Status load(std::string_view address, std::string* agent);
  Status notify(const std::string& agent, const Note& note, std::string_view header, std::string_view data);
  // Like notify, for notifications that the transport itself makes. If it fails, drops the agent.
  void tell(const std::string& agent, const Note& note, std::string_view data = {});
  void take_notes();
  void take(const std::shared_ptr<Notes>& notes, const std::string& agent, std::string_view bytes);
  void take_hello(const std::string& agent, const Note& note, std::string_view address);
  void answer();
  // Whether the agent has not yet counted a message before number `next`.
  bool waits_for(const std::string& agent, uint64_t next) const noexcept;
  void look_at_remotes();
  // Removes an agent. Makes events that its peers are lost, and that its open operations have ended.
  void drop(const std::string& agent);
  void end_operation(Sent& sent);

  pid_t process_ = 0;
  const NixlLibrary* nixl_ = nullptr;
  void* agent_ = nullptr;
  std::string name_, address_;
  uint64_t last_peer_ = 0, last_session_ = 0;
  int64_t looked_ms_ = 0;
  std::map<uint64_t, Peer> peers_;
  std::map<std::string, Remote> remotes_;
  std::string outgoing_;          // the notification that is being sent
  std::shared_ptr<Notes> notes_;  // an empty map of notifications for the next call of NIXL
  std::deque<Message> messages_;
  std::vector<Message> polled_;  // messages to which the events of the last poll point
  std::deque<kvc_transport_event> events_;
};

}  // namespace kvc
