// SPDX-License-Identifier: Apache-2.0
#include "endpoint.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kvc {
namespace {

constexpr unsigned kMessageId = 1;
constexpr int kProgressRounds = 64;  // most rounds of UCX's progress in one poll
constexpr int kCloseRounds = 200000;
constexpr int64_t kFlushMs = 200;  // the longest time that disconnect waits for messages to leave

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
  own->address_.resize(sizeof own->own_);
  std::memcpy(own->address_.data(), &own->own_, sizeof own->own_);
  own->address_.insert(own->address_.end(), first, first + bytes);
  ucp_worker_release_address(own->worker_, address);
  *out = std::move(own);
  return Status();
}

UcxEndpoint::~UcxEndpoint() {
  if (in_child()) {  // the parent uses the worker
    for (auto& [request, sending] : sending_) sending.release();
    for (auto& message : messages_) message.release();
    return;
  }
  if (worker_ != nullptr) {
    // Completes the messages that `send` has accepted. The rounds are limited, because a peer may not receive them.
    for (int i = 0; i < kCloseRounds && !sending_.empty(); ++i) ucp_worker_progress(worker_);
    const bool flushed = sending_.empty();
    while (!peers_.empty()) {
      closed_.push_back(std::move(peers_.begin()->second));
      peers_.erase(peers_.begin());
      close_peer(closed_.back().get(), !flushed);
    }
    for (int i = 0; i < kCloseRounds && !closing_.empty(); ++i) {
      ucp_worker_progress(worker_);
      while (!closing_.empty() && ucp_request_check_status(closing_.back()) != UCS_INPROGRESS) {
        ucp_request_free(closing_.back());
        closing_.pop_back();
      }
    }
    for (void* request : closing_) ucp_request_free(request);
    ucp_worker_destroy(worker_);
  }
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
  auto made = std::make_unique<Peer>(Peer{this, last_peer_ + 1, nullptr, 0, true});
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
  // A forced close does not wait for the peer. UCX allows it only for endpoints that notice errors. Other endpoints
  // stay until the worker is destroyed.
  force = force || peer->lost;
  if (force && !peer->notices_errors) return;
  param.flags = force ? static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(peer->ep, &param);
  if (UCS_PTR_IS_PTR(closing)) closing_.push_back(closing);
}

void UcxEndpoint::disconnect(uint64_t peer) noexcept {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  Peer* const own = found->second.get();
  closed_.push_back(std::move(found->second));
  peers_.erase(found);
  if (in_child()) return;
  const size_t others = closing_.size();
  close_peer(own, false);
  if (closing_.size() == others) return;  // closed at once
  // Messages leave in calls of poll. After a cancel, a program may never call it again. So they leave here.
  const int64_t until = steady_ms() + kFlushMs;
  while (ucp_request_check_status(closing_.back()) == UCS_INPROGRESS && steady_ms() < until) {
    ucp_worker_progress(worker_);
  }
}

// UCX may call back during any call. So the callbacks only add events to events_, and poll returns them.
void UcxEndpoint::note_sent(const Sending& sending) {
  if (!sending.has_data) return;
  kvc_transport_event event = {};
  event.kind = KVC_TRANSPORT_SENT;
  event.operation = sending.operation;
  events_.push_back(event);
}

void UcxEndpoint::on_sent(void* request, ucs_status_t, void* user) {
  auto* const sending = static_cast<Sending*>(user);
  UcxEndpoint* const owner = sending->owner;
  owner->note_sent(*sending);
  owner->sending_.erase(sending);
  ucp_request_free(request);
}

void UcxEndpoint::on_error(void* user, ucp_ep_h, ucs_status_t) {
  auto* const peer = static_cast<Peer*>(user);
  peer->owner->lose(peer);
}

Status UcxEndpoint::send(uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
                         uint64_t operation) {
  const auto found = peers_.find(peer);
  if (in_child() || found == peers_.end() || found->second->lost) {
    return Status::error(KVC_ERROR_IO, in_child() ? "this is a child of fork()" : "the peer has ended");
  }
  const auto* first = static_cast<const uint8_t*>(header);
  auto made = std::make_unique<Sending>(Sending{this, data_bytes > 0, operation, {first, first + header_bytes}});
  Sending* const sending = made.get();
  sending_.emplace(sending, std::move(made));
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = sending;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(found->second->ep, kMessageId, sending->header.data(), sending->header.size(), data,
                      static_cast<size_t>(data_bytes), &param);
  if (UCS_PTR_IS_PTR(request)) return Status();
  const ucs_status_t status = UCS_PTR_STATUS(request);
  if (status == UCS_OK) note_sent(*sending);
  sending_.erase(sending);
  return status == UCS_OK ? Status() : failed("UCX cannot send", status);
}

ucs_status_t UcxEndpoint::on_message(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                     const ucp_am_recv_param_t* param) try {
  auto& own = *static_cast<UcxEndpoint*>(self);
  if (header_bytes > KVC_TRANSPORT_MAX_HEADER_BYTES || data_bytes > static_cast<size_t>(kMaxMessageBytes))
    return UCS_OK;
  auto message = std::make_unique<Message>();
  const auto* first = static_cast<const uint8_t*>(header);
  message->header.assign(first, first + header_bytes);
  const bool later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (later) {
    message->data.resize(data_bytes);
    message->complete = false;
  } else if (data_bytes > 0) {
    message->data.assign(bytes, bytes + data_bytes);
  }
  own.messages_.push_back(std::move(message));
  if (!later) return UCS_OK;
  Message* const made = own.messages_.back().get();
  ucp_request_param_t receive = {};
  receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  receive.cb.recv_am = on_data;
  receive.user_data = made;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(own.worker_, data, made->data.data(), data_bytes, &receive);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  made->header.clear();  // poll drops messages without a header; the library sends none
  made->complete = true;
  return UCS_OK;
} catch (const std::bad_alloc&) {
  return UCS_OK;  // the message is lost, and its transfer ends by a timeout
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
  for (int i = 0; i < kProgressRounds && ucp_worker_progress(worker_) != 0; ++i) {
  }
  std::erase_if(closing_, [](void* request) {
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
    const Message& message = *polled_.back();
    if (message.header.empty()) continue;
    kvc_transport_event& event = events[count++] = {};
    event.kind = KVC_TRANSPORT_RECEIVED;
    event.header = message.header.data();
    event.header_bytes = static_cast<int64_t>(message.header.size());
    event.data = message.data.data();
    event.data_bytes = static_cast<int64_t>(message.data.size());
  }
  while (count < capacity && !events_.empty()) {
    events[count++] = events_.front();
    events_.pop_front();
  }
  return count;
}

}  // namespace kvc
