// The table of cases, and the sizes that follow from each line of it.
// SPDX-License-Identifier: Apache-2.0
#include "attention/case.h"

namespace kvc::benchmark {
namespace {

constexpr Shape kMha = {32, 32, 128}, kGqa = {32, 8, 128}, kWide = {4, 1, 256};
constexpr Shape kGqaQuarter = {8, 2, 128};  // heads are independent, so with a quarter of them 8k tokens take seconds
constexpr Shape kMla16 = {16, 1, 576}, kMla128 = {128, 1, 576};
constexpr bool kCold = true, kWarm = false, kQuick = true, kFull = false;

constexpr Case decode(Type type, Shape shape, int32_t batch, int32_t context, bool cold, Target target,
                      bool quick = kFull, int32_t page_size = 16) {
  return {Work::kDecode, type, shape, batch, context, 1, page_size, 0, cold, quick, target};
}

constexpr Case prefill(Type type, Shape shape, int32_t new_tokens, int32_t old_tokens, double target,
                       bool quick = kFull) {
  return {Work::kPrefill,
          type,
          shape,
          1,
          old_tokens + new_tokens,
          new_tokens,
          16,
          0,
          kWarm,
          quick,
          {Limit::kOps, target, target}};
}

constexpr Target kOfStream = {Limit::kStream, 0.92, 0.92};
constexpr Target kOfPages = {Limit::kPages, 0.88, 0.88};
constexpr Target kHalf = {Limit::kFloor, 0.80, 0.80};
constexpr Target kByte = {Limit::kFloor, 0.75, 0.75};
constexpr Target kNibble = {Limit::kFloor, 0.60, 0.60};
constexpr Target kMiddle = {Limit::kStream, 0.80, 0.80};
constexpr Target kSmall = {Limit::kStream, 0.65, 0.65};
constexpr Target kOfCopy = {Limit::kCopy, 0.80, 0.80};

const std::vector<Case>& table() {
  using enum Type;
  static const std::vector<Case> kCases = {
      // At least 64 MiB of K and V.
      decode(kBf16, kMha, 1, 4096, kCold, kOfStream, kQuick),
      decode(kF16, kMha, 1, 4096, kCold, kOfStream),
      decode(kF32, kMha, 1, 4096, kCold, kOfStream),
      decode(kBf16, kGqa, 1, 16384, kCold, kOfPages, kQuick),
      decode(kBf16, kGqa, 8, 4096, kCold, kOfPages),
      decode(kF32, kGqa, 1, 16384, kCold, kOfPages, kQuick),
      decode(kF32, kGqa, 8, 4096, kCold, kOfPages),
      decode(kBf16, kWide, 1, 65536, kCold, kOfPages),
      decode(kBf16, kWide, 8, 8192, kCold, kOfPages, kQuick),
      decode(kF32, kWide, 1, 65536, kCold, kOfPages),
      decode(kF32, kWide, 8, 8192, kCold, kOfPages),
      decode(kF16, kGqa, 1, 16384, kCold, kHalf, kQuick),
      decode(kF16, kGqa, 8, 4096, kCold, kHalf),
      decode(kF16, kWide, 1, 65536, kCold, kHalf),
      decode(kF16, kWide, 8, 8192, kCold, kHalf),
      decode(kFp8, kGqa, 1, 32768, kCold, kByte, kQuick),
      decode(kFp8, kWide, 8, 16384, kCold, kByte),
      decode(kInt8, kGqa, 1, 32768, kCold, kByte),
      decode(kInt8, kWide, 8, 16384, kCold, kByte),
      decode(kUint4, kGqa, 1, 65536, kCold, kNibble, kQuick),
      decode(kUint4, kWide, 8, 32768, kCold, kNibble),
      decode(kFloat4, kGqa, 1, 65536, kCold, kNibble, kQuick),
      decode(kFloat4, kWide, 8, 32768, kCold, kNibble),
      // 8 to 64 MiB, then 1 to 8 MiB.
      decode(kBf16, kMha, 1, 1024, kWarm, kMiddle),
      decode(kBf16, kGqa, 1, 4096, kWarm, kMiddle),
      decode(kF32, kGqa, 1, 4096, kWarm, kMiddle),
      decode(kBf16, kWide, 8, 2048, kWarm, kMiddle),
      decode(kBf16, kMha, 1, 256, kWarm, kSmall),
      decode(kBf16, kGqa, 1, 1024, kWarm, kSmall, kQuick),
      decode(kF32, kGqa, 1, 512, kWarm, kSmall),
      decode(kBf16, kWide, 8, 512, kWarm, kSmall),
      decode(kFp8, kGqa, 1, 2048, kWarm, kByte),
      decode(kInt8, kGqa, 1, 2048, kWarm, kByte),
      decode(kUint4, kGqa, 1, 4096, kWarm, kNibble),
      decode(kFloat4, kGqa, 1, 4096, kWarm, kNibble),
      // Page size 1.
      decode(kBf16, kGqa, 1, 16384, kCold, {Limit::kStream, 0.60, 0.75}, kFull, 1),
      // A decode step of 8 short sequences.
      decode(kBf16, kGqa, 8, 128, kWarm, {Limit::kMicroseconds, 30, 30}, kQuick),
      // MLA absorbed; 16 sequences with one prefix.
      {Work::kMlaDecode, kBf16, kMla16, 1, 16384, 1, 16, 0, kCold, kFull, {Limit::kOps, 0.55, 0.55}},
      {Work::kMlaDecode, kBf16, kMla128, 1, 16384, 1, 16, 0, kCold, kFull, {Limit::kOps, 0.70, 0.70}},
      {Work::kSharedPrefix, kBf16, kGqa, 16, 8320, 1, 16, 8192, kCold, kFull, {Limit::kFloor, 0.60, 0.60}},
      // Prefill: new tokens, old tokens.
      prefill(kBf16, kGqa, 512, 0, 0.75, kQuick),
      prefill(kBf16, kGqa, 2048, 0, 0.85, kQuick),
      prefill(kBf16, kGqaQuarter, 8192, 0, 0.88),
      prefill(kBf16, kGqa, 256, 8192, 0.85),
      prefill(kBf16, kWide, 2048, 0, 0.85),
      prefill(kF32, kGqa, 512, 0, 0.74, kQuick),
      prefill(kF32, kGqa, 2048, 0, 0.84, kQuick),
      prefill(kF32, kGqaQuarter, 8192, 0, 0.84),
      prefill(kF32, kGqa, 256, 8192, 0.84),
      prefill(kF16, kGqa, 512, 0, 0.65),
      prefill(kF16, kGqa, 2048, 0, 0.78, kQuick),
      prefill(kF16, kGqaQuarter, 8192, 0, 0.78),
      prefill(kF16, kGqa, 256, 8192, 0.78),
      // What only moves bytes, at least 16 MiB of them.
      {Work::kAppend, kBf16, kGqa, 1, 4096, 4096, 16, 0, kCold, kQuick, kOfCopy},
      {Work::kAppend, kF32, kGqa, 1, 4096, 4096, 16, 0, kCold, kFull, kOfCopy},
      {Work::kAppend, kFp8, kGqa, 1, 4096, 4096, 16, 0, kCold, kFull, kOfCopy},
      {Work::kAppend, kInt8, kGqa, 1, 4096, 4096, 16, 0, kCold, kFull, kOfCopy},
      {Work::kAppend, kUint4, kGqa, 1, 4096, 4096, 16, 0, kCold, kFull, kOfCopy},
      {Work::kAppend, kFloat4, kGqa, 1, 4096, 4096, 16, 0, kCold, kFull, kOfCopy},
      {Work::kPageCopy, kBf16, kGqa, 288, 15, 0, 16, 0, kCold, kQuick, kOfCopy},
      {Work::kCompaction, kBf16, kGqa, 8, 1040, 1024, 16, 0, kCold, kFull, kOfCopy},
  };
  return kCases;
}

std::string tokens(int32_t n) {
  return n >= 1024 && n % 1024 == 0 ? std::to_string(n / 1024) + "k" : std::to_string(n);
}

}  // namespace

const std::vector<Case>& cases() { return table(); }

std::string Case::name() const {
  std::string text = work_name(work);
  const auto add = [&text](const char* before, const std::string& what) {
    text += before;
    text += what;
  };
  add(" ", std::to_string(shape.q_heads));
  add("/", std::to_string(shape.kv_heads));
  add(" D", std::to_string(shape.head_dim));
  add(" ", type_name(type));
  if (work == Work::kPrefill || work == Work::kAppend) {
    add(" ", tokens(new_tokens));
    if (context > new_tokens) add(" over ", tokens(context - new_tokens));
  } else if (work == Work::kCompaction) {
    add(" b", std::to_string(batch));
    add(" ", tokens(new_tokens / 2) + " of " + tokens(new_tokens));
  } else {
    add(" b", std::to_string(batch));
    add(" ", tokens(context));
  }
  if (shared > 0) add(" shared ", tokens(shared));
  if (page_size != 16) add(" page ", std::to_string(page_size));
  return text;
}

int64_t Case::token_bytes() const {
  const int64_t elements = work == Work::kMlaDecode ? shape.head_dim : int64_t{2} * shape.kv_heads * shape.head_dim;
  return elements * type_bits(type) / 8 + (type == Type::kFloat4 ? elements / 16 : 0);  // with the scales of blocks
}

int64_t Case::kv_bytes() const {
  const int64_t own = work == Work::kAppend       ? new_tokens
                      : work == Work::kCompaction ? new_tokens / 2
                                                  : context - shared;
  return (shared + batch * own) * token_bytes();
}

Type Case::source_type() const { return type == Type::kF32 || type == Type::kF16 ? type : Type::kBf16; }

int64_t Case::copied_bytes() const {
  if (work != Work::kAppend) return kv_bytes();
  const int64_t elements = int64_t{2} * new_tokens * shape.kv_heads * shape.head_dim;
  return (elements * type_bits(source_type()) / 8 + kv_bytes()) / 2;
}

double Case::operations() const {
  if (work == Work::kAppend || work == Work::kPageCopy || work == Work::kCompaction) return 0;
  double pairs = static_cast<double>(batch) * context;
  if (work == Work::kPrefill) {
    const double old_tokens = context - new_tokens;
    pairs = new_tokens * old_tokens + new_tokens * (new_tokens + 1.0) / 2;
  }
  return pairs * shape.q_heads * 2 * (shape.head_dim + value_dims());  // q.k and p.v
}

const char* type_name(Type type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "fp8", "int8", "uint4", "float4"};
  return kNames[static_cast<int>(type)];
}

int64_t type_bits(Type type) {
  constexpr int64_t kBits[] = {32, 16, 16, 8, 8, 4, 4};
  return kBits[static_cast<int>(type)];
}

const char* limit_name(Limit limit) {
  constexpr const char* kNames[] = {"stream", "pages", "ops", "limit", "memcpy", "us"};
  return kNames[static_cast<int>(limit)];
}

const char* work_name(Work work) {
  constexpr const char* kNames[] = {"decode", "shared-prefix", "prefill", "append", "page-copy", "mla", "compaction"};
  return kNames[static_cast<int>(work)];
}

}  // namespace kvc::benchmark
