#include "api/key_inputs.h"

#include "base/limits.h"

namespace kvc::api {

Status check_range(int64_t value, const char* name, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %" PRId64 " is not in %" PRId64 "..%" PRId64, name, value, least,
                       most);
}

Status check_needed(int64_t size, const void* array, const char* name) {
  return size == 0 ? Status() : check_not_null(array, name);
}

Status read_media(const MediaArrays& args, std::vector<MediaSpan>* media) {
  KVC_TRY(check_range(args.num_media, "num_media", 0, kMaxLength));
  KVC_TRY(check_needed(args.num_media, args.begins, "media_begins"));
  KVC_TRY(check_needed(args.num_media, args.tokens, "media_tokens"));
  KVC_TRY(check_needed(args.num_media, args.hashes, "media_hashes"));
  int64_t end = 0;  // end of the previous span
  for (int64_t i = 0; i < args.num_media; ++i) {
    MediaSpan span = {.begin = read_once(args.begins + i), .tokens = read_once(args.tokens + i)};
    std::memcpy(span.hash.data(), args.hashes + i * kPageKeyBytes, span.hash.size());
    if (Status status = check_range(span.begin, "media_begins", end, 2 * kMaxLength); !status.ok())
      return std::move(status).at(i);
    if (Status status = check_range(span.tokens, "media_tokens", 1, kMaxLength); !status.ok())
      return std::move(status).at(i);
    end = span.begin + span.tokens;
    media->push_back(span);
  }
  return Status();
}

}  // namespace kvc::api
