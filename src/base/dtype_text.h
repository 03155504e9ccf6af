// DtypeText: the name of an element type for messages, such as "float32" or "int64". A type without a name becomes
// "{code 9, bits 7, lanes 2}".
#pragma once

#include <cstdio>

#include "kvcache.h"

namespace kvc {

struct DtypeText {
  char text[40];

  explicit DtypeText(DLDataType t) noexcept {
    const char* kind = t.code == kDLFloat                 ? "float"
                       : t.code == kDLInt                 ? "int"
                       : t.code == kDLUInt                ? "uint"
                       : t.code == kDLBfloat              ? "bfloat"
                       : t.code == kDLComplex             ? "complex"
                       : t.code == kDLBool && t.bits == 8 ? "bool"
                       : t.code == kDLFloat8_e4m3fn       ? "float8_e4m3fn"
                       : t.code == kDLFloat8_e5m2         ? "float8_e5m2"
                       : t.code == kDLFloat4_e2m1fn       ? "float4_e2m1fn"
                                                          : nullptr;
    if (kind == nullptr || t.lanes != 1) {
      std::snprintf(text, sizeof text, "{code %d, bits %d, lanes %d}", t.code, t.bits, t.lanes);
    } else if (t.code <= kDLBfloat || t.code == kDLComplex) {
      std::snprintf(text, sizeof text, "%s%d", kind, t.bits);
    } else {
      std::snprintf(text, sizeof text, "%s", kind);
    }
  }
  const char* c_str() const noexcept { return text; }
};

}  // namespace kvc
