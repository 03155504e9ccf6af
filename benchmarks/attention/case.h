// Case: what is measured, and what its time is compared with. Each line of the table in case.cc is one case.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvc::benchmark {

enum class Work {
  kDecode,        // one new token a sequence; timed: attend with the new k and v
  kSharedPrefix,  // the same, where all sequences are forks of one prefix of `shared` tokens
  kPrefill,       // `new_tokens` after `context - new_tokens` old ones; timed: attend with the new k and v
  kAppend,        // `new_tokens` stored; timed: append
  kPageCopy,      // `batch` forks inside a page; timed: fork
  kMlaDecode,     // decode in latent space: one row a token, of which kLatentDims are V
  kCompaction,    // trees of `new_tokens` nodes, of which the second half is a path; timed: the commit that keeps it
};

enum class Type { kF32, kF16, kBf16, kFp8, kInt8, kUint4, kFloat4 };

// What a time is compared with. The lower bound of a case is the larger of pages and ops.
enum class Limit {
  kStream,        // a plain read of as many bytes
  kPages,         // a plain read of the same pages in the same order
  kOps,           // the operations at the peak of the best instruction
  kFloor,         // the larger of kPages and kOps
  kCopy,          // memcpy of the same bytes
  kMicroseconds,  // `one` is an absolute time
};

struct Target {
  Limit limit;
  double one;   // with one thread: the limit's time / our time. kMicroseconds: the longest time allowed
  double many;  // with more threads, likewise
};

constexpr int32_t kLatentDims = 512;

struct Shape {
  int32_t q_heads, kv_heads, head_dim;
};

struct Case {
  Work work;
  Type type;  // stored K and V
  Shape shape;
  int32_t batch;
  int32_t context;     // tokens a sequence, the new ones included
  int32_t new_tokens;  // of each sequence
  int32_t page_size;
  int32_t shared;  // leading tokens that the batch shares
  bool cold;       // each run reads another copy of the sequences, of more than 256 MiB in all
  bool quick;      // part of --quick
  Target target;

  std::string name() const;
  int64_t token_bytes() const;   // K and V of one token
  int64_t kv_bytes() const;      // of K and V that the work must read, or write (append, copies); each byte once
  Type source_type() const;      // of the rows that an append gets
  int64_t copied_bytes() const;  // half of the bytes that a call reads or writes, if it only moves bytes
  double operations() const;     // two for each multiply-add; 0 if the case only moves bytes
  int32_t value_dims() const { return work == Work::kMlaDecode ? kLatentDims : shape.head_dim; }
};

const std::vector<Case>& cases();

const char* type_name(Type type);
int64_t type_bits(Type type);
const char* limit_name(Limit limit);
const char* work_name(Work work);

}  // namespace kvc::benchmark
