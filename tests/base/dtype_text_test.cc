#include "base/dtype_text.h"

#include <gtest/gtest.h>

#include <string>

namespace kvc {
namespace {

std::string text(uint8_t code, uint8_t bits, uint16_t lanes = 1) { return DtypeText({code, bits, lanes}).c_str(); }

TEST(DtypeText, Names) {
  EXPECT_EQ(text(kDLFloat, 32), "float32");
  EXPECT_EQ(text(kDLFloat, 64), "float64");
  EXPECT_EQ(text(kDLBfloat, 16), "bfloat16");
  EXPECT_EQ(text(kDLInt, 8), "int8");
  EXPECT_EQ(text(kDLUInt, 16), "uint16");
  EXPECT_EQ(text(kDLBool, 8), "bool");
  EXPECT_EQ(text(kDLFloat8_e4m3fn, 8), "float8_e4m3fn");
  EXPECT_EQ(text(kDLFloat8_e5m2, 8), "float8_e5m2");
}

TEST(DtypeText, NumbersWithoutOne) {
  EXPECT_EQ(text(kDLFloat, 32, 4), "{code 2, bits 32, lanes 4}");
  EXPECT_EQ(text(255, 255, 65535), "{code 255, bits 255, lanes 65535}");
}

}  // namespace
}  // namespace kvc
