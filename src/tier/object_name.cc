#include "tier/object_name.h"

#include <cstring>

namespace kvc {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

// Returns the value of a hexadecimal digit, or -1. Capital letters are refused, so that each object has only one name.
int digit_value(char digit) noexcept {
  const char* at = digit ? std::strchr(kDigits, digit) : nullptr;
  return at ? static_cast<int>(at - kDigits) : -1;
}

void append_byte(std::string* text, int byte) {
  *text += kDigits[byte >> 4];
  *text += kDigits[byte & 15];
}

}  // namespace

std::string folder_name(int folder) {
  std::string name;
  append_byte(&name, folder);
  return name;
}

std::string object_name(const kvc_tier_key& key, int64_t payload_bytes) {
  std::string name = folder_name(key.bytes[0]);
  name.reserve(90);
  name += '/';
  for (const uint8_t byte : key.bytes) append_byte(&name, byte);
  name += '.';
  int shift = 0;
  while (payload_bytes >> shift >= 16) shift += 4;
  for (; shift >= 0; shift -= 4) name += kDigits[payload_bytes >> shift & 15];
  return name;
}

bool parse_object_name(int folder, const char* name, kvc_tier_key* key, int64_t* payload_bytes) noexcept {
  for (uint8_t& byte : key->bytes) {
    const int high = digit_value(name[0]);
    const int low = high < 0 ? -1 : digit_value(name[1]);
    if (low < 0) return false;
    byte = static_cast<uint8_t>(high * 16 + low);
    name += 2;
  }
  if (key->bytes[0] != folder || name[0] != '.' || name[1] == 0) return false;
  if (name[1] == '0' && name[2] != 0) return false;  // without leading zeros, each size has one name
  int64_t bytes = 0;
  for (++name; *name; ++name) {
    const int digit = digit_value(*name);
    if (digit < 0) return false;
    bytes = bytes * 16 + digit;
    if (bytes > kMaxFramePayloadBytes) return false;
  }
  *payload_bytes = bytes;
  return true;
}

}  // namespace kvc
