// Binds kvc_page_keys. kvcache/_keys.py has the public function, with names and default values.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace kvcpy {

namespace nb = nanobind;

// Media spans, from an iterable of (position, tokens, hash of 32 bytes).
struct Media {
  std::vector<int64_t> begins, tokens;
  std::vector<uint8_t> hashes;

  // function: the name that errors begin with.
  Media(const char* function, nb::handle spans);
  // Args: kvc_page_keys_args or kvc_prefix_query. They point to this object.
  template <class Args>
  void write(Args* args) const {
    args->num_media = static_cast<int64_t>(begins.size());
    args->media_begins = begins.data();
    args->media_tokens = tokens.data();
    args->media_hashes = hashes.data();
  }
};

void bind_keys(nb::module_& module);

}  // namespace kvcpy
