// Names of object files: <folder>/<key in hex>.<bytes of the payload in hex>.
//
// The size of the payload is in the name, because the size of the file is rounded up to a multiple of 4096. So listing
// a folder gives all sizes without reading files.
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tier/object_frame.h"

namespace kvc {

// Example: "ab"
std::string folder_name(int folder);
// Example: "ab/ab12...ef.10000"
std::string object_name(const kvc_tier_key& key, int64_t payload_bytes);
// Parses the name of a file in a folder. Returns false if it is not the name of an object of this folder.
bool parse_object_name(int folder, const char* name, kvc_tier_key* key, int64_t* payload_bytes) noexcept;

}  // namespace kvc
