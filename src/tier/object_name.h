// Names of object files: <folder>/<key in hex>.<bytes of the payload in hex>.
//
// The size is in the name, because the length of a file is a multiple of 4096. So a listing gives it without reading.
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tier/object_frame.h"

namespace kvc {

// "ab"
std::string folder_name(int folder);
// "ab/ab12...ef.10000"
std::string object_name(const kvc_tier_key& key, int64_t payload_bytes);
// Reads the name of a file in a folder. False if no object has this name there.
bool parse_object_name(int folder, const char* name, kvc_tier_key* key, int64_t* payload_bytes) noexcept;

}  // namespace kvc
