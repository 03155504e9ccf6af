#include "tls.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>

namespace kvc::redis {
namespace {

constexpr size_t kReadBufferBytes = 256 << 10;

// The text of the first error that OpenSSL has recorded for this thread.
const char* first_reason() noexcept {
  const unsigned long error = openssl().ERR_peek_error();
  if ((error & ERR_SYSTEM_FLAG) != 0) return std::strerror(static_cast<int>(error & ~ERR_SYSTEM_FLAG));
  const char* const reason = error != 0 ? openssl().ERR_reason_error_string(error) : nullptr;
  return reason != nullptr ? reason : "unknown error of OpenSSL";
}

Status file_error(const char* option, const std::string& file) {
  return Status::error(KVC_ERROR_IO, "%s %.200s: %s", option, file.c_str(), first_reason());
}

// Refuses keys with a password. Without this function, OpenSSL would read the password from the terminal.
int no_password(char*, int, int, void*) noexcept { return -1; }

bool is_ip_address(const std::string& name) noexcept {
  in6_addr bytes;
  return ::inet_pton(AF_INET, name.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, name.c_str(), &bytes) == 1;
}

}  // namespace

// ---- TlsContext

Status TlsContext::create(const TlsOptions& options, std::unique_ptr<TlsContext>* context) {
  if (openssl().problem[0] != '\0') {
    return Status::error(KVC_ERROR_UNSUPPORTED, "TLS needs OpenSSL 3: %s", openssl().problem);
  }
  context->reset(new TlsContext(options));
  return (*context)->open();
}

Status TlsContext::open() {
  const OpenSsl& o = openssl();
  o.ERR_clear_error();
  context_ = o.SSL_CTX_new(o.TLS_client_method());
  method_ = o.BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket without signals");
  if (context_ == nullptr || method_ == nullptr) {
    return Status::error(KVC_ERROR_OUT_OF_MEMORY, "OpenSSL makes no context: %s", first_reason());
  }
  o.BIO_meth_set_read(method_, TlsStream::bio_read);
  o.BIO_meth_set_write(method_, TlsStream::bio_write);
  o.BIO_meth_set_ctrl(method_, TlsStream::bio_control);
  o.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  o.SSL_CTX_ctrl(context_, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, nullptr);
  o.SSL_CTX_ctrl(context_, SSL_CTRL_SET_READ_AHEAD, 1, nullptr);  // one system call may read several records
  o.SSL_CTX_set_default_read_buffer_len(context_, kReadBufferBytes);
  o.SSL_CTX_set_default_passwd_cb(context_, no_password);
  o.SSL_CTX_set_verify(context_, options_.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (options_.ca_file.empty()) {
    o.SSL_CTX_set_default_verify_paths(context_);
    o.ERR_clear_error();
  } else if (o.SSL_CTX_load_verify_file(context_, options_.ca_file.c_str()) != 1) {
    return file_error("tls_ca_file", options_.ca_file);
  }
  if (options_.certificate_file.empty()) return Status();
  if (o.SSL_CTX_use_certificate_chain_file(context_, options_.certificate_file.c_str()) != 1) {
    return file_error("tls_certificate_file", options_.certificate_file);
  }
  const std::string& key_file = options_.key_file.empty() ? options_.certificate_file : options_.key_file;
  if (o.SSL_CTX_use_PrivateKey_file(context_, key_file.c_str(), SSL_FILETYPE_PEM) !=
      1) {  // this call also checks that the key belongs to the certificate
    return file_error("tls_key_file", key_file);
  }
  return Status();
}

TlsContext::~TlsContext() {
  if (context_ != nullptr) openssl().SSL_CTX_free(context_);
  if (method_ != nullptr) openssl().BIO_meth_free(method_);
}

// ---- TlsStream

TlsStream::TlsStream(const TlsContext& context, int socket, const std::string& host) noexcept : socket_(socket) {
  const OpenSsl& o = openssl();
  o.ERR_clear_error();
  ssl_ = o.SSL_new(context.context_);
  BIO* const bio = ssl_ != nullptr ? o.BIO_new(context.method_) : nullptr;
  const std::string& server_name = context.options_.server_name;
  if (bio != nullptr) {
    o.BIO_set_data(bio, this);
    o.SSL_set_bio(ssl_, bio, bio);  // ssl_ now owns bio
    usable_ = set_name(server_name.empty() ? host : server_name);
  }
  if (!usable_) std::snprintf(reason_, sizeof reason_, "%s", first_reason());
}

TlsStream::~TlsStream() {
  if (usable_) openssl().SSL_shutdown(ssl_);
  openssl().ERR_clear_error();
  if (ssl_ != nullptr) openssl().SSL_free(ssl_);
}

// Sets the name that the server's certificate must have. The name is also sent to the server. A server with several
// certificates chooses one by this name.
bool TlsStream::set_name(const std::string& name) noexcept {
  const OpenSsl& o = openssl();
  if (is_ip_address(name)) {  // TLS sends no IP addresses
    return o.X509_VERIFY_PARAM_set1_ip_asc(o.SSL_get0_param(ssl_), name.c_str()) == 1;
  }
  o.SSL_set_hostflags(ssl_, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return o.SSL_set1_host(ssl_, name.c_str()) == 1 &&
         o.SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name.c_str())) ==
             1;
}

int64_t TlsStream::handshake() noexcept {
  if (!usable_) return -EPROTO;
  openssl().ERR_clear_error();
  const int64_t result = result_of(openssl().SSL_connect(ssl_));
  return std::min<int64_t>(result, 0);
}

int64_t TlsStream::read(void* data, size_t bytes) noexcept {
  openssl().ERR_clear_error();
  return result_of(openssl().SSL_read(ssl_, data, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
}

int64_t TlsStream::write(const void* data, size_t bytes) noexcept {
  openssl().ERR_clear_error();
  const int64_t result = result_of(openssl().SSL_write(ssl_, data, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
  if (result != -EPIPE && result != -ECONNRESET) return result;
  // A server that refuses the client's certificate sends the reason, and closes the connection. The read gets the
  // reason.
  char byte;
  return read(&byte, 1) == -EPROTO ? -EPROTO : result;
}

int64_t TlsStream::result_of(int result) noexcept {
  if (result > 0) return result;
  const OpenSsl& o = openssl();
  const int kind = o.SSL_get_error(ssl_, result);
  wanted_ = kind == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return -EAGAIN;
  usable_ = false;
  if (kind == SSL_ERROR_ZERO_RETURN) return -ECONNRESET;
  if (kind == SSL_ERROR_SYSCALL) return -(socket_error_ != 0 ? socket_error_ : ECONNRESET);
  const bool refused = (o.ERR_peek_error() & ERR_REASON_MASK) == SSL_R_CERTIFICATE_VERIFY_FAILED;
  std::snprintf(reason_, sizeof reason_, "%s%s%s", first_reason(), refused ? ": " : "",
                refused ? o.X509_verify_cert_error_string(o.SSL_get_verify_result(ssl_)) : "");
  return refused ? -EACCES : -EPROTO;
}

// ---- The functions by which OpenSSL uses the socket. OpenSSL's own functions are not used, because they raise
// SIGPIPE.

int TlsStream::socket_result(BIO* bio, int64_t moved, int direction) noexcept {
  openssl().BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
  socket_error_ = moved < 0 ? errno : 0;
  if (socket_error_ == EAGAIN || socket_error_ == EINTR) {
    openssl().BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(moved);
}

int TlsStream::bio_read(BIO* bio, char* data, int bytes) noexcept {
  auto& stream = *static_cast<TlsStream*>(openssl().BIO_get_data(bio));
  const ssize_t got = ::recv(stream.socket_, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
  return stream.socket_result(bio, got, BIO_FLAGS_READ);
}

int TlsStream::bio_write(BIO* bio, const char* data, int bytes) noexcept {
  auto& stream = *static_cast<TlsStream*>(openssl().BIO_get_data(bio));
  const ssize_t sent = ::send(stream.socket_, data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  return stream.socket_result(bio, sent, BIO_FLAGS_WRITE);
}

long TlsStream::bio_control(BIO*, int command, long, void*) noexcept { return command == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace kvc::redis
