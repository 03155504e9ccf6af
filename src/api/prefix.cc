// Section 12 of the header: the prefix index. Also kvc_prefix_load of section 16.
#include "api/key_inputs.h"
#include "base/limits.h"

using namespace kvc;
using namespace kvc::api;

namespace {

// Checks and copies the adapter and the media of a query. Gives no context if it has neither.
Status read_context(const kvc_prefix_query& query, ContextRef* context) {
  KVC_TRY(check_range(query.adapter_bytes, "adapter_bytes", 0, kMaxText));
  KVC_TRY(check_needed(query.adapter_bytes, query.adapter, "adapter"));
  std::vector<MediaSpan> media;
  KVC_TRY(read_media(MediaArrays(query), &media));
  if (query.adapter_bytes == 0 && media.empty()) return Status();
  const std::span<const uint8_t> adapter = span_of(query.adapter, query.adapter_bytes);
  *context = ContextRef(new PrefixContext({adapter.begin(), adapter.end()}, std::move(media)));
  return Status();
}

// The part of a call that has a query. `call` points to what it needs beside these arguments.
using QueryBody = Status (*)(const void* call, Cache& c, const PrefixQuery& query);

// Calls body with a query that was checked, and whose arrays were copied.
kvc_status call_with_query(const char* function, kvc_cache* cache, const kvc_prefix_query* query, kvc_error* error,
                           QueryBody body, const void* call) {
  return cache_call(function, cache, error, [&](Cache& c) -> Status {
    kvc_prefix_query known;
    KVC_TRY(read_struct(query, "query", &known));
    if ((known.flags & ~uint32_t{KVC_PREFIX_ALLOW_ALL}) != 0) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", known.flags);
    }
    if (known.num_tokens < 0 || known.num_tokens > kMaxLength) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "num_tokens %" PRId64 " is outside 0..%" PRId64, known.num_tokens,
                           kMaxLength);
    }
    if (known.salt_begin < 0) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "salt_begin %" PRId64 " is negative", known.salt_begin);
    }
    KVC_TRY(check_array(known.num_tokens, known.tokens, "tokens"));
    ContextRef context;
    KVC_TRY(read_context(known, &context));
    const CallArray tokens(known.num_tokens > 0 ? known.tokens : nullptr, known.num_tokens);
    return body(
        call, c,
        {{tokens.span(), known.salt, known.salt_begin, context.get()}, (known.flags & KVC_PREFIX_ALLOW_ALL) != 0});
  });
}

// Calls body(cache, query). The code that reads the query exists once, and not for each function.
template <class Body>
kvc_status query_call(const char* function, kvc_cache* cache, const kvc_prefix_query* query, kvc_error* error,
                      const Body& body) {
  const QueryBody call = [](const void* of, Cache& c, const PrefixQuery& known) -> Status {
    return (*static_cast<const Body*>(of))(c, known);
  };
  return call_with_query(function, cache, query, error, call, &body);
}

// Calls body(&value), and writes the value to a nullable struct of the caller.
template <class T, class Body>
Status write_result(T* out, const char* name, void (*init)(T*), Body body) {
  if (out != nullptr) KVC_TRY(check_struct_size(out, name));
  T value;
  init(&value);
  KVC_TRY(body(&value));
  if (out != nullptr) write_struct(value, out);
  return Status();
}

template <class Body>
Status write_pages(int64_t* pages, Body body) {
  int64_t value = 0;
  KVC_TRY(body(&value));
  if (pages != nullptr) *pages = value;
  return Status();
}

}  // namespace

kvc_status kvc_prefix_match(kvc_cache* cache, const kvc_prefix_query* query, kvc_prefix_hit* hit, kvc_error* error) {
  return query_call("kvc_prefix_match", cache, query, error, [&](Cache& c, const PrefixQuery& known) -> Status {
    KVC_TRY(check_not_null(hit, "hit"));
    return write_result(hit, "hit", kvc_prefix_hit_init,
                        [&](kvc_prefix_hit* out) { return c.prefix.match(known, out); });
  });
}

kvc_status kvc_prefix_attach(kvc_cache* cache, const kvc_prefix_query* query, void* stream, kvc_prefix_hit* hit,
                             kvc_seq* sequence, kvc_error* error) {
  return query_call("kvc_prefix_attach", cache, query, error, [&](Cache& c, const PrefixQuery& known) -> Status {
    KVC_TRY(check_not_null(sequence, "sequence"));
    return write_result(hit, "hit", kvc_prefix_hit_init,
                        [&](kvc_prefix_hit* out) { return c.prefix.attach(known, stream, out, sequence); });
  });
}

kvc_status kvc_prefix_load(kvc_cache* cache, const kvc_prefix_query* query, const kvc_prefix_load_options* options,
                           kvc_prefix_hit* hit, kvc_job* job, kvc_error* error) {
  return query_call("kvc_prefix_load", cache, query, error, [&](Cache& c, const PrefixQuery& known) -> Status {
    KVC_TRY(check_not_null(job, "job"));
    kvc_prefix_load_options how;
    kvc_prefix_load_options_init(&how);
    if (options != nullptr) KVC_TRY(read_struct(options, "options", &how));
    return write_result(hit, "hit", kvc_prefix_hit_init,
                        [&](kvc_prefix_hit* out) { return c.prefix.load(known, how, out, job); });
  });
}

kvc_status kvc_prefix_publish(kvc_cache* cache, kvc_seq sequence, const kvc_prefix_query* query,
                              const kvc_prefix_options* options, kvc_prefix_published* published, kvc_error* error) {
  return query_call("kvc_prefix_publish", cache, query, error, [&](Cache& c, const PrefixQuery& known) -> Status {
    kvc_prefix_options terms;
    kvc_prefix_options_init(&terms);
    if (options != nullptr) KVC_TRY(read_struct(options, "options", &terms));
    return write_result(published, "published", kvc_prefix_published_init,
                        [&](kvc_prefix_published* out) { return c.prefix.publish(sequence, known, terms, out); });
  });
}

kvc_status kvc_prefix_drop(kvc_cache* cache, const kvc_prefix_query* query, int64_t* pages, kvc_error* error) {
  return query_call("kvc_prefix_drop", cache, query, error, [&](Cache& c, const PrefixQuery& known) {
    return write_pages(pages, [&](int64_t* out) { return c.prefix.drop(known, out); });
  });
}

kvc_status kvc_prefix_drop_session(kvc_cache* cache, uint64_t session, int64_t* pages, kvc_error* error) {
  return cache_call("kvc_prefix_drop_session", cache, error, [&](Cache& c) {
    return write_pages(pages, [&](int64_t* out) { return c.prefix.drop_session(session, out); });
  });
}

kvc_status kvc_prefix_set_priority(kvc_cache* cache, const kvc_prefix_query* query, int32_t priority,
                                   int64_t time_to_live, kvc_error* error) {
  return query_call("kvc_prefix_set_priority", cache, query, error, [&](Cache& c, const PrefixQuery& known) {
    return c.prefix.set_priority(known, priority, time_to_live);
  });
}

kvc_status kvc_prefix_set_session_priority(kvc_cache* cache, uint64_t session, int32_t priority, int64_t time_to_live,
                                           kvc_error* error) {
  return cache_call("kvc_prefix_set_session_priority", cache, error,
                    [&](Cache& c) { return c.prefix.set_session_priority(session, priority, time_to_live); });
}

kvc_status kvc_prefix_pin(kvc_cache* cache, const kvc_prefix_query* query, kvc_prefix_hit* hit, uint64_t* pin,
                          kvc_error* error) {
  return query_call("kvc_prefix_pin", cache, query, error, [&](Cache& c, const PrefixQuery& known) -> Status {
    KVC_TRY(check_not_null(pin, "pin"));
    return write_result(hit, "hit", kvc_prefix_hit_init,
                        [&](kvc_prefix_hit* out) { return c.prefix.pin(known, out, pin); });
  });
}

kvc_status kvc_prefix_unpin(kvc_cache* cache, uint64_t pin, kvc_error* error) {
  return cache_call("kvc_prefix_unpin", cache, error, [&](Cache& c) { return c.prefix.unpin(pin); });
}

kvc_status kvc_cache_set_time(kvc_cache* cache, int64_t now, kvc_error* error) {
  return cache_call("kvc_cache_set_time", cache, error, [&](Cache& c) { return c.prefix.set_time(now); });
}
