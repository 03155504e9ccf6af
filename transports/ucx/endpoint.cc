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
constexpr int kProgressRounds = 64;  // most rounds of UCX's progress in one poll
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
  for (const char* name : {"all", "sm", "shm", "shared", "posix", "sysv", "mm"}) {
    if (names.find(name) != names.npos) return true;
  }
  return false;
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
  own->may_share_memory_ = allows_shared_memory(config.transports);
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
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA;  // RMA: to map rings
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
  own->address_.resize(sizeof own->own_);
  std::memcpy(own->address_.data(), &own->own_, sizeof own->own_);
  own->address_.insert(own->address_.end(), first, first + bytes);
  ucp_worker_release_address(own->worker_, address);
  *out = std::move(own);
  return Status();
}

UcxEndpoint::~UcxEndpoint() {
  if (in_child()) {  // the parent uses the worker and its memory
    for (auto& [request, sending] : sending_) sending.release();
    for (auto& message : messages_) message.release();
    for (auto& [number, peer] : peers_) peer.release();
    for (auto& peer : closed_) peer.release();
    for (auto& [number, ring] : rings_) ring.release();
    for (auto& ring : spare_rings_) ring.release();
    return;
  }
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
  rings_.clear();
  spare_rings_.clear();
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
  if (bytes <= static_cast<int64_t>(sizeof process)) {
    return Status::error(KVC_ERROR_IO, "the address has %" PRId64 " bytes", bytes);
  }
  std::memcpy(&process, address, sizeof process);
  const auto* rest = reinterpret_cast<const ucp_address_t*>(static_cast<const uint8_t*>(address) + sizeof process);
  const bool same_place = own_.sees(process);
  auto made = std::make_unique<Peer>();
  made->owner = this;
  made->number = last_peer_ + 1;
  const auto place = peers_.emplace(made->number, nullptr).first;
  // UCX cannot notice errors over shared memory, so an endpoint that notices them does not use shared memory. If the
  // preferred kind of endpoint cannot reach the peer, the other kind is tried.
  const bool shares_memory = same_place && may_share_memory_;
  ucs_status_t status = make_ep(made.get(), rest, !shares_memory);
  if (status == UCS_ERR_UNREACHABLE) status = make_ep(made.get(), rest, shares_memory);
  if (status != UCS_OK) {
    peers_.erase(place);
    return failed("UCX cannot reach the address", status);
  }
  if (same_place) made->watched = process.number;
  if (shares_memory && !made->notices_errors) {
    made->ring_use = RingUse::kAllowed;
  }
  *peer = last_peer_ = made->number;
  place->second = std::move(made);
  return Status();
}

ucs_status_t UcxEndpoint::make_ep(Peer* peer, const ucp_address_t* address, bool notices_errors) const noexcept {
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = address;
  peer->notices_errors = notices_errors;
  params.err_mode = notices_errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = on_error;
  params.err_handler.arg = peer;
  return ucp_ep_create(worker_, &params, &peer->ep);
}

void UcxEndpoint::look_at_processes() {
  const int64_t now = steady_ms();
  if (now - looked_ms_ < 50) return;
  looked_ms_ = now;
  for (auto& [number, peer] : peers_) {
    if (peer->watched > 0 && Process{own_.place, peer->watched}.has_ended()) lose(peer.get());
  }
  look_at_rings(now);
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
  // A forced close ends all messages without the peer. UCX allows it only for endpoints that notice errors. Other
  // endpoints with open messages stay until the worker is destroyed.
  force = force || peer->lost;
  if (force && !peer->notices_errors) return;
  param.flags = force ? static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(peer->ep, &param);
  if (UCS_PTR_IS_PTR(closing)) requests_.push_back(closing);
}

void UcxEndpoint::progress() {
  for (int i = 0; i < kProgressRounds && ucp_worker_progress(worker_) != 0; ++i) {
  }
  for (; !hellos_.empty(); hellos_.pop_front()) answer(hellos_.front());
  take_control();
  for (auto& [number, peer] : peers_) send_queue(peer.get());
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
    if (peer.queue.empty() && request == nullptr) {
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
  closed_.push_back(std::move(found->second));
  peers_.erase(found);
  if (in_child()) return;
  try {
    drop_queue(own);
    if (own->ring_use == RingUse::kRequested || own->ring_use == RingUse::kMapped) {
      send_control(own->ep, {UcxHead::Kind::kBye, own->ring_request, 0, 0}, &own_, sizeof own_, 0);
    }
  } catch (const std::bad_alloc&) {  // `close` ends what has no event, and the receiver frees the ring at its close
  }
  own->ring.unmap();
  close_peer(own, own->sending_bytes > 0);
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
  UcxEndpoint* const owner = sending->owner;
  if (sending->has_data) owner->add_sent(sending->operation);
  if (sending->peer != nullptr) sending->peer->sending_bytes -= sending->bytes;
  owner->sending_.erase(sending);
  ucp_request_free(request);
}

void UcxEndpoint::on_error(void* user, ucp_ep_h, ucs_status_t) {
  auto* const peer = static_cast<Peer*>(user);
  peer->owner->lose(peer);
}

ucs_status_t UcxEndpoint::send_message(ucp_ep_h ep, std::unique_ptr<Sending> made, const void* data, size_t bytes,
                                       uint32_t flags) {
  Sending* const sending = made.get();
  sending_.emplace(sending, std::move(made));
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = on_sent;
  param.user_data = sending;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(ep, kMessageId, sending->header.data(), sending->header.size(), data, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (sending->peer != nullptr) sending->peer->sending_bytes += sending->bytes;
    return UCS_OK;
  }
  const ucs_status_t status = UCS_PTR_STATUS(request);
  if (status == UCS_OK && sending->has_data) add_sent(sending->operation);
  sending_.erase(sending);
  return status;
}

Status UcxEndpoint::send(uint64_t number, const void* header, int64_t header_bytes, const void* data,
                         int64_t data_bytes, uint64_t operation) {
  const auto found = peers_.find(number);
  if (in_child() || found == peers_.end() || found->second->lost) {
    return Status::error(KVC_ERROR_IO, in_child() ? "this is a child of fork()" : "the peer has ended");
  }
  Peer& peer = *found->second;
  const auto* first = static_cast<const uint8_t*>(header);
  const UcxHead head = {UcxHead::Kind::kInline, 0, 0, 0};
  std::vector<uint8_t> all(sizeof head + static_cast<size_t>(header_bytes));
  std::memcpy(all.data(), &head, sizeof head);
  std::copy(first, first + header_bytes, all.begin() + sizeof head);
  if (!peer.notices_errors) {
    peer.queue.push_back({std::move(all), data, data_bytes, operation});
    send_queue(&peer);
    return Status();
  }
  auto made = std::make_unique<Sending>();
  *made = {&peer, this, data_bytes > 0, operation, std::max<int64_t>(data_bytes, 1), std::move(all), {}};
  const ucs_status_t status = send_message(peer.ep, std::move(made), data, static_cast<size_t>(data_bytes), 0);
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
  auto message = std::make_unique<Message>();
  UcxHead& head = message->head;
  if (header_bytes < sizeof head || header_bytes > sizeof head + KVC_TRANSPORT_MAX_HEADER_BYTES ||
      data_bytes > static_cast<size_t>(kMaxMessageBytes)) {
    return UCS_OK;
  }
  std::memcpy(&head, header, sizeof head);
  const auto* first = static_cast<const uint8_t*>(header);
  message->header.assign(first + sizeof head, first + header_bytes);
  const bool later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (!later && data_bytes > 0) message->data.assign(bytes, bytes + data_bytes);
  if (head.kind == UcxHead::Kind::kHello) {
    Hello hello = {param->reply_ep, head.number, {}};
    if (later || data_bytes != sizeof hello.process || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) {
      return UCS_OK;
    }
    std::memcpy(&hello.process, data, data_bytes);
    hellos_.push_back(hello);
    return UCS_OK;
  }
  if (head.kind == UcxHead::Kind::kRing || head.kind == UcxHead::Kind::kReleased) {
    if (!later) control_.push_back(std::move(message));
    return UCS_OK;
  }
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

int64_t UcxEndpoint::poll(kvc_transport_event* events, int64_t capacity) {
  polled_.clear();
  if (in_child()) return 0;
  release_rings();
  progress();
  std::erase_if(requests_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  look_at_processes();
  int64_t count = 0;
  // Messages come before other events, so that the messages that a peer sent before it ended are still received.
  while (count < capacity && !messages_.empty() && messages_.front()->complete) {
    polled_.push_back(std::move(messages_.front()));
    messages_.pop_front();
    count += fill_event(*polled_.back(), &events[count]) ? 1 : 0;
  }
  while (count < capacity && !events_.empty()) {
    events[count++] = events_.front();
    events_.pop_front();
  }
  return count;
}

}  // namespace kvc
