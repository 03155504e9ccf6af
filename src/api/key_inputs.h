// Checks and copies the inputs that kvc_page_keys_args and kvc_prefix_query share: texts of bytes, and media spans.
#pragma once

#include <vector>

#include "api/boundary.h"
#include "keys/page_key.h"

namespace kvc::api {

// The largest size of an adapter or a salt, in bytes.
inline constexpr int64_t kMaxText = int64_t{1} << 20;

Status check_range(int64_t value, const char* name, int64_t least, int64_t most);
// Checks that `array` is not NULL if it must have elements.
Status check_needed(int64_t size, const void* array, const char* name);

// The media fields of a struct of the caller.
struct MediaArrays {
  template <class Args>
  explicit MediaArrays(const Args& args)
      : num_media(args.num_media), begins(args.media_begins), tokens(args.media_tokens), hashes(args.media_hashes) {}
  int64_t num_media;
  const int64_t* begins;
  const int64_t* tokens;
  const uint8_t* hashes;
};
// Copies the media spans, because another thread may change the caller's arrays.
Status read_media(const MediaArrays& args, std::vector<MediaSpan>* media);

}  // namespace kvc::api
