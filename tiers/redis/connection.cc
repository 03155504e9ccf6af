#include "connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace kvc::redis {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMaxParts = 64;  // of one sendmsg

// "*3\r\n" is the head of a command of three arguments, and "$5\r\n" that of an argument of five bytes.
std::string head(char kind, int64_t count) {
  std::string text(1, kind);
  return text.append(std::to_string(count)).append("\r\n");
}

}  // namespace

int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

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
  if (context_ != nullptr) redisFree(context_);
  context_ = nullptr;
}

int Connection::fail(int error) noexcept {
  close();
  return error;
}

int Connection::wait(short events, int64_t deadline_ns) noexcept {
  for (;;) {
    const int64_t left_ns = deadline_ns - now_ns();
    if (left_ns <= 0) return ETIMEDOUT;
    pollfd waiting = {context_->fd, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, INT32_MAX)));
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
  }
}

int Connection::open(const Address& address, int64_t deadline_ns) {
  close();
  buffer_.resize(kReadBytes);
  context_ = address.port == 0 ? redisConnectUnixNonBlock(address.host.c_str())
                               : redisConnectNonBlock(address.host.c_str(), address.port);
  if (context_ == nullptr) return ENOMEM;
  if (context_->err != 0) {
    const int error = context_->err == REDIS_ERR_IO && errno != 0 ? errno : EHOSTUNREACH;  // the name is unknown
    return fail(error);
  }
  redisReader& reader = *context_->reader;
  reader.maxbuf = 0;  // it keeps its memory between large replies
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
  return error == 0 ? 0 : fail(error);
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

int Connection::send_parts(iovec* parts, size_t count, int64_t deadline_ns) {
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

// hiredis calls it for each string that has arrived whole. Null: no memory.
void* Connection::make_string(const redisReadTask* task, char* data, size_t bytes) noexcept {
  const auto& connection = *static_cast<const Connection*>(task->privdata);
  if (connection.sink_ == nullptr || task->type != REDIS_REPLY_STRING || task->parent != nullptr) {
    return connection.default_functions_.createString(task, data, bytes);
  }
  (*connection.sink_)(reinterpret_cast<const uint8_t*>(data), static_cast<int64_t>(bytes));
  char empty[1] = {};
  return connection.default_functions_.createString(task, empty, 0);
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
    if (const int error = wait(POLLIN, deadline_ns)) return fail(error);
    const ssize_t got = ::recv(context_->fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return fail(got == 0 ? ECONNRESET : errno);
    if (redisReaderFeed(context_->reader, buffer_.data(), static_cast<size_t>(got)) != REDIS_OK) return fail(ENOMEM);
  }
}

}  // namespace kvc::redis
