#include "endpoint.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kvc {
namespace {

constexpr int64_t kLookMs = 50;     // time between two checks of the remote agents
constexpr int64_t kAliveMs = 1000;  // longest time without a notification to a connected agent
constexpr int64_t kIdleMs = 10000;  // an agent without peers is dropped after this time without a notification
constexpr int64_t kCloseMs = 200;   // longest time for which the destructor waits for answers
constexpr int kFlushRounds = 64;    // calls of take_notes at the end of the destructor

// The start of an address. The name of the agent and its metadata follow.
struct AddressHead {
  char magic[8];
  uint64_t hash;  // of all bytes after this field. It is checked, because UCX ends the process on a damaged address
  Process process;
  uint32_t name_bytes, metadata_bytes;
};
constexpr char kMagic[] = "kvcnixl";
constexpr size_t kHashed = offsetof(AddressHead, process);

Status failed(const char* what, int result) {
  return Status::error(KVC_ERROR_IO, "%s: %s (%d); NIXL writes its reasons to stderr", what, nixl_result_name(result),
                       result);
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Splits an address into its parts. Returns false if it is not a valid address.
bool parse(std::string_view address, Process* process, std::string_view* name, std::string_view* metadata) {
  AddressHead head;
  if (address.size() < sizeof head) return false;
  std::memcpy(&head, address.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.hash != hash_of(address.substr(kHashed)))
    return false;
  address.remove_prefix(sizeof head);
  if (head.name_bytes < 1 || head.name_bytes > NixlEndpoint::kMaxAgentBytes ||
      uint64_t{head.name_bytes} + head.metadata_bytes != address.size()) {
    return false;
  }
  *process = head.process;
  *name = address.substr(0, head.name_bytes);
  *metadata = address.substr(head.name_bytes);
  return true;
}

}  // namespace

bool NixlEndpoint::in_child() const noexcept { return process_ != getpid(); }

Status NixlEndpoint::open(const kvc_nixl_config& config, std::unique_ptr<NixlEndpoint>* out) {
  std::unique_ptr<NixlEndpoint> own(new NixlEndpoint());
  own->process_ = getpid();
  KVC_TRY(NixlLibrary::load(config.library, &own->nixl_));
  uint64_t random[3];  // for the name of the agent and the first session number
  if (getentropy(random, sizeof random) != 0) {
    return Status::error(KVC_ERROR_IO, "no random bytes for a NIXL agent: %s", std::strerror(errno));
  }
  own->last_session_ = random[2];
  char name[kMaxAgentBytes + 1];
  std::snprintf(name, sizeof name, "kvcache-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
  own->name_ = config.agent != nullptr ? config.agent : name;
  NixlAgentConfig options;
  if (const int made = own->nixl_->create_agent(own->name_.c_str(), &options, &own->agent_); made != 0) {
    own->agent_ = nullptr;
    return failed("NIXL cannot make an agent", made);
  }
  KVC_TRY(own->make_backend(config));
  KVC_TRY(own->make_address());
  *out = std::move(own);
  return Status();
}

Status NixlEndpoint::make_backend(const kvc_nixl_config& config) {
  struct Params {
    const NixlLibrary* nixl;
    void* value = nullptr;
    ~Params() {
      if (value != nullptr) nixl->destroy_params(value);
    }
  } params{nixl_};
  if (const int made = nixl_->create_params(&params.value); made != 0) return failed("NIXL has no parameters", made);
  for (int32_t i = 0; i < config.num_params; ++i) {
    const int added = nixl_->add_param(params.value, config.params[i].name, config.params[i].value);
    if (added != 0) return failed("NIXL refuses a parameter", added);
  }
  const char* const name = config.backend != nullptr ? config.backend : "UCX";
  void* backend = nullptr;
  if (const int made = nixl_->create_backend(agent_, name, params.value, &backend); made != 0) {
    return Status::error(KVC_ERROR_IO,
                         "NIXL cannot make the backend \"%.64s\": %s (%d); it writes its reasons to stderr", name,
                         nixl_result_name(made), made);
  }
  nixl_->destroy_backend(backend);  // frees only the handle; the agent owns the backend
  return Status();
}

Status NixlEndpoint::make_address() {
  void* data = nullptr;
  size_t bytes = 0;
  if (const int got = nixl_->get_metadata(agent_, &data, &bytes); got != 0) return failed("NIXL has no metadata", got);
  const std::unique_ptr<void, decltype(&std::free)> owner(data, std::free);
  AddressHead head = {};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.process = Process::own();
  head.name_bytes = static_cast<uint32_t>(name_.size());
  head.metadata_bytes = static_cast<uint32_t>(bytes);
  address_ = bytes_of(head);
  address_ += name_;
  address_.append(static_cast<const char*>(data), bytes);
  head.hash = hash_of(std::string_view(address_).substr(kHashed));
  address_.replace(0, sizeof head, bytes_of(head));
  if (address_.size() <= KVC_TRANSPORT_MAX_ADDRESS_BYTES) return Status();
  return Status::error(KVC_ERROR_IO,
                       "the agent's address has %zu bytes, and at most %d are allowed: choose fewer devices",
                       address_.size(), int{KVC_TRANSPORT_MAX_ADDRESS_BYTES});
}

NixlEndpoint::~NixlEndpoint() {
  if (agent_ == nullptr || in_child()) return;  // the parent uses the agent
  // Waits until the other agents have received what `send` has accepted. The time is limited, because an agent may not
  // answer.
  const int64_t end = steady_ms() + kCloseMs;
  const auto waits = [this] {
    for (const auto& [agent, remote] : remotes_) {
      if (!remote.sent.empty()) return true;
    }
    return false;
  };
  try {
    while (waits() && steady_ms() < end) take_notes();
    std::vector<std::string> agents;
    for (const auto& [agent, remote] : remotes_) agents.push_back(agent);
    for (const std::string& agent : agents) drop(agent);
    for (int i = 0; i < kFlushRounds; ++i) take_notes();
  } catch (const std::bad_alloc&) {  // transfers that still wait at a peer end by a timeout
  }
  messages_.clear();
  polled_.clear();
  remotes_.clear();
  notes_.reset();
  nixl_->destroy_agent(agent_);
}

int64_t NixlEndpoint::address(void* buffer, int64_t capacity) const noexcept {
  if (static_cast<int64_t>(address_.size()) > capacity) return -1;
  std::memcpy(buffer, address_.data(), address_.size());
  return static_cast<int64_t>(address_.size());
}

Status NixlEndpoint::load(std::string_view address, std::string* agent) {
  Remote made;
  std::string_view name, metadata;
  if (!parse(address, &made.process, &name, &metadata)) {
    return Status::error(KVC_ERROR_IO, "the %zu bytes are no address of a NIXL agent", address.size());
  }
  *agent = name;
  if (const auto found = remotes_.find(*agent); found != remotes_.end()) {
    if (found->second.address == address) return Status();
    drop(*agent);  // another process now has an agent of this name
  }
  if (*agent != name_) {  // NIXL needs no metadata of the agent itself
    char* loaded = nullptr;
    const int result = nixl_->load_metadata(agent_, metadata.data(), metadata.size(), &loaded);
    const std::unique_ptr<char, decltype(&std::free)> owner(loaded, std::free);
    if (result != 0) return failed("NIXL refuses the metadata of an agent", result);
    if (*agent != loaded) {
      nixl_->forget_metadata(agent_, loaded);
      return Status::error(KVC_ERROR_IO, "the address of agent \"%s\" has the metadata of \"%.63s\"", agent->c_str(),
                           loaded);
    }
  }
  made.address = address;
  made.session = ++last_session_;
  made.heard_ms = made.spoke_ms = steady_ms();
  remotes_.emplace(*agent, std::move(made));
  return Status();
}

Status NixlEndpoint::connect(const void* address, int64_t bytes, uint64_t* peer) {
  if (in_child()) return Status::error(KVC_ERROR_IO, "this is a child of fork()");
  std::string agent;
  KVC_TRY(load({static_cast<const char*>(address), static_cast<size_t>(bytes)}, &agent));
  const Remote& remote = remotes_.at(agent);
  if (Status told = notify(agent, {NoteKind::kHello, 0, remote.session, remote.next}, address_, {}); !told.ok()) {
    drop(agent);
    return told;
  }
  peers_.emplace(last_peer_ + 1, Peer{agent});
  ++remotes_.at(agent).peers;
  *peer = ++last_peer_;
  return Status();
}

// Notifications leave in calls of NIXL, which the loop makes.
int32_t NixlEndpoint::flush(uint64_t peer, int64_t timeout_ms) {
  const auto found = peers_.find(peer);
  if (in_child() || found == peers_.end() || found->second.lost) return KVC_TRANSPORT_FAILED;
  const int64_t end = steady_ms() + timeout_ms;
  const Peer& own = found->second;
  while (waits_for(own.agent, own.next) && steady_ms() < end) {
    take_notes();
    look_at_remotes();
    if (own.lost) return KVC_TRANSPORT_FAILED;
  }
  return waits_for(own.agent, own.next) ? KVC_TRANSPORT_RETRY : KVC_TRANSPORT_OK;
}

// NIXL has copied the data of each message, so the operations end at once.
void NixlEndpoint::disconnect(uint64_t peer) noexcept {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const Peer own = std::move(found->second);
  peers_.erase(found);
  if (own.lost) return;
  Remote& remote = remotes_.at(own.agent);
  --remote.peers;
  if (in_child()) return;
  for (Sent& sent : remote.sent) {
    if (sent.peer == peer) end_operation(sent);
  }
}

bool NixlEndpoint::waits_for(const std::string& agent, uint64_t next) const noexcept {
  const auto found = remotes_.find(agent);
  return found != remotes_.end() && !found->second.sent.empty() && found->second.sent.front().number < next;
}

Status NixlEndpoint::notify(const std::string& agent, const Note& note, std::string_view header,
                            std::string_view data) {
  outgoing_ = bytes_of(note);
  outgoing_ += header;
  outgoing_ += data;
  const int result = nixl_->notify(agent_, agent.c_str(), outgoing_.data(), outgoing_.size(), nullptr);
  if (result != 0) return failed("NIXL cannot send", result);
  remotes_.at(agent).spoke_ms = steady_ms();
  return Status();
}

void NixlEndpoint::tell(const std::string& agent, const Note& note, std::string_view data) {
  if (!notify(agent, note, data, {}).ok()) drop(agent);
}

Status NixlEndpoint::send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
                          uint64_t operation) {
  const auto found = peers_.find(peer);
  if (in_child() || found == peers_.end() || found->second.lost) {
    return Status::error(KVC_ERROR_IO, in_child() ? "this is a child of fork()" : "the peer has ended");
  }
  const std::string agent = found->second.agent;
  Remote& remote = remotes_.at(agent);
  remote.sent.push_back({remote.next, operation, peer, data_bytes > 0});
  Status sent = notify(agent, {NoteKind::kMessage, static_cast<uint32_t>(header_bytes), remote.session, remote.next},
                       {static_cast<const char*>(header), static_cast<size_t>(header_bytes)},
                       {static_cast<const char*>(data), static_cast<size_t>(data_bytes)});
  if (sent.ok()) {
    found->second.next = ++remote.next;
  } else {
    remote.sent.pop_back();
    drop(agent);
  }
  return sent;
}

void NixlEndpoint::end_operation(Sent& sent) {
  if (!std::exchange(sent.has_data, false)) return;
  kvc_transport_event event = {};
  event.kind = KVC_TRANSPORT_SENT;
  event.operation = sent.operation;
  events_.push_back(event);
}

void NixlEndpoint::drop(const std::string& agent) {
  const auto found = remotes_.find(agent);
  if (found == remotes_.end()) return;
  for (Sent& sent : found->second.sent) end_operation(sent);
  for (auto& [number, peer] : peers_) {
    if (peer.agent != agent || peer.lost) continue;
    peer.lost = true;
    kvc_transport_event event = {};
    event.kind = KVC_TRANSPORT_LOST;
    event.peer = number;
    events_.push_back(event);
  }
  if (agent != name_) nixl_->forget_metadata(agent_, agent.c_str());
  remotes_.erase(found);
}

void NixlEndpoint::take_notes() {
  if (!notes_) {
    auto made = std::make_shared<Notes>(Notes{nixl_});
    if (nixl_->create_notes(&made->map) != 0) return;
    notes_ = std::move(made);
  }
  size_t agents = 0;
  if (nixl_->take_notes(agent_, notes_->map, nullptr) != 0) return;
  if (nixl_->count_agents(notes_->map, &agents) != 0 || agents == 0) return;
  const std::shared_ptr<Notes> notes = std::move(notes_);
  for (size_t i = 0; i < agents; ++i) {
    const char* name = nullptr;
    size_t count = 0;
    if (nixl_->agent_at(notes->map, i, &name) != 0 || nixl_->count_notes(notes->map, name, &count) != 0) continue;
    const std::string agent = name;
    for (size_t n = 0; n < count; ++n) {
      const void* data = nullptr;
      size_t bytes = 0;
      if (nixl_->note_at(notes->map, name, n, &data, &bytes) == 0) {
        take(notes, agent, {static_cast<const char*>(data), bytes});
      }
    }
  }
}

// Handles one notification. Ignores notifications that are not of this transport, or of agents that are not loaded.
void NixlEndpoint::take(const std::shared_ptr<Notes>& notes, const std::string& agent, std::string_view bytes) {
  Note note;
  if (bytes.size() < sizeof note) return;
  std::memcpy(&note, bytes.data(), sizeof note);
  bytes.remove_prefix(sizeof note);
  if (note.kind == NoteKind::kHello) return take_hello(agent, note, bytes);
  const auto found = remotes_.find(agent);
  if (found == remotes_.end()) return;
  Remote& remote = found->second;
  remote.heard_ms = steady_ms();
  if (note.kind == NoteKind::kTaken && note.session == remote.session) {
    while (!remote.sent.empty() && remote.sent.front().number < note.number) {
      end_operation(remote.sent.front());
      remote.sent.pop_front();
    }
  }
  if (note.kind != NoteKind::kMessage || note.session != remote.their_session || note.number < remote.expected ||
      note.header_bytes > KVC_TRANSPORT_MAX_HEADER_BYTES || note.header_bytes > bytes.size() ||
      bytes.size() - note.header_bytes > static_cast<size_t>(kMaxMessageBytes)) {
    return;
  }
  remote.early.emplace(note.number, Message{notes, agent, note.session, bytes.substr(0, note.header_bytes),
                                            bytes.substr(note.header_bytes)});
  while (!remote.early.empty() && remote.early.begin()->first == remote.expected) {
    messages_.push_back(std::move(remote.early.begin()->second));
    remote.early.erase(remote.early.begin());
    ++remote.expected;
  }
}

void NixlEndpoint::take_hello(const std::string& agent, const Note& note, std::string_view address) {
  Process process;
  std::string_view name, metadata;
  if (!parse(address, &process, &name, &metadata) || name != agent) return;
  std::string loaded;
  if (!load(address, &loaded).ok()) return;
  Remote& remote = remotes_.at(agent);
  remote.heard_ms = steady_ms();
  if (remote.their_session == note.session) return;
  remote.their_session = note.session;
  remote.expected = remote.taken = remote.answered = note.number;
  remote.early.clear();
}

void NixlEndpoint::look_at_remotes() {
  const int64_t now = steady_ms();
  if (now - looked_ms_ < kLookMs) return;
  looked_ms_ = now;
  std::vector<std::string> ended, silent;
  const Process own = Process::own();
  for (const auto& [agent, remote] : remotes_) {
    const bool idle = remote.peers == 0 && now - remote.heard_ms > kIdleMs && now - remote.spoke_ms > kIdleMs;
    if (idle || (own.sees(remote.process) && remote.process.has_ended())) {
      ended.push_back(agent);
    } else if (remote.peers > 0 && now - remote.spoke_ms > kAliveMs) {
      silent.push_back(agent);
    }
  }
  for (const std::string& agent : ended) drop(agent);
  for (const std::string& agent : silent) tell(agent, {NoteKind::kAlive, 0, 0, 0});
}

// Tells each sender how many of its messages poll has returned.
void NixlEndpoint::answer() {
  std::vector<std::string> agents;
  for (auto& [agent, remote] : remotes_) {
    if (remote.answered == remote.taken) continue;
    remote.answered = remote.taken;
    agents.push_back(agent);
  }
  for (const std::string& agent : agents) {
    const Remote& remote = remotes_.at(agent);
    tell(agent, {NoteKind::kTaken, 0, remote.their_session, remote.taken});
  }
}

int64_t NixlEndpoint::poll(kvc_transport_event* events, int64_t capacity) {
  polled_.clear();
  if (in_child()) return 0;
  take_notes();
  look_at_remotes();
  int64_t count = 0;
  // Messages come before other events, so that the messages that a peer sent before it ended are still received.
  for (; count < capacity && !messages_.empty(); ++count) {
    polled_.push_back(std::move(messages_.front()));
    messages_.pop_front();
    const Message& message = polled_.back();
    kvc_transport_event& event = events[count] = {};
    event.kind = KVC_TRANSPORT_RECEIVED;
    event.header = message.header.data();
    event.header_bytes = static_cast<int64_t>(message.header.size());
    event.data = message.data.data();
    event.data_bytes = static_cast<int64_t>(message.data.size());
    const auto from = remotes_.find(message.from);
    if (from != remotes_.end() && from->second.their_session == message.session) ++from->second.taken;
  }
  answer();
  for (; count < capacity && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop_front();
  }
  return count;
}

}  // namespace kvc
