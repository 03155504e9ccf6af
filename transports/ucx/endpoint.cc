// SPDX-License-Identifier: Apache-2.0
#include "endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kvc {
namespace {

constexpr unsigned kMessageId = 1;
constexpr int kProgressRounds = 64;                                     // most rounds of UCX's progress in one poll
constexpr size_t kAddressHead = sizeof(Process) + sizeof(RingAddress);  // UCX's address follows
constexpr int kCloseRounds = 200000;
constexpr int64_t kCloseMs = 200;  // the longest time for which the destructor waits for messages to leave

Status failed(const char* what, ucs_status_t status) {
  return Status::error(KVC_ERROR_IO, "%s: %s", what, ucs_status_string(status));
}

// Whether UCX may use shared memory. transports: the config's list of transports; null: that of the variable UCX_TLS.
bool allows_shared_memory(const char* transports) {
  if (transports == nullptr) transports = std::getenv("UCX_TLS");
  if (transports == nullptr) return true;
  const std::string_view names = transports;
  const bool excludes = names.starts_with('^');
  for (const char* name : {"all", "sm", "shm", "shared", "posix", "sysv", "mm"}) {
    if (names.find(name) != names.npos) return !excludes;
  }
  return excludes;
}

struct Config {
  ucp_config_t* value = nullptr;
  ~Config() {
    if (value != nullptr) ucp_config_release(value);
  }
};

}  // namespace

bool UcxEndpoint::in_child() const noexcept { return process_ != getpid(); }

Status UcxEndpoint::open(const kvc_ucx_config& config, std::unique_ptr<UcxEndpoint>* out) {
  std::unique_ptr<UcxEndpoint> own(new UcxEndpoint());
  own->process_ = getpid();
  own->own_ = Process::own();
  if (own->own_.place != 0 && allows_shared_memory(config.transports)) own->rings_ = ReceiveRings::create();
  Config options;
  if (ucs_status_t read = ucp_config_read(nullptr, nullptr, &options.value); read != UCS_OK) {
    return failed("UCX cannot read its configuration", read);
  }
  const struct {
    const char *name, *value;
  } given[] = {{"TLS", config.transports}, {"NET_DEVICES", config.devices}};
  for (const auto& option : given) {
    if (option.value == nullptr) continue;
    const ucs_status_t set = ucp_config_modify(options.value, option.name, option.value);
    if (set != UCS_OK) return failed("UCX refuses transports or devices", set);
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM;
  if (ucs_status_t made = ucp_init(&params, options.value, &own->context_); made != UCS_OK) {
    own->context_ = nullptr;
    return failed("UCX has no usable device", made);
  }
  ucp_worker_params_t worker = {};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (ucs_status_t made = ucp_worker_create(own->context_, &worker, &own->worker_); made != UCS_OK) {
    own->worker_ = nullptr;
    return failed("UCX cannot make a worker", made);
  }
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = own.get();
  if (ucs_status_t set = ucp_worker_set_am_recv_handler(own->worker_, &handler); set != UCS_OK) {
    return failed("UCX refuses a handler", set);
  }
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucs_status_t got = ucp_worker_get_address(own->worker_, &address, &bytes); got != UCS_OK) {
    return failed("UCX has no address", got);
  }
  const auto* first = reinterpret_cast<const uint8_t*>(address);
  const RingAddress rings = own->rings_ ? own->rings_->address() : RingAddress{};
  own->address_.resize(kAddressHead);
  std::memcpy(own->address_.data(), &own->own_, sizeof own->own_);
  std::memcpy(own->address_.data() + sizeof own->own_, &rings, sizeof rings);
  own->address_.insert(own->address_.end(), first, first + bytes);
  ucp_worker_release_address(own->worker_, address);
  *out = std::move(own);
  return Status();
}

UcxEndpoint::~UcxEndpoint() {
  if (in_child()) return;  // the parent uses the worker
  if (worker_ != nullptr) {
    // Messages that were accepted leave. The time is limited, because a peer may not receive them.
    const int64_t until = steady_ms() + kCloseMs;
    try {
      for (auto& [number, peer] : peers_) flush(number, std::max<int64_t>(0, until - steady_ms()));
    } catch (const std::bad_alloc&) {  // transfers that still wait at a peer end by a timeout
    }
    while (!peers_.empty()) disconnect(peers_.begin()->first);
    for (int i = 0; i < kCloseRounds && !requests_.empty(); ++i) {
      ucp_worker_progress(worker_);
      while (!requests_.empty() && ucp_request_check_status(requests_.back()) != UCS_INPROGRESS) {
        ucp_request_free(requests_.back());
        requests_.pop_back();
      }
    }
    for (void* request : requests_) ucp_request_free(request);
    ucp_worker_destroy(worker_);
  }
  for (auto& link : links_) link->ring->end();
  if (rings_) rings_->close();
  if (context_ != nullptr) ucp_cleanup(context_);
}

int64_t UcxEndpoint::address(void* buffer, int64_t capacity) const noexcept {
  if (static_cast<int64_t>(address_.size()) > capacity) return -1;
  std::memcpy(buffer, address_.data(), address_.size());
  return static_cast<int64_t>(address_.size());
}

Status UcxEndpoint::connect(const void* address, int64_t bytes, uint64_t* peer) {
  if (in_child()) return Status::error(KVC_ERROR_IO, "this is a child of fork()");
  Process process;
  RingAddress rings;
  if (bytes <= static_cast<int64_t>(kAddressHead)) {
    return Status::error(KVC_ERROR_IO, "the address has %" PRId64 " bytes", bytes);
  }
  const auto* first = static_cast<const uint8_t*>(address);
  std::memcpy(&process, first, sizeof process);
  std::memcpy(&rings, first + sizeof process, sizeof rings);
  const bool same_place = own_.sees(process);
  auto made = std::make_unique<Peer>();
  made->owner = this;
  made->number = last_peer_ + 1;
  const auto place = peers_.emplace(made->number, nullptr).first;
  if (same_place && static_cast<int64_t>(rings.endpoint >> 32) == process.number) {
    made->endpoint = rings.endpoint;
    made->link = find_link(rings);
  }
  if (made->link != nullptr) {
    ++made->link->peers;
  } else {
    const ucs_status_t status = make_ep(made.get(), reinterpret_cast<const ucp_address_t*>(first + kAddressHead));
    if (status != UCS_OK) {
      peers_.erase(place);
      return failed("UCX cannot reach the address", status);
    }
  }
  if (same_place) made->watched = process.number;
  *peer = last_peer_ = made->number;
  place->second = std::move(made);
  return Status();
}

ucs_status_t UcxEndpoint::make_ep(Peer* peer, const ucp_address_t* address) const noexcept {
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = address;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // with it, UCX does not use shared memory
  params.err_handler.cb = on_error;
  params.err_handler.arg = peer;
  return ucp_ep_create(worker_, &params, &peer->ep);
}

void UcxEndpoint::look_at_processes() {
  const int64_t now = steady_ms();
  if (now - looked_ms_ < 50) return;
  looked_ms_ = now;
  if (rings_) rings_->look_at_processes();
  for (auto& [number, peer] : peers_) {
    const bool has_ended = (peer->watched > 0 && Process{own_.place, peer->watched}.has_ended()) ||
                           (peer->link != nullptr && peer->link->ring->is_closed());
    // poll returns what the peer has sent before the peer is lost.
    if (!has_ended || (rings_ && rings_->has_records_of(peer->endpoint))) continue;
    lose(peer.get());
    drop_queue(peer.get());
  }
  release_links();
}

void UcxEndpoint::lose(Peer* peer) {
  if (peer->lost) return;
  peer->lost = true;
  kvc_transport_event event = {};
  event.kind = KVC_TRANSPORT_LOST;
  event.peer = peer->number;
  events_.push_back(event);
}

void UcxEndpoint::close_peer(Peer* peer, bool force) noexcept {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // A forced close ends all messages without the peer.
  param.flags = force || peer->lost ? static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(peer->ep, &param);
  if (UCS_PTR_IS_PTR(closing)) requests_.push_back(closing);
}

void UcxEndpoint::progress() {
  for (int i = 0; i < kProgressRounds && ucp_worker_progress(worker_) != 0; ++i) {
  }
  for (auto& link : links_) send_queue(link.get());
}

int32_t UcxEndpoint::flush(uint64_t number, int64_t timeout_ms) {
  const auto found = peers_.find(number);
  if (in_child() || found == peers_.end()) return KVC_TRANSPORT_FAILED;
  Peer& peer = *found->second;
  const int64_t until = steady_ms() + timeout_ms;
  void* request = nullptr;
  while (!peer.lost) {
    progress();
    look_at_processes();
    if (peer.link != nullptr && peer.waiting == 0) return KVC_TRANSPORT_OK;
    if (peer.link == nullptr && request == nullptr) {
      ucp_request_param_t param = {};
      request = ucp_ep_flush_nbx(peer.ep, &param);
      if (request == nullptr) return KVC_TRANSPORT_OK;
      if (UCS_PTR_IS_ERR(request)) return KVC_TRANSPORT_FAILED;
      requests_.push_back(request);  // poll frees it
    }
    if (request != nullptr && ucp_request_check_status(request) != UCS_INPROGRESS) {
      return ucp_request_check_status(request) == UCS_OK ? KVC_TRANSPORT_OK : KVC_TRANSPORT_FAILED;
    }
    if (steady_ms() >= until) return KVC_TRANSPORT_RETRY;
  }
  return KVC_TRANSPORT_FAILED;
}

void UcxEndpoint::disconnect(uint64_t peer) noexcept {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  Peer* const own = found->second.get();
  if (in_child()) {
    peers_.erase(found);
  } else if (own->link != nullptr) {
    drop_queue(own);
    --own->link->peers;
    peers_.erase(found);
  } else {
    closed_.push_back(std::move(found->second));
    peers_.erase(found);
    close_peer(own, own->sending > 0);
  }
}

void UcxEndpoint::add_sent(uint64_t operation) {
  kvc_transport_event event = {};
  event.kind = KVC_TRANSPORT_SENT;
  event.operation = operation;
  events_.push_back(event);
}

// UCX may call back during any call. So the callbacks only add to lists, which poll and flush read.
void UcxEndpoint::on_sent(void* request, ucs_status_t, void* user) {
  auto* const sending = static_cast<Sending*>(user);
  UcxEndpoint* const owner = sending->peer->owner;
  if (sending->has_data) owner->add_sent(sending->operation);
  --sending->peer->sending;
  owner->sending_.erase(sending);
  ucp_request_free(request);
}

void UcxEndpoint::on_error(void* user, ucp_ep_h, ucs_status_t) {
  auto* const peer = static_cast<Peer*>(user);
  peer->owner->lose(peer);
}

Status UcxEndpoint::send(uint64_t number, const void* header, int64_t header_bytes, const void* data,
                         int64_t data_bytes, uint64_t operation) {
  const auto found = peers_.find(number);
  if (in_child() || found == peers_.end() || found->second->lost) {
    return Status::error(KVC_ERROR_IO, in_child() ? "this is a child of fork()" : "the peer has ended");
  }
  if (header_bytes > KVC_TRANSPORT_MAX_HEADER_BYTES || data_bytes > kMaxMessageBytes) {
    return Status::error(KVC_ERROR_IO, "the message has %" PRId64 " bytes, and %" PRId64 " of the header", data_bytes,
                         header_bytes);
  }
  Peer& peer = *found->second;
  const auto* first = static_cast<const uint8_t*>(header);
  std::vector<uint8_t> copied(first, first + header_bytes);
  if (peer.link != nullptr) {
    Queued message = {&peer, std::move(copied), data, data_bytes, operation};
    if (peer.link->queue.empty() && put(peer.link->ring.get(), message)) return Status();
    peer.link->queue.push_back(std::move(message));
    ++peer.waiting;
    return Status();
  }
  auto made = std::make_unique<Sending>(Sending{&peer, data_bytes > 0, operation, std::move(copied)});
  Sending* const sending = made.get();
  sending_.emplace(sending, std::move(made));
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = sending;
  const ucs_status_ptr_t request = ucp_am_send_nbx(peer.ep, kMessageId, sending->header.data(), sending->header.size(),
                                                   data, static_cast<size_t>(data_bytes), &param);
  if (UCS_PTR_IS_PTR(request)) {
    ++peer.sending;
    return Status();
  }
  const ucs_status_t status = UCS_PTR_STATUS(request);
  if (status == UCS_OK && sending->has_data) add_sent(operation);
  sending_.erase(sending);
  return status == UCS_OK ? Status() : failed("UCX cannot send", status);
}

ucs_status_t UcxEndpoint::on_message(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                     const ucp_am_recv_param_t* param) try {
  return static_cast<UcxEndpoint*>(self)->take(header, header_bytes, data, data_bytes, param);
} catch (const std::bad_alloc&) {
  return UCS_OK;  // the message is lost, and its transfer ends by a timeout
}

ucs_status_t UcxEndpoint::take(const void* header, size_t header_bytes, void* data, size_t data_bytes,
                               const ucp_am_recv_param_t* param) {
  if (header_bytes == 0 || header_bytes > KVC_TRANSPORT_MAX_HEADER_BYTES ||
      data_bytes > static_cast<size_t>(kMaxMessageBytes)) {
    return UCS_OK;
  }
  auto message = std::make_unique<Message>();
  const auto* first = static_cast<const uint8_t*>(header);
  message->header.assign(first, first + header_bytes);
  const bool later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (!later && data_bytes > 0) message->data.assign(bytes, bytes + data_bytes);
  if (later) {
    message->data.resize(data_bytes);
    message->complete = false;
  }
  messages_.push_back(std::move(message));
  if (!later) return UCS_OK;
  Message* const made = messages_.back().get();
  ucp_request_param_t receive = {};
  receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  receive.cb.recv_am = on_data;
  receive.user_data = made;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, data, made->data.data(), data_bytes, &receive);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  made->header.clear();  // poll drops messages without a header; the library sends none
  made->complete = true;
  return UCS_OK;
}

void UcxEndpoint::on_data(void* request, ucs_status_t status, size_t, void* user) {
  auto* const message = static_cast<Message*>(user);
  message->complete = true;
  if (status != UCS_OK) message->header.clear();
  ucp_request_free(request);
}

namespace {

kvc_transport_event received(const void* header, size_t header_bytes, const void* data, size_t data_bytes) {
  kvc_transport_event event = {};
  event.kind = KVC_TRANSPORT_RECEIVED;
  event.header = header;
  event.header_bytes = static_cast<int64_t>(header_bytes);
  event.data = data;
  event.data_bytes = static_cast<int64_t>(data_bytes);
  return event;
}

}  // namespace

int64_t UcxEndpoint::take_events(kvc_transport_event* events, int64_t capacity) {
  int64_t count = 0;
  for (; count < capacity && !events_.empty(); events_.pop_front()) events[count++] = events_.front();
  return count;
}

int64_t UcxEndpoint::take_records(kvc_transport_event* events, int64_t capacity) {
  int64_t count = 0;
  for (; count < capacity; ++count) {
    ReceiveRings::Record& record = records_[static_cast<size_t>(count)];
    if (!rings_->take(&record)) break;
    events[count] = received(record.header, record.header_bytes, record.data, record.data_bytes);
  }
  return count;
}

int64_t UcxEndpoint::poll(kvc_transport_event* events, int64_t capacity) {
  polled_.clear();
  if (in_child()) return 0;
  if (rings_) {
    rings_->release();
    records_.resize(std::max(records_.size(), static_cast<size_t>(capacity)));
  }
  progress();
  std::erase_if(requests_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  look_at_processes();
  int64_t count = 0;
  // Messages of UCX come before other events, so that the messages that a peer sent before it ended are still received.
  while (count < capacity && !messages_.empty() && messages_.front()->complete) {
    polled_.push_back(std::move(messages_.front()));
    messages_.pop_front();
    const Message& message = *polled_.back();
    if (message.header.empty()) continue;
    events[count++] = received(message.header.data(), message.header.size(), message.data.data(), message.data.size());
  }
  // Senders that fill rings without pause do not keep other events waiting.
  count += take_events(&events[count], (capacity - count + 1) / 2);
  if (rings_) count += take_records(&events[count], capacity - count);
  count += take_events(&events[count], capacity - count);
  return count;
}

}  // namespace kvc
