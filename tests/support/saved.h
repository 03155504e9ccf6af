// Saved sequences as bytes in memory.
#pragma once

#include <string>
#include <string_view>

#include "kvcache.h"

namespace kvt {

inline kvc_status save_to(kvc_cache *cache, kvc_seq seq, std::string *bytes, kvc_error *error) {
  kvc_save_args args;
  kvc_save_args_init(&args);
  args.write = [](void *user, const void *data, int64_t count) -> int32_t {
    static_cast<std::string *>(user)->append(static_cast<const char *>(data), static_cast<size_t>(count));
    return 0;
  };
  args.write_user = bytes;
  return kvc_seq_save(cache, seq, &args, nullptr, error);
}

// Returns no bytes after a failure.
inline std::string saved(kvc_cache *cache, kvc_seq seq) {
  std::string bytes;
  return save_to(cache, seq, &bytes, nullptr) == KVC_OK ? bytes : std::string();
}

inline kvc_status load_from(kvc_cache *cache, std::string_view bytes, kvc_seq *seq, kvc_error *error) {
  kvc_load_args args;
  kvc_load_args_init(&args);
  args.read = [](void *user, void *data, int64_t most) -> int64_t {
    auto &left = *static_cast<std::string_view *>(user);
    const size_t count = left.copy(static_cast<char *>(data), static_cast<size_t>(most));
    left.remove_prefix(count);
    return static_cast<int64_t>(count);
  };
  args.read_user = &bytes;
  return kvc_seq_load(cache, &args, nullptr, seq, nullptr, error);
}

}  // namespace kvt
