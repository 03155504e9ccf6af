// The layout manifest: what the stored rows of a cache mean, as canonical text. Two caches with equal manifests store
// equal bytes for equal tokens of one model, wherever their pools lie. docs/reference/format.md has the grammar.
//
//   kvcache layout 1
//   group 0: kv, window 512
//   layers 0-4: float16, 4 heads, k 256, v 256, rope append 0+256 halves theta 10000
//
// The manifest of a page object has the lines of one group, and the page size. Pure functions; any thread. They throw
// std::bad_alloc.
#pragma once

#include <string>

#include "layer/geometry.h"

namespace kvc {

// group: -1 = all groups. page_size: tokens of a page, 0 = the bytes do not depend on it.
std::string layout_manifest(const Geometry& geometry, int32_t group, int64_t page_size);

// The manifest of all groups with the kv heads of all ranks. It is equal in caches of other ranks, and of another
// tp_size. One case is an exception: if the constant scales of a layer differ between heads, the text names the rank.
std::string layout_manifest_of_all_ranks(const Geometry& geometry);

// Returns how a layer rotates keys: "none", or a text such as "append 0+256 halves theta 10000", which ends in a digest
// of the scaling if there is one.
std::string rope_text(const kvc_layer_config& config, int32_t rope_dim);

// The first line in which two manifests differ, as each of them has it. The line is "(nothing)" for a manifest that has
// ended.
struct ManifestDifference {
  std::string a, b;
};
ManifestDifference first_difference(const std::string& a, const std::string& b);

// How messages name the other side: a file, or another cache.
struct OtherSide {
  const char *name, *title;  // "file", "File"
};
// Fails with LAYOUT if the other side has another layout or model. The message has both values. own: the manifest of
// the cache.
Status check_same_model(OtherSide other, const PageKey& fingerprint, const std::string& manifest,
                        const Geometry& geometry, const std::string& own);

}  // namespace kvc
