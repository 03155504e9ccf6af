#include "connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

namespace kvc::redis {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMaxParts = 64;  // largest number of buffers in one sendmsg

// "*3\r\n" is the head of a command with three arguments, and "$5\r\n" is the head of an argument of five bytes.
std::string head(char kind, int64_t count) {
  std::string text(1, kind);
  return text.append(std::to_string(count)).append("\r\n");
}

}  // namespace

Command::Command(int32_t num_arguments) : before_(head('*', num_arguments)) {}

Command& Command::add(const std::string& argument) {
  std::string& to = item_ == nullptr ? before_ : after_;
  to.append(head('$', static_cast<int64_t>(argument.size()))).append(argument).append("\r\n");
  return *this;
}

Command& Command::add_value(const std::string& header, const kvc_tier_item& item) {
  before_.append(head('$', static_cast<int64_t>(header.size()) + item.bytes)).append(header);
  item_ = &item;
  after_.append("\r\n");
  return *this;
}

void Connection::close() noexcept {
  tls_.reset();
  if (context_ != nullptr) redisFree(context_);
  context_ = nullptr;
}

int Connection::fail(int error) noexcept {
  if (tls_ != nullptr && reason_[0] == '\0' && tls_->reason()[0] != '\0') {
    std::snprintf(reason_, sizeof reason_, "TLS: %s", tls_->reason());
  }
  close();
  return error;
}

int Connection::wait(short events, int64_t deadline_ns) noexcept {
  for (;;) {
    const int64_t left_ns = deadline_ns - steady_ns();
    if (left_ns <= 0) return ETIMEDOUT;
    pollfd waiting = {context_->fd, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, INT32_MAX)));
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
  }
}

int Connection::open(const Address& address, const TlsContext* tls, int64_t deadline_ns) {
  close();
  reason_[0] = '\0';
  buffer_.resize(kReadBytes);
  context_ = address.port == 0 ? redisConnectUnixNonBlock(address.host.c_str())
                               : redisConnectNonBlock(address.host.c_str(), address.port);
  if (context_ == nullptr) return ENOMEM;
  if (context_->err != 0) {
    const int error = context_->err == REDIS_ERR_IO && errno != 0 ? errno : EHOSTUNREACH;  // the name has no address
    return fail(error);
  }
  redisReader& reader = *context_->reader;
  reader.maxbuf = 0;  // no limit: hiredis keeps its buffer after a large reply, instead of freeing it
  functions_ = default_functions_ = *reader.fn;
  functions_.createString = make_string;
  reader.fn = &functions_;
  reader.privdata = this;
  ::fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
  const int one = 1;
  if (address.port != 0) ::setsockopt(context_->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (const int error = wait(POLLOUT, deadline_ns)) return fail(error);
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(context_->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return fail(error);
  return tls == nullptr ? 0 : shake_hands(*tls, address.host, deadline_ns);
}

template <typename Call>
int64_t Connection::repeat(Call call, int64_t deadline_ns) noexcept {
  while (steady_ns() < deadline_ns) {
    const int64_t result = call();
    if (result != -EAGAIN) return result;
    if (const int error = wait(tls_->wanted(), deadline_ns)) return -error;
  }
  return -ETIMEDOUT;
}

int Connection::shake_hands(const TlsContext& tls, const std::string& host, int64_t deadline_ns) {
  tls_.reset(new (std::nothrow) TlsStream(tls, context_->fd, host));
  if (tls_ == nullptr) return fail(ENOMEM);
  const auto error = static_cast<int>(-repeat([this] { return tls_->handshake(); }, deadline_ns));
  if (error == 0) return 0;
  std::snprintf(reason_, sizeof reason_, "TLS handshake: %s",
                tls_->reason()[0] != '\0' ? tls_->reason() : std::strerror(error));
  return fail(error);
}

int Connection::send(const Command& command, int64_t deadline_ns) {
  std::vector<iovec> parts;
  const auto add = [&](const void* data, size_t bytes) {
    if (bytes > 0) parts.push_back({const_cast<void*>(data), bytes});
  };
  add(command.before().data(), command.before().size());
  if (const kvc_tier_item* item = command.item()) {
    for (int32_t i = 0; i < item->num_buffers; ++i) {
      add(item->buffers[i].data, static_cast<size_t>(item->buffers[i].bytes));
    }
  }
  add(command.after().data(), command.after().size());
  return send_parts(parts.data(), parts.size(), deadline_ns);
}

int Connection::send(const std::string& commands, int64_t deadline_ns) {
  iovec part = {const_cast<char*>(commands.data()), commands.size()};
  return send_parts(&part, 1, deadline_ns);
}

// Copies the parts into one buffer before encrypting them. Otherwise each small part would become a small TLS record.
int Connection::encrypt_parts(const iovec* parts, size_t count, int64_t deadline_ns) {
  size_t filled = 0;
  for (size_t i = 0; i < count; ++i) {
    const char* const data = static_cast<const char*>(parts[i].iov_base);
    for (size_t taken = 0; taken < parts[i].iov_len;) {
      if (filled == buffer_.size()) {
        if (const int error = encrypt_buffer(filled, deadline_ns)) return error;
        filled = 0;
      }
      const size_t bytes = std::min(buffer_.size() - filled, parts[i].iov_len - taken);
      std::memcpy(&buffer_[filled], data + taken, bytes);
      taken += bytes;
      filled += bytes;
    }
  }
  return encrypt_buffer(filled, deadline_ns);
}

int Connection::encrypt_buffer(size_t bytes, int64_t deadline_ns) {
  for (size_t sent = 0; sent < bytes;) {
    const int64_t now = repeat([&] { return tls_->write(&buffer_[sent], bytes - sent); }, deadline_ns);
    if (now < 0) return fail(static_cast<int>(-now));
    sent += static_cast<size_t>(now);
  }
  return 0;
}

int Connection::send_parts(iovec* parts, size_t count, int64_t deadline_ns) {
  if (tls_ != nullptr) return encrypt_parts(parts, count, deadline_ns);
  for (size_t first = 0; first < count;) {
    msghdr message = {};
    message.msg_iov = &parts[first];
    message.msg_iovlen = std::min(kMaxParts, count - first);
    ssize_t sent = ::sendmsg(context_->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (const int error = wait(POLLOUT, deadline_ns)) return fail(error);
      continue;
    }
    if (sent < 0) return fail(errno);
    for (; first < count && static_cast<size_t>(sent) >= parts[first].iov_len; ++first) {
      sent -= static_cast<ssize_t>(parts[first].iov_len);
    }
    if (sent > 0) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + sent;
      parts[first].iov_len -= static_cast<size_t>(sent);
    }
  }
  return 0;
}

// hiredis calls this function for each string that was received completely. Returns null if memory runs out.
void* Connection::make_string(const redisReadTask* task, char* data, size_t bytes) noexcept {
  const auto& connection = *static_cast<const Connection*>(task->privdata);
  if (connection.sink_ == nullptr || task->type != REDIS_REPLY_STRING || task->parent != nullptr) {
    return connection.default_functions_.createString(task, data, bytes);
  }
  (*connection.sink_)(reinterpret_cast<const uint8_t*>(data), static_cast<int64_t>(bytes));
  char empty[1] = {};
  return connection.default_functions_.createString(task, empty, 0);
}

// Receives bytes into buffer_. Returns their number, or a negative errno.
int64_t Connection::read_some(int64_t deadline_ns) {
  if (tls_ != nullptr) return repeat([this] { return tls_->read(buffer_.data(), buffer_.size()); }, deadline_ns);
  for (;;) {
    if (const int error = wait(POLLIN, deadline_ns)) return -error;
    const ssize_t got = ::recv(context_->fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got > 0) return got;
    if (got == 0) return -ECONNRESET;
    if (errno != EAGAIN && errno != EINTR) return -errno;
  }
}

int Connection::receive(Reply* reply, int64_t most_bytes, int64_t deadline_ns, const Sink* sink) {
  sink_ = sink;
  for (;;) {
    void* found = nullptr;
    if (redisReaderGetReply(context_->reader, &found) != REDIS_OK) return fail(EPROTO);
    if (found != nullptr) {
      reply->reset(static_cast<redisReply*>(found));
      return 0;
    }
    if (static_cast<int64_t>(context_->reader->len) > most_bytes) return fail(EPROTO);
    const int64_t got = read_some(deadline_ns);
    if (got < 0) return fail(static_cast<int>(-got));
    if (redisReaderFeed(context_->reader, buffer_.data(), static_cast<size_t>(got)) != REDIS_OK) return fail(ENOMEM);
  }
}

}  // namespace kvc::redis
