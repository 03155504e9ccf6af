// TLS over a connected socket, by OpenSSL. TlsContext has the settings that all connections of a tier share. TlsStream
// encrypts one connection. No call waits for the network, and a closed socket raises no signal.
//
// Thread safety: any thread may use a context. A stream belongs to one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "openssl.h"
#include "options.h"

namespace kvc::redis {

class TlsContext {
 public:
  // Loads OpenSSL, and reads the files of the options.
  // Errors: UNSUPPORTED (OpenSSL 3 cannot be loaded), IO (a file cannot be used), OUT_OF_MEMORY. Throws
  // std::bad_alloc.
  static Status create(const TlsOptions& options, std::unique_ptr<TlsContext>* context);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  explicit TlsContext(const TlsOptions& options) : options_(options) {}
  Status open();

  const TlsOptions options_;
  SSL_CTX* context_ = nullptr;
  BIO_METHOD* method_ = nullptr;
};

class TlsStream {
 public:
  // socket: must be connected and non-blocking. The socket and the context are borrowed until the stream is destroyed.
  // host: the host of the address. The server's certificate must have this name, unless the options have a server name.
  TlsStream(const TlsContext& context, int socket, const std::string& host) noexcept;
  ~TlsStream();  // tells the server that the connection ends
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Each returns a number of bytes (handshake: 0) or a negative errno. After -EAGAIN, wait until the socket is ready
  // for wanted(), and repeat the call. After any other error, make no more calls. -EACCES: this side refuses the
  // server's certificate. -ECONNRESET: the server has closed the connection. -EPROTO: any other failure of TLS.
  int64_t handshake() noexcept;
  int64_t read(void* data, size_t bytes) noexcept;
  int64_t write(const void* data, size_t bytes) noexcept;

  short wanted() const noexcept { return wanted_; }        // POLLIN or POLLOUT
  const char* reason() const noexcept { return reason_; }  // OpenSSL's text after -EACCES or -EPROTO; otherwise ""

 private:
  friend class TlsContext;
  bool set_name(const std::string& name) noexcept;
  int64_t result_of(int result) noexcept;
  static int bio_read(BIO* bio, char* data, int bytes) noexcept;
  static int bio_write(BIO* bio, const char* data, int bytes) noexcept;
  static long bio_control(BIO* bio, int command, long value, void* pointer) noexcept;
  int socket_result(BIO* bio, int64_t moved, int direction) noexcept;

  const int socket_;
  SSL* ssl_ = nullptr;
  short wanted_ = 0;
  int socket_error_ = 0;  // errno of the last recv or send; 0 = success
  bool usable_ = false;   // the constructor has succeeded, and no call has failed
  char reason_[200] = {};
};

}  // namespace kvc::redis
