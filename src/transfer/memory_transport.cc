#include "transfer/memory_transport.h"

#include <cinttypes>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "system/process.h"

namespace kvc {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;
constexpr size_t kMaxQueuedBytes = size_t{8} << 20;  // a queue with more bytes accepts no message

// The content of an address. It includes the process id, because another process may have an endpoint with the same
// number.
struct Address {
  int64_t process;
  uint64_t endpoint;
};

struct Message {
  std::vector<uint8_t> header, data;
};

// The lock of the registry guards all fields, except `number` and `process`, which do not change after
// open_memory_transport.
struct Endpoint {
  uint64_t number = 0;
  int64_t process = 0;
  uint64_t last_peer = 0;
  size_t queued_bytes = 0;
  std::map<uint64_t, uint64_t> peers;  // from the number of a peer to the number of its endpoint
  std::deque<Message> queue;
  std::vector<Message> polled;  // messages that the events of the last poll point to
  std::deque<kvc_transport_event> events;
};

// All endpoints of the process. The registry is never destroyed, because an endpoint may be closed while the process
// ends.
struct Registry {
  Mutex mutex;
  std::map<uint64_t, Endpoint*> endpoints KVC_GUARDED_BY(mutex);
  uint64_t last KVC_GUARDED_BY(mutex) = 0;
};

Registry& registry() {
  static Registry* const only = new Registry;
  return *only;
}

Endpoint& endpoint_of(void* self) { return *static_cast<Endpoint*>(self); }

int64_t address(void* self, void* buffer, int64_t capacity) {
  const Address own = {endpoint_of(self).process, endpoint_of(self).number};
  if (capacity < static_cast<int64_t>(sizeof own)) return -1;
  std::memcpy(buffer, &own, sizeof own);
  return sizeof own;
}

int32_t fail(kvc_error* error, const char* why) {
  Status::error(KVC_ERROR_IO, "%s", why).write_to("transport memory", error);
  return KVC_TRANSPORT_FAILED;
}

int32_t connect(void* self, const void* bytes, int64_t count, uint64_t* peer, kvc_error* error) {
  Address other;
  if (count != sizeof other) return fail(error, "this is no address of the transport");
  std::memcpy(&other, bytes, sizeof other);
  if (other.process != process_id()) return fail(error, "the address is of another process");
  Endpoint& own = endpoint_of(self);
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (all.endpoints.count(other.endpoint) == 0) return fail(error, "the endpoint was closed");
  own.peers[*peer = ++own.last_peer] = other.endpoint;
  return KVC_TRANSPORT_OK;
}

// Messages leave in `send`.
int32_t flush(void*, uint64_t, int64_t) { return KVC_TRANSPORT_OK; }

void disconnect(void* self, uint64_t peer) {
  MutexLock lock(registry().mutex);
  endpoint_of(self).peers.erase(peer);
}

int32_t send(void* self, uint64_t peer, const void* header, int64_t header_bytes, const void* data, int64_t data_bytes,
             uint64_t operation, kvc_error* error) try {
  Endpoint& own = endpoint_of(self);
  Registry& all = registry();
  MutexLock lock(all.mutex);
  const auto known = own.peers.find(peer);
  const auto found = known == own.peers.end() ? all.endpoints.end() : all.endpoints.find(known->second);
  if (found == all.endpoints.end() || own.process != process_id()) return fail(error, "the endpoint was closed");
  Endpoint& target = *found->second;
  if (target.queued_bytes > kMaxQueuedBytes) return KVC_TRANSPORT_RETRY;
  const auto bytes_of = [](const void* first, int64_t count) {
    const auto* begin = static_cast<const uint8_t*>(first);
    return std::vector<uint8_t>(begin, begin + count);
  };
  target.queue.push_back({bytes_of(header, header_bytes), bytes_of(data, data_bytes)});
  if (data_bytes > 0) {
    kvc_transport_event sent = {};
    sent.kind = KVC_TRANSPORT_SENT;
    sent.operation = operation;
    try {
      own.events.push_back(sent);
    } catch (const std::bad_alloc&) {  // a send that fails must give no event, and its message must not arrive
      target.queue.pop_back();
      throw;
    }
  }
  target.queued_bytes += static_cast<size_t>(header_bytes + data_bytes);
  return KVC_TRANSPORT_OK;
} catch (const std::bad_alloc&) {
  return fail(error, "no memory for a message");
}

int64_t poll(void* self, kvc_transport_event* events, int64_t capacity) try {
  Endpoint& own = endpoint_of(self);
  MutexLock lock(registry().mutex);
  own.polled.clear();
  own.polled.reserve(static_cast<size_t>(capacity));
  if (own.process != process_id()) return 0;
  int64_t count = 0;
  while (count < capacity && !own.events.empty()) {
    events[count++] = own.events.front();
    own.events.pop_front();
  }
  while (count < capacity && !own.queue.empty()) {
    const Message& next = own.polled.emplace_back(std::move(own.queue.front()));
    own.queue.pop_front();
    own.queued_bytes -= next.header.size() + next.data.size();
    kvc_transport_event& event = events[count++] = {};
    event.kind = KVC_TRANSPORT_RECEIVED;
    event.header = next.header.data();
    event.header_bytes = static_cast<int64_t>(next.header.size());
    event.data = next.data.data();
    event.data_bytes = static_cast<int64_t>(next.data.size());
  }
  return count;
} catch (const std::bad_alloc&) {
  return 0;
}

// Other endpoints get an event that this peer is lost. If memory for the event runs out, their transfers end by
// timeout.
void close(void* self) {
  const std::unique_ptr<Endpoint> own(static_cast<Endpoint*>(self));
  Registry& all = registry();
  MutexLock lock(all.mutex);
  all.endpoints.erase(own->number);
  for (const auto& [number, other] : all.endpoints) {
    for (const auto& [peer, target] : other->peers) {
      if (target != own->number) continue;
      kvc_transport_event lost = {};
      lost.kind = KVC_TRANSPORT_LOST;
      lost.peer = peer;
      try {
        other->events.push_back(lost);
      } catch (const std::bad_alloc&) {
      }
    }
  }
}

}  // namespace

void open_memory_transport(kvc_transport* out) {
  auto own = std::make_unique<Endpoint>();
  Registry& all = registry();
  MutexLock lock(all.mutex);
  own->number = ++all.last;
  own->process = process_id();
  all.endpoints[own->number] = own.get();
  kvc_transport_init(out);
  out->name = "memory";
  out->self = own.release();
  out->max_message_bytes = kMaxMessageBytes;
  out->address = address;
  out->connect = connect;
  out->flush = flush;
  out->disconnect = disconnect;
  out->send = send;
  out->poll = poll;
  out->close = close;
}

}  // namespace kvc
