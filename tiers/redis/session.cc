#include "session.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <limits>

namespace kvc::redis {
namespace {

constexpr int64_t kSmallReplyBytes = 1 << 20;
constexpr int kMaxHops = 5;

bool is_error(const Reply& reply) { return reply->type == REDIS_REPLY_ERROR; }

bool begins_with(const Reply& reply, const char* word) {
  return is_error(reply) && std::strncmp(reply->str, word, std::strlen(word)) == 0;
}

// The errno that corresponds to an error reply of a server.
int errno_of(const Reply& refusal) {
  const struct {
    const char* word;
    int error;
  } known[] = {{"OOM", ENOSPC},
               {"MISCONF", ENOSPC},
               {"NOAUTH", EACCES},
               {"WRONGPASS", EACCES},
               {"NOPERM", EACCES},
               {"LOADING", EAGAIN},
               {"CLUSTERDOWN", EAGAIN},
               {"TRYAGAIN", EAGAIN},
               {"MASTERDOWN", EAGAIN},
               {"BUSY", EAGAIN},
               {"READONLY", EROFS},
               {"NOREPLICAS", EAGAIN},
               {"ERR max number of clients", EMFILE}};
  for (const auto& entry : known) {
    if (begins_with(refusal, entry.word)) return entry.error;
  }
  return EPROTO;
}

// Reads the address from "MOVED 3999 127.0.0.1:6381" or "ASK ...". An empty host means the host of the server that
// answered (`from`).
bool parse_redirect(const Reply& reply, const Address& from, Address* to) {
  const std::string text(reply->str, reply->len);
  const size_t space = text.rfind(' ');
  if (space == std::string::npos || space + 1 == text.size()) return false;
  const std::string address = text.substr(space + 1);
  const bool same_host = address[0] == ':';
  if (!parse_address(same_host ? "host" + address : address, to).ok() || to->port == 0) return false;
  if (same_host) to->host = from.host;
  return true;
}

// Reads one entry of CLUSTER SLOTS: [first, last, [host, port, ...], replicas ...].
bool parse_slots(const redisReply* entry, const Address& from, SlotRange* range) {
  const auto is = [](const redisReply* reply, int type) { return reply != nullptr && reply->type == type; };
  if (!is(entry, REDIS_REPLY_ARRAY) || entry->elements < 3) return false;
  const redisReply *first = entry->element[0], *last = entry->element[1], *node = entry->element[2];
  if (!is(first, REDIS_REPLY_INTEGER) || !is(last, REDIS_REPLY_INTEGER) || !is(node, REDIS_REPLY_ARRAY)) return false;
  if (node->elements < 2 || !is(node->element[1], REDIS_REPLY_INTEGER)) return false;
  const int64_t port = node->element[1]->integer;
  if (first->integer < 0 || last->integer >= kSlots || port < 1 || port > 65535) return false;
  const redisReply* host = node->element[0];
  *range = {static_cast<int>(first->integer), static_cast<int>(last->integer), {from.host, static_cast<int>(port)}};
  if (is(host, REDIS_REPLY_STRING) && host->len > 0) range->server.host = std::string(host->str, host->len);
  return true;
}

// Fills the buffers of an item from a value. `bytes` is the number of bytes that were received: the size of the value,
// but at most one byte more than the item needs.
Session::Outcome read_value(const kvc_tier_item& item, const uint8_t* value, int64_t bytes) {
  constexpr Session::Outcome kDamaged = {KVC_TIER_MISS, 0, true};
  if (bytes < kFrameHeaderBytes) return kDamaged;
  const int64_t payload_bytes = frame_payload_bytes(value);
  Checksum expected{};
  if (!check_frame_header(value, item.key, payload_bytes, &expected)) return kDamaged;
  const bool longer = bytes > kFrameHeaderBytes + item.bytes;  // then the size of the whole value is unknown
  if (longer ? payload_bytes <= item.bytes : payload_bytes != bytes - kFrameHeaderBytes) return kDamaged;
  if (payload_bytes != item.bytes) return {KVC_TIER_MISS, 0, false, payload_bytes};  // an object of another size
  const uint8_t* from = value + kFrameHeaderBytes;
  if (checksum_of({from, static_cast<size_t>(payload_bytes)}) != expected) return kDamaged;
  for (int32_t i = 0; i < item.num_buffers; from += item.buffers[i++].bytes) {
    if (item.buffers[i].bytes > 0) {
      std::memcpy(item.buffers[i].data, from, static_cast<size_t>(item.buffers[i].bytes));
    }
  }
  return {KVC_TIER_OK, 0, false, payload_bytes};
}

}  // namespace

std::string Session::key_text(const kvc_tier_key& key) const {
  std::string text = options_.prefix;
  for (const uint8_t byte : key.bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// ---- Connections

// Records a failure of a server, so that no thread uses it for some time (servers.h), and closes the connection to it.
int Session::refuse(const Address& server, int error) {
  servers_.failed(server, error, steady_ns());
  connections_.erase(server.text());
  return error;
}

int Session::greet(Connection& connection, int64_t deadline_ns) {
  std::vector<Command> greetings;
  if (!options_.user.empty()) {
    greetings.push_back(Command(3).add("AUTH").add(options_.user).add(options_.password));
  } else if (!options_.password.empty()) {
    greetings.push_back(Command(2).add("AUTH").add(options_.password));
  }
  if (options_.database != 0) greetings.push_back(Command(2).add("SELECT").add(std::to_string(options_.database)));
  greetings.push_back(Command(1).add("PING"));
  for (const Command& greeting : greetings) {
    if (const int error = connection.send(greeting, deadline_ns)) return error;
  }
  int refused = 0;
  for (size_t i = 0; i < greetings.size(); ++i) {
    Reply reply;
    if (const int error = connection.receive(&reply, kSmallReplyBytes, deadline_ns)) return error;
    if (refused != 0 || !is_error(reply)) continue;
    refusal_.assign(reply->str, reply->len);
    refused = errno_of(reply);
  }
  return refused;
}

int Session::connection_to(const Address& server, int64_t deadline_ns, Connection** connection) {
  *connection = &connections_[server.text()];
  if ((*connection)->is_open()) return 0;
  if (const int error = servers_.may_use(server, steady_ns(), timeout_ns())) return error;
  refusal_.clear();
  int error = (*connection)->open(server, tls_, deadline_ns);
  if (error == 0) error = greet(**connection, deadline_ns);
  if (error != 0) {
    if (refusal_.empty()) refusal_ = (*connection)->reason();
    return refuse(server, error);
  }
  servers_.worked(server);
  return 0;
}

Status Session::connect() {
  std::string failures;
  for (const Address& server : servers_.all()) {
    Connection* connection = nullptr;
    const int error = connection_to(server, deadline(0), &connection);
    if (error == 0) return Status();
    failures += (failures.empty() ? "" : "; ") + server.text() + ": " +
                (refusal_.empty() ? std::strerror(error) : refusal_.c_str());
  }
  return Status::error(KVC_ERROR_IO, "no Redis server can be used: %s", failures.c_str());
}

// ---- Commands

int Session::exchange(const Address& server, bool asking, const Command& command, int64_t most_bytes,
                      int64_t deadline_ns, Reply* reply, const Connection::Sink* sink) {
  for (bool again = false;; again = true) {
    Connection* connection = &connections_[server.text()];
    const bool was_open = connection->is_open();
    if (const int error = connection_to(server, deadline_ns, &connection)) return error;
    int error = asking ? connection->send(Command(1).add("ASKING"), deadline_ns) : 0;
    if (error == 0) error = connection->send(command, deadline_ns);
    if (error == 0 && asking) error = connection->receive(reply, kSmallReplyBytes, deadline_ns);
    if (error == 0) error = connection->receive(reply, most_bytes, deadline_ns, sink);
    if (error == 0) {
      servers_.worked(server);  // another thread may have recorded a failure
      return 0;
    }
    // The server may have closed a connection that was idle. Then the command is sent once more, over a new connection.
    // This is safe, because a server may execute each command of this tier twice.
    const bool may_be_old = was_open && !again && (error == ECONNRESET || error == EPIPE);
    if (!may_be_old) return refuse(server, error);
  }
}

bool Session::refresh_slots(int64_t deadline_ns) {
  if (!servers_.should_refresh(steady_ns())) return false;
  for (const Address& server : servers_.all()) {
    Reply reply;
    if (exchange(server, false, Command(2).add("CLUSTER").add("SLOTS"), kSmallReplyBytes, deadline_ns, &reply) != 0) {
      continue;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) continue;
    std::vector<SlotRange> ranges(reply->elements);
    bool good = true;
    for (size_t i = 0; i < ranges.size(); ++i) good = good && parse_slots(reply->element[i], server, &ranges[i]);
    if (!good) continue;
    servers_.set_slots(ranges);
    return true;
  }
  return false;
}

int Session::run(const std::string& key, const Command& command, int64_t most_bytes, int64_t deadline_ns, Reply* reply,
                 const Connection::Sink* sink) {
  const int slot = slot_of(key);
  Address server = servers_.of_slot(slot, steady_ns());
  bool asking = false;
  for (int hop = 0; hop < kMaxHops; ++hop) {
    if (const int error = exchange(server, asking, command, most_bytes, deadline_ns, reply, sink)) {
      // Another node may have taken over the slots of the failed node.
      const Address failed = server;
      if (!servers_.is_cluster() || !refresh_slots(deadline_ns)) return error;
      server = servers_.of_slot(slot, steady_ns());
      if (server == failed) return error;
      asking = false;
      continue;
    }
    const bool moved = begins_with(*reply, "MOVED ");
    if (!moved && !begins_with(*reply, "ASK ")) return 0;
    Address next;
    if (!parse_redirect(*reply, server, &next)) return EPROTO;
    if (moved) {
      refresh_slots(deadline_ns);
      servers_.set_slot(slot, next);
    }
    server = next;
    asking = !moved;
  }
  return ELOOP;
}

// ---- Objects

Session::Outcome Session::store(const kvc_tier_item& item) {
  RunningChecksum sum;
  for (int32_t i = 0; i < item.num_buffers; ++i) {
    sum.add({static_cast<const uint8_t*>(item.buffers[i].data), static_cast<size_t>(item.buffers[i].bytes)});
  }
  std::string header(kFrameHeaderBytes, '\0');
  encode_frame_header(item.key, item.bytes, sum.value(), reinterpret_cast<uint8_t*>(header.data()));
  const std::string key = key_text(item.key);
  Command command(options_.time_to_live_ms > 0 ? 5 : 3);
  command.add("SET").add(key).add_value(header, item);
  if (options_.time_to_live_ms > 0) command.add("PX").add(std::to_string(options_.time_to_live_ms));
  Reply reply;
  if (const int error = run(key, command, kSmallReplyBytes, deadline(item.bytes), &reply)) {
    return {KVC_TIER_FAILED, error};
  }
  if (is_error(reply)) return {KVC_TIER_FAILED, errno_of(reply)};
  return reply->type == REDIS_REPLY_STATUS ? Outcome{} : Outcome{KVC_TIER_FAILED, EPROTO};
}

Session::Outcome Session::load(const kvc_tier_item& item) {
  const std::string key = key_text(item.key);
  Reply reply;
  Outcome outcome = {KVC_TIER_MISS};
  const Connection::Sink sink = [&](const uint8_t* value, int64_t bytes) {
    if (bytes > 0) outcome = read_value(item, value, bytes);  // GETRANGE gives an empty value if the key does not exist
  };
  // Requests one byte more than the value of this object has. If this byte arrives, the value is longer. The request
  // also limits the number of bytes that the server sends.
  const int64_t last = kFrameHeaderBytes + item.bytes;
  const Command command = Command(4).add("GETRANGE").add(key).add("0").add(std::to_string(last));
  if (const int error = run(key, command, last + kSmallReplyBytes, deadline(item.bytes), &reply, &sink)) {
    return {KVC_TIER_FAILED, error};
  }
  if (begins_with(reply, "WRONGTYPE")) return {KVC_TIER_MISS};
  if (is_error(reply)) return {KVC_TIER_FAILED, errno_of(reply)};
  if (reply->type != REDIS_REPLY_STRING) return {KVC_TIER_FAILED, EPROTO};
  if (outcome.damaged) run(key, Command(2).add("DEL").add(key), kSmallReplyBytes, deadline(0), &reply);
  return outcome;
}

Session::Outcome Session::remove(const kvc_tier_key& key) {
  const std::string text = key_text(key);
  Reply reply;
  if (const int error = run(text, Command(2).add("DEL").add(text), kSmallReplyBytes, deadline(0), &reply)) {
    return {KVC_TIER_FAILED, error};
  }
  if (is_error(reply)) return {KVC_TIER_FAILED, errno_of(reply)};
  if (reply->type != REDIS_REPLY_INTEGER) return {KVC_TIER_FAILED, EPROTO};
  return {reply->integer > 0 ? KVC_TIER_OK : KVC_TIER_MISS};
}

void Session::search(const std::vector<kvc_tier_key>& keys, std::vector<int64_t>* bytes) {
  bytes->assign(keys.size(), -1);
  std::vector<std::string> texts;
  std::map<std::string, std::pair<Address, std::vector<size_t>>> by_server;
  for (size_t i = 0; i < keys.size(); ++i) {
    texts.push_back(key_text(keys[i]));
    const Address server = servers_.of_slot(slot_of(texts[i]), steady_ns());
    auto& entry = by_server[server.text()];
    entry.first = server;
    entry.second.push_back(i);
  }
  for (const auto& [name, entry] : by_server) search_server(entry.first, entry.second, texts, bytes);
}

void Session::search_server(const Address& server, const std::vector<size_t>& which,
                            const std::vector<std::string>& texts, std::vector<int64_t>* bytes) {
  const int64_t deadline_ns = deadline(0);
  const auto answer = [&](size_t i, const Reply& reply) {
    const bool stored = reply->type == REDIS_REPLY_INTEGER && reply->integer >= kFrameHeaderBytes;
    (*bytes)[i] = stored ? reply->integer - kFrameHeaderBytes : -1;
  };
  std::string commands;
  for (const size_t i : which) commands += Command(2).add("STRLEN").add(texts[i]).before();
  std::vector<size_t> alone;  // keys that are searched one by one afterwards, because another server may have them
  int error = 0;
  for (int tries = 0; tries < 2; ++tries) {
    Connection* connection = nullptr;
    alone = which;
    error = connection_to(server, deadline_ns, &connection);
    if (error != 0) break;
    error = connection->send(commands, deadline_ns);
    alone.clear();
    for (size_t n = 0; n < which.size() && error == 0; ++n) {
      Reply reply;
      error = connection->receive(&reply, kSmallReplyBytes, deadline_ns);
      if (error != 0) break;
      if (begins_with(reply, "MOVED ") || begins_with(reply, "ASK ")) {
        alone.push_back(which[n]);
      } else {
        answer(which[n], reply);
      }
    }
    if (error == 0) servers_.worked(server);
    if (error != ECONNRESET && error != EPIPE)
      break;  // otherwise tries again: the server may have closed an idle connection
  }
  if (error != 0 && !servers_.is_cluster()) {
    if (error == ETIMEDOUT) refuse(server, error);
    return;
  }
  for (const size_t i : alone) {
    Reply reply;
    const Command command = Command(2).add("STRLEN").add(texts[i]);
    if (run(texts[i], command, kSmallReplyBytes, deadline_ns, &reply) != 0) break;
    answer(i, reply);
  }
}

}  // namespace kvc::redis
