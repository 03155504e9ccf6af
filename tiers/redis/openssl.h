// OpenSsl: the functions of OpenSSL 3 that TLS needs. They come from libssl.so.3, which is loaded when the first TLS
// tier is opened. So a build needs no headers of OpenSSL, and a tier without TLS needs no OpenSSL.
//
// The functions and constants have the names of OpenSSL's headers. OpenSSL's manual pages describe them.
//
// Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Types of OpenSSL, declared but not defined, with the names of OpenSSL's headers.
extern "C" {
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct X509_VERIFY_PARAM_st X509_VERIFY_PARAM;
}

namespace kvc::redis {

inline constexpr uint64_t OPENSSL_INIT_NO_ATEXIT = 0x80000;
inline constexpr int SSL_CTRL_MODE = 33, SSL_CTRL_SET_READ_AHEAD = 41, SSL_CTRL_SET_TLSEXT_HOSTNAME = 55,
                     SSL_CTRL_SET_MIN_PROTO_VERSION = 123;
inline constexpr long SSL_MODE_ENABLE_PARTIAL_WRITE = 1, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2;
inline constexpr long TLSEXT_NAMETYPE_host_name = 0, TLS1_2_VERSION = 0x303;
inline constexpr int SSL_VERIFY_NONE = 0, SSL_VERIFY_PEER = 1, SSL_FILETYPE_PEM = 1;
inline constexpr int SSL_ERROR_WANT_READ = 2, SSL_ERROR_WANT_WRITE = 3, SSL_ERROR_SYSCALL = 5,
                     SSL_ERROR_ZERO_RETURN = 6;
inline constexpr int SSL_R_CERTIFICATE_VERIFY_FAILED = 134;
inline constexpr unsigned X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS = 4;
inline constexpr int BIO_TYPE_SOURCE_SINK = 0x400, BIO_CTRL_FLUSH = 11;
inline constexpr int BIO_FLAGS_READ = 1, BIO_FLAGS_WRITE = 2, BIO_FLAGS_SHOULD_RETRY = 8;
inline constexpr unsigned long ERR_SYSTEM_FLAG = 0x80000000, ERR_REASON_MASK = 0x7fffff;

// Calls the macro F(result, name, arguments) for each function.
#define KVC_OPENSSL_FUNCTIONS(F)                                                      \
  F(int, OPENSSL_init_ssl, (uint64_t options, const void* settings))                  \
  F(const SSL_METHOD*, TLS_client_method, ())                                         \
  F(SSL_CTX*, SSL_CTX_new, (const SSL_METHOD*))                                       \
  F(void, SSL_CTX_free, (SSL_CTX*))                                                   \
  F(long, SSL_CTX_ctrl, (SSL_CTX*, int command, long value, void* pointer))           \
  F(void, SSL_CTX_set_default_read_buffer_len, (SSL_CTX*, size_t bytes))              \
  F(void, SSL_CTX_set_default_passwd_cb, (SSL_CTX*, int (*)(char*, int, int, void*))) \
  F(void, SSL_CTX_set_verify, (SSL_CTX*, int mode, void* callback))                   \
  F(int, SSL_CTX_set_default_verify_paths, (SSL_CTX*))                                \
  F(int, SSL_CTX_load_verify_file, (SSL_CTX*, const char* file))                      \
  F(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX*, const char* file))            \
  F(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX*, const char* file, int type))         \
  F(SSL*, SSL_new, (SSL_CTX*))                                                        \
  F(void, SSL_free, (SSL*))                                                           \
  F(void, SSL_set_bio, (SSL*, BIO * read, BIO * write))                               \
  F(long, SSL_ctrl, (SSL*, int command, long value, void* pointer))                   \
  F(int, SSL_set1_host, (SSL*, const char* name))                                     \
  F(void, SSL_set_hostflags, (SSL*, unsigned flags))                                  \
  F(X509_VERIFY_PARAM*, SSL_get0_param, (SSL*))                                       \
  F(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_VERIFY_PARAM*, const char* address))    \
  F(int, SSL_connect, (SSL*))                                                         \
  F(int, SSL_read, (SSL*, void* data, int bytes))                                     \
  F(int, SSL_write, (SSL*, const void* data, int bytes))                              \
  F(int, SSL_shutdown, (SSL*))                                                        \
  F(int, SSL_get_error, (const SSL*, int result))                                     \
  F(long, SSL_get_verify_result, (const SSL*))                                        \
  F(const char*, X509_verify_cert_error_string, (long result))                        \
  F(void, ERR_clear_error, ())                                                        \
  F(unsigned long, ERR_peek_error, ())                                                \
  F(const char*, ERR_reason_error_string, (unsigned long error))                      \
  F(BIO_METHOD*, BIO_meth_new, (int type, const char* name))                          \
  F(void, BIO_meth_free, (BIO_METHOD*))                                               \
  F(int, BIO_meth_set_read, (BIO_METHOD*, int (*)(BIO*, char*, int)))                 \
  F(int, BIO_meth_set_write, (BIO_METHOD*, int (*)(BIO*, const char*, int)))          \
  F(int, BIO_meth_set_ctrl, (BIO_METHOD*, long (*)(BIO*, int, long, void*)))          \
  F(BIO*, BIO_new, (const BIO_METHOD*))                                               \
  F(void, BIO_set_data, (BIO*, void*))                                                \
  F(void*, BIO_get_data, (BIO*))                                                      \
  F(void, BIO_set_flags, (BIO*, int))                                                 \
  F(void, BIO_clear_flags, (BIO*, int))

struct OpenSsl {
#define KVC_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  KVC_OPENSSL_FUNCTIONS(KVC_MEMBER)
#undef KVC_MEMBER
  char problem[256] = {};  // why OpenSSL cannot be used; "" = it can be used

  OpenSsl() noexcept;
};

// The first call loads OpenSSL, which then stays loaded.
const OpenSsl& openssl() noexcept;

}  // namespace kvc::redis
