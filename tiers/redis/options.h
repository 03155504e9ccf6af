// The options of a Redis tier. They come from kvc_redis_config or, if the tier is a plug-in, from a URL:
//
//   redis://[[user]:password@]host[:port][,host:port ...][/database][?name=value&...]
//   rediss://...  the same with TLS
//   unix://[[user]:password@]/path/of/socket[?name=value&...]
//   names: prefix, database, timeout_ms, ttl_ms, lookup_ms, threads, max_items, lazy, tls_ca_file,
//   tls_certificate_file, tls_key_file, tls_server_name, tls_no_verify
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvcache_redis.h"

namespace kvc::redis {

// Where a server listens. If port is 0, host is the path of a Unix socket.
struct Address {
  std::string host;
  int port = 0;
  bool operator==(const Address&) const = default;
  std::string text() const;
};

// Parses "host:port", "[IPv6]:port", or a path. The default port is 6379.
Status parse_address(const std::string& text, Address* address);

struct TlsOptions {
  bool on = false;
  bool verify = true;
  std::string ca_file;                     // trusted certificates; empty: those of the system
  std::string certificate_file, key_file;  // empty: no certificate; the key is in certificate_file
  std::string server_name;                 // the name in the server's certificate; empty: the host of its address
};

struct Options {
  std::vector<Address> addresses;  // at least one
  std::string user, password;      // if both are empty, no AUTH is sent
  std::string prefix = "kvcache:";
  int32_t database = 0;
  int32_t timeout_ms = 1000;
  int64_t time_to_live_ms = 0;  // 0 = for ever
  int32_t lookup_ms = 1000;
  int32_t threads = 8;
  int32_t max_items = 1024;
  bool lazy = false;
  TlsOptions tls;
};

// Both check the options, and fail with the errors of kvc_redis_tier_open. They throw std::bad_alloc.
Status options_of(const kvc_redis_config& config, Options* options);
Status options_of_url(const std::string& url, Options* options);

}  // namespace kvc::redis
