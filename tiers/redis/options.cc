#include "options.h"

#include <charconv>
#include <cinttypes>

namespace kvc::redis {
namespace {

constexpr int kDefaultPort = 6379;
constexpr int64_t kMaxMs = 600'000;
constexpr size_t kMaxPrefixBytes = 256;

bool parse_integer(const std::string& text, int64_t* value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end;
}

Status check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %" PRId64 " is outside %" PRId64 "..%" PRId64, name, value, least,
                       most);
}

Status parse_addresses(const std::string& text, std::vector<Address>* addresses) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    KVC_TRY(parse_address(text.substr(begin, end - begin), &addresses->emplace_back()));
    begin = end + 1;
  }
  return Status();
}

Status check_tls(const Options& options) {
  const TlsOptions& tls = options.tls;
  const struct {
    const char* name;
    bool given;
  } settings[] = {{"tls_ca_file", !tls.ca_file.empty()},
                  {"tls_certificate_file", !tls.certificate_file.empty()},
                  {"tls_key_file", !tls.key_file.empty()},
                  {"tls_server_name", !tls.server_name.empty()},
                  {"tls_no_verify", !tls.verify}};
  for (const auto& setting : settings) {
    if (!setting.given || tls.on) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s needs TLS: KVC_REDIS_TLS, or rediss://", setting.name);
  }
  if (!tls.key_file.empty() && tls.certificate_file.empty()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "tls_key_file %.200s has no tls_certificate_file",
                         tls.key_file.c_str());
  }
  for (const Address& address : options.addresses) {
    if (!tls.on || address.port != 0) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "TLS needs host:port, and %.200s is the path of a socket",
                         address.host.c_str());
  }
  return Status();
}

Status check(const Options& options) {
  KVC_TRY(check_range("database", options.database, 0, INT32_MAX));
  KVC_TRY(check_range("timeout_ms", options.timeout_ms, 1, kMaxMs));
  KVC_TRY(check_range("time_to_live_ms", options.time_to_live_ms, 0, INT64_MAX / 1'000'000));
  KVC_TRY(check_range("lookup_ms", options.lookup_ms, 100, kMaxMs));
  KVC_TRY(check_range("threads", options.threads, 1, 64));
  KVC_TRY(check_range("max_items", options.max_items, 1, 1 << 20));
  if (options.prefix.size() > kMaxPrefixBytes || options.prefix.find('{') != std::string::npos) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "prefix has %zu bytes, and may have %zu without a '{'",
                         options.prefix.size(), kMaxPrefixBytes);
  }
  if (!options.user.empty() && options.password.empty()) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "user %s has no password", options.user.c_str());
  }
  return check_tls(options);
}

// Replaces escapes such as %41 by their bytes (A). Returns false if a % is not followed by two hexadecimal digits.
bool decode(const std::string& text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    unsigned byte = 0;
    if (i + 2 >= text.size()) return false;
    const auto [at, error] = std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16);
    if (error != std::errc() || at != &text[i + 1] + 2) return false;
    out->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

Status set_parameter(const std::string& name, const std::string& value, Options* options) {
  const struct {
    const char* name;
    std::string* field;
  } texts[] = {{"prefix", &options->prefix},
               {"tls_ca_file", &options->tls.ca_file},
               {"tls_certificate_file", &options->tls.certificate_file},
               {"tls_key_file", &options->tls.key_file},
               {"tls_server_name", &options->tls.server_name}};
  for (const auto& text : texts) {
    if (name != text.name) continue;
    *text.field = value;
    return Status();
  }
  int64_t number = 0;
  const bool is_number = parse_integer(value, &number);
  if (name == "ttl_ms" && is_number) {
    options->time_to_live_ms = number;
    return Status();
  }
  const struct {
    const char* name;
    int32_t* field;
  } fields[] = {{"database", &options->database},
                {"timeout_ms", &options->timeout_ms},
                {"lookup_ms", &options->lookup_ms},
                {"threads", &options->threads},
                {"max_items", &options->max_items}};
  for (const auto& field : fields) {
    if (name != field.name || !is_number) continue;
    KVC_TRY(check_range(field.name, number, INT32_MIN, INT32_MAX));
    *field.field = static_cast<int32_t>(number);
    return Status();
  }
  const bool is_switch = is_number && (number == 0 || number == 1);
  if (name == "lazy" && is_switch) {
    options->lazy = number == 1;
    return Status();
  }
  if (name == "tls_no_verify" && is_switch) {
    options->tls.verify = number == 0;
    return Status();
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s=%s is no parameter of a Redis tier", name.c_str(),
                       value.c_str());
}

Status parse_parameters(const std::string& text, Options* options) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('&', begin), text.size());
    const size_t equals = std::min(text.find('=', begin), end);
    std::string name, value;
    if (!decode(text.substr(begin, equals - begin), &name) ||
        (equals < end && !decode(text.substr(equals + 1, end - equals - 1), &value))) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "a %% in the URL is not followed by two hexadecimal digits");
    }
    KVC_TRY(set_parameter(name, value, options));
    begin = end + 1;
  }
  return Status();
}

// "user:password" or ":password".
Status parse_user(const std::string& text, Options* options) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !decode(text.substr(0, colon), &options->user) ||
      !decode(text.substr(colon + 1), &options->password)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the URL has no user:password before the @");
  }
  return Status();
}

}  // namespace

std::string Address::text() const {
  if (port == 0) return host;
  const bool is_v6 = host.find(':') != std::string::npos;
  std::string text(is_v6 ? "[" : "");
  return text.append(host).append(is_v6 ? "]:" : ":").append(std::to_string(port));
}

Status parse_address(const std::string& text, Address* address) {
  if (!text.empty() && text[0] == '/') {
    *address = {text, 0};
    return Status();
  }
  size_t colon = text.rfind(':');
  std::string host = text;
  int64_t port = kDefaultPort;
  bool good = true;
  if (!text.empty() && text[0] == '[') {  // an IPv6 address
    const size_t end = text.find(']');
    good = end != std::string::npos && (end + 1 == text.size() || text[end + 1] == ':');
    colon = good && end + 1 < text.size() ? end + 1 : std::string::npos;
    host = good ? text.substr(1, end - 1) : host;
  } else {
    host = text.substr(0, colon);
  }
  if (colon != std::string::npos) good = good && parse_integer(text.substr(colon + 1), &port);
  if (!good || host.empty() || port < 1 || port > 65535) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "\"%s\" is no address: host:port, or the path of a socket",
                         text.c_str());
  }
  *address = {host, static_cast<int>(port)};
  return Status();
}

Status options_of(const kvc_redis_config& config, Options* options) {
  if (config.struct_size != sizeof config) {
    return Status::error(KVC_ERROR_STRUCT_SIZE, "config.struct_size is %u, not %zu", config.struct_size, sizeof config);
  }
  constexpr uint32_t kFlags = KVC_REDIS_LAZY | KVC_REDIS_TLS | KVC_REDIS_TLS_NO_VERIFY;
  if ((config.flags & ~kFlags) != 0 || config.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x or reserved 0x%x has unknown bits", config.flags,
                         config.reserved);
  }
  KVC_TRY(parse_addresses(config.address != nullptr ? config.address : "127.0.0.1", &options->addresses));
  const struct {
    const char* text;
    std::string* field;
  } texts[] = {{config.user, &options->user},
               {config.password, &options->password},
               {config.prefix, &options->prefix},
               {config.tls_ca_file, &options->tls.ca_file},
               {config.tls_certificate_file, &options->tls.certificate_file},
               {config.tls_key_file, &options->tls.key_file},
               {config.tls_server_name, &options->tls.server_name}};
  for (const auto& [text, field] : texts) {
    if (text != nullptr) *field = text;
  }
  options->database = config.database;
  if (config.timeout_ms != 0) options->timeout_ms = config.timeout_ms;
  options->time_to_live_ms = config.time_to_live_ms;
  if (config.lookup_ms != 0) options->lookup_ms = config.lookup_ms;
  if (config.threads != 0) options->threads = config.threads;
  if (config.max_items != 0) options->max_items = config.max_items;
  options->lazy = (config.flags & KVC_REDIS_LAZY) != 0;
  options->tls.on = (config.flags & KVC_REDIS_TLS) != 0;
  options->tls.verify = (config.flags & KVC_REDIS_TLS_NO_VERIFY) == 0;
  return check(*options);
}

Status options_of_url(const std::string& url, Options* options) {
  const bool is_unix = url.starts_with("unix://");
  options->tls.on = url.starts_with("rediss://");
  if (!is_unix && !options->tls.on && !url.starts_with("redis://")) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "\"%s\" does not begin with redis://, rediss:// or unix://",
                         url.c_str());
  }
  const size_t question = std::min(url.find('?'), url.size());
  const size_t scheme_bytes = url.find("//") + 2;
  std::string rest = url.substr(scheme_bytes, question - scheme_bytes);
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    KVC_TRY(parse_user(rest.substr(0, at), options));
    rest.erase(0, at + 1);
  }
  const size_t slash = is_unix ? std::string::npos : rest.find('/');
  if (slash != std::string::npos && slash + 1 < rest.size()) {
    KVC_TRY(set_parameter("database", rest.substr(slash + 1), options));
  }
  KVC_TRY(parse_addresses(rest.substr(0, slash), &options->addresses));
  if (question < url.size()) KVC_TRY(parse_parameters(url.substr(question + 1), options));
  return check(*options);
}

}  // namespace kvc::redis
