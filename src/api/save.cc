// Section 15 of the header: saved sequences.
#include <bit>

#include "api/boundary.h"
#include "save/byte_streams.h"

using namespace kvc;
using namespace kvc::api;

namespace {

// Checks that `flags` is 0, and that exactly one of a path and a callback is given.
Status check_place(const char* path, bool callback, const char* name, uint32_t flags) {
  if (flags != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  if ((path != nullptr) != callback) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "path and %s are %s given", name,
                       callback ? "both" : "neither of them");
}

Status read_save_args(const kvc_save_args* args, kvc_save_args* out) {
  KVC_TRY(read_struct(args, "args", out));
  KVC_TRY(check_place(out->path, out->write != nullptr, "write", out->flags));
  if (out->num_tokens < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_tokens %" PRId64 " is negative", out->num_tokens);
  }
  if (out->num_tokens > 0) KVC_TRY(check_not_null(out->tokens, "tokens"));
  if (out->section_bytes == 0) out->section_bytes = kDefaultSectionBytes;
  if (out->section_bytes >= kMinSectionBytes && out->section_bytes <= kMaxSectionBytes &&
      std::has_single_bit(static_cast<uint64_t>(out->section_bytes))) {
    return Status();
  }
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "section_bytes %" PRId64 " is no power of two in %" PRId64 "..%" PRId64,
                       out->section_bytes, kMinSectionBytes, kMaxSectionBytes);
}

}  // namespace

kvc_status kvc_seq_save(kvc_cache* cache, kvc_seq sequence, const kvc_save_args* args, void* stream, kvc_error* error) {
  return cache_call("kvc_seq_save", cache, error, [&](Cache& c) -> Status {
    kvc_save_args known;
    KVC_TRY(read_save_args(args, &known));
    if (known.num_tokens > 0) {  // checked before the array is read: a wrong number may exceed its size
      int64_t length = 0;
      KVC_TRY(c.sequences.lengths({&sequence, 1}, {&length, 1}));
      KVC_TRY(CacheSave::check_token_count(known.num_tokens, length));
    }
    const CallArray tokens(known.num_tokens > 0 ? known.tokens : nullptr, known.num_tokens);
    if (known.path == nullptr) {
      CallbackSink sink(known.write, known.write_user);
      return c.save.save(sequence, tokens.span(), known.section_bytes, &sink, stream);
    }
    FileSink sink;
    KVC_TRY(sink.open(known.path));
    KVC_TRY(c.save.save(sequence, tokens.span(), known.section_bytes, &sink, stream));
    return sink.commit();
  });
}

kvc_status kvc_seq_load(kvc_cache* cache, const kvc_load_args* args, void* stream, kvc_seq* sequence,
                        int64_t* num_tokens, kvc_error* error) {
  return cache_call("kvc_seq_load", cache, error, [&](Cache& c) -> Status {
    kvc_load_args known;
    KVC_TRY(read_struct(args, "args", &known));
    KVC_TRY(check_place(known.path, known.read != nullptr, "read", known.flags));
    KVC_TRY(check_buffer(known.tokens, known.capacity, "tokens"));
    KVC_TRY(check_not_null(sequence, "sequence"));
    const std::span<int32_t> tokens = span_of(known.tokens, known.capacity);
    int64_t count = 0;
    kvc_seq loaded = 0;
    Status status;
    if (known.path == nullptr) {
      CallbackSource source(known.read, known.read_user);
      status = c.save.load(&source, tokens, &count, stream, &loaded);
    } else {
      FileSource source;
      KVC_TRY(source.open(known.path));
      status = c.save.load(&source, tokens, &count, stream, &loaded);
    }
    if (num_tokens != nullptr && (status.ok() || status.code() == KVC_ERROR_BUFFER_TOO_SMALL)) *num_tokens = count;
    if (status.ok()) *sequence = loaded;
    return status;
  });
}
