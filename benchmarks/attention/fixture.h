// A cache of one layer with its pages in shuffled order, filled with random K and V, through the C API alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/case.h"
#include "kvcache.h"

namespace kvc::benchmark {

// The library refuses the case. The case is printed as `not supported`, and never counts as passed.
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A dense tensor [rows, heads, dims], which owns random numbers of mean 0 and variance 1.
class Tensor {
 public:
  Tensor(Type type, int64_t rows, int64_t heads, int64_t dims, uint32_t seed);
  // A tensor of this shape over memory that the caller owns.
  Tensor(Type type, int64_t rows, int64_t heads, int64_t dims, void* data);
  const DLTensor* rows(int64_t n);  // its first n rows

 private:
  std::vector<char> data_;
  int64_t shape_[3];
  DLTensor tensor_;
};

struct Options {
  int threads = 1;
  std::string simd;    // empty: the best
  uint32_t flags = 0;  // KVC_CACHE_*
};

class Fixture {
 public:
  // A cache of `pages` pages and `sequences` sequences, which takes `batch_tokens` tokens in a step. Shuffling the
  // pages needs as many sequences as pages.
  Fixture(const Case& work, const Options& options, int64_t pages, int64_t sequences, int32_t batch_tokens);
  ~Fixture();
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  std::vector<kvc_seq> add(int64_t n);
  void remove(const std::vector<kvc_seq>& sequences);
  std::vector<kvc_seq> fork(const std::vector<kvc_seq>& parents);      // at their ends
  void append(const std::vector<kvc_seq>& sequences, int32_t tokens);  // with random K and V
  // The same tree to each.
  void append_nodes(const std::vector<kvc_seq>& sequences, const std::vector<int32_t>& parents);
  void commit(const std::vector<kvc_seq>& sequences, int32_t leaf);
  void truncate(const std::vector<kvc_seq>& sequences, int64_t length);
  // parents: of the tree of each sequence, nullable.
  kvc_forward begin(const std::vector<kvc_seq>& sequences, int32_t tokens, const int32_t* parents = nullptr);
  void attend(kvc_forward forward, int64_t rows);
  void end(kvc_forward forward);
  void abort(kvc_forward forward);
  std::vector<int32_t> pages(kvc_seq sequence) const;

  kvc_cache* cache() const { return cache_; }
  const char* pool() const;
  size_t page_bytes() const { return static_cast<size_t>(work_.token_bytes() * work_.page_size); }

 private:
  bool latent() const { return work_.work == Work::kMlaDecode; }
  void shuffle_pages(int64_t pages);
  void append_step(const std::vector<kvc_seq>& sequences, int32_t tokens, const int32_t* parents);
  void check(kvc_status status) const;  // throws the message of `error_`

  const Case work_;
  const int32_t batch_tokens_;
  Tensor q_, k_, v_, out_;
  mutable kvc_error error_ = KVC_ERROR_INIT;
  kvc_context* context_ = nullptr;
  kvc_cache* cache_ = nullptr;
  DLManagedTensorVersioned* view_ = nullptr;
};

// The dtype of the q, k and v that a call gets, where K and V are stored in `type`.
Type input_type(Type type);

}  // namespace kvc::benchmark
