// Section 13 of the header: page keys.
#include "api/key_inputs.h"
#include "base/limits.h"

using namespace kvc;
using namespace kvc::api;

namespace {

constexpr int64_t kMaxPageSize = int64_t{1} << 20;  // in tokens

Status check_place(const kvc_page_keys_args& args) {
  KVC_TRY(check_range(args.num_tokens, "num_tokens", 0, kMaxLength));
  KVC_TRY(check_range(args.page_size, "page_size", 1, kMaxPageSize));
  KVC_TRY(check_range(args.begin, "begin", 0, kMaxLength));
  KVC_TRY(check_range(args.salt_begin, "salt_begin", 0, INT64_MAX));
  if (args.begin % args.page_size != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "begin %" PRId64 " is no multiple of page_size %" PRId64,
                         args.begin, args.page_size);
  }
  if (args.begin > 0 && args.parent == nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "begin %" PRId64 " needs parent, the key of the page before it",
                         args.begin);
  }
  return Status();
}

}  // namespace

kvc_status kvc_page_keys(const kvc_page_keys_args* args, uint8_t* keys, kvc_error* error) {
  return call("kvc_page_keys", error, [&]() -> Status {
    kvc_page_keys_args known;
    KVC_TRY(read_struct(args, "args", &known));
    if (known.reserved != 0) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    KVC_TRY(check_place(known));
    KVC_TRY(check_needed(known.num_tokens, known.tokens, "tokens"));
    KVC_TRY(check_range(known.adapter_bytes, "adapter_bytes", 0, kMaxText));
    KVC_TRY(check_needed(known.adapter_bytes, known.adapter, "adapter"));
    KVC_TRY(check_range(known.salt_bytes, "salt_bytes", 0, kMaxText));
    KVC_TRY(check_needed(known.salt_bytes, known.salt, "salt"));
    if (known.parent == nullptr) KVC_TRY(check_not_null(known.fingerprint, "fingerprint"));
    std::vector<MediaSpan> media;
    KVC_TRY(read_media(MediaArrays(known), &media));
    KVC_TRY(check_needed(known.num_tokens / known.page_size, keys, "keys"));

    KeyedTokens in = {.adapter = span_of(known.adapter, known.adapter_bytes),
                      .salt = span_of(known.salt, known.salt_bytes),
                      .salt_begin = known.salt_begin,
                      .parent = known.parent,
                      .begin = known.begin,
                      .page_size = known.page_size,
                      .tokens = span_of(known.tokens, known.num_tokens),
                      .media = media};
    if (known.parent == nullptr) std::memcpy(in.fingerprint.data(), known.fingerprint, in.fingerprint.size());
    page_keys(in, keys);
    return Status();
  });
}
