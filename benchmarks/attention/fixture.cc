// SPDX-License-Identifier: Apache-2.0
#include "attention/fixture.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace kvc::benchmark {
namespace {

DLDataType dl_type(Type type) {
  constexpr uint8_t kFloat8E4M3Fn = 10, kFloat4E2M1Fn = 17;  // DLPack's codes
  constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},   {kFloat8E4M3Fn, 8, 1},
                                   {kDLInt, 8, 1},    {kDLUInt, 4, 1},   {kFloat4E2M1Fn, 4, 1}};
  return kTypes[static_cast<int>(type)];
}

// No number here is subnormal, infinite or NaN, so truncating the mantissa is enough.
void write_number(Type type, float value, char* target) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == Type::kF32) {
    std::memcpy(target, &bits, 4);
    return;
  }
  const uint32_t exponent = (bits >> 23) & 0xff;
  uint32_t half = bits >> 16;
  if (type == Type::kF16) {
    half = exponent > 112 ? ((bits >> 16) & 0x8000) | ((exponent - 112) << 10) | ((bits >> 13) & 0x3ff) : 0;
  }
  const auto stored = static_cast<uint16_t>(half);
  std::memcpy(target, &stored, 2);
}

}  // namespace

Type input_type(Type type) { return type == Type::kF32 || type == Type::kF16 ? type : Type::kBf16; }

Tensor::Tensor(Type type, int64_t rows, int64_t heads, int64_t dims, void* data) : shape_{rows, heads, dims} {
  tensor_ = {};
  tensor_.data = data;
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = 3;
  tensor_.dtype = dl_type(type);
  tensor_.shape = shape_;
}

Tensor::Tensor(Type type, int64_t rows, int64_t heads, int64_t dims, uint32_t seed)
    : Tensor(type, rows, heads, dims, nullptr) {
  const auto bytes = static_cast<size_t>(type_bits(type) / 8), count = static_cast<size_t>(rows * heads * dims);
  data_.resize(count * bytes + 64);
  const uintptr_t address = reinterpret_cast<uintptr_t>(data_.data());
  char* aligned = data_.data() + ((address + 63) / 64 * 64 - address);
  tensor_.data = aligned;
  // The numbers repeat with a prime period, because drawing all of them would take longer than the measurement.
  std::mt19937 generator(seed);
  std::vector<float> numbers(std::min<size_t>(count, 65521));
  for (float& number : numbers) {
    float sum = -2.0f;  // of four uniform numbers: variance 1/3
    for (int n = 0; n < 4; ++n) sum += static_cast<float>(generator() >> 8) * 0x1p-24f;
    number = sum * 1.7320508f;
  }
  for (size_t i = 0; i < count; ++i) write_number(type, numbers[i % numbers.size()], aligned + i * bytes);
}

const DLTensor* Tensor::rows(int64_t n) {
  shape_[0] = n;
  return &tensor_;
}

Fixture::Fixture(const Case& work, const Options& options, int64_t pages, int64_t sequences, int32_t batch_tokens)
    : work_(work),
      batch_tokens_(batch_tokens),
      q_(input_type(work.type), std::max(work.new_tokens * work.batch, 1), work.shape.q_heads, work.shape.head_dim, 1),
      k_(input_type(work.type), batch_tokens, work.shape.kv_heads, work.shape.head_dim, 2),
      v_(input_type(work.type), batch_tokens, work.shape.kv_heads, work.shape.head_dim, 3),
      out_(input_type(work.type), std::max(work.new_tokens * work.batch, 1), work.shape.q_heads, work.value_dims(), 4) {
  kvc_context_config context_config;
  kvc_context_config_init(&context_config);
  context_config.num_threads = options.threads;
  context_config.simd = options.simd.empty() ? nullptr : options.simd.c_str();
  check(kvc_context_create(&context_config, &context_, &error_));
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = work.shape.q_heads;
  layer.num_kv_heads = work.shape.kv_heads;
  layer.head_dim = work.shape.head_dim;
  layer.dtype = dl_type(work.type);
  kvc_group_config group;
  kvc_group_config_init(&group);
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  if (latent()) {
    group.row = KVC_ROW_LATENT;
    layer.latent_dim = kLatentDims;
    layer.softmax_scale = 0.13523;
    config.groups = &group;
    config.num_groups = 1;
  }
  config.layers = &layer;
  config.num_layers = 1;
  config.flags = options.flags;
  config.page_size = work.page_size;
  config.max_sequences = static_cast<int32_t>(std::max(pages, sequences));
  config.max_batch_tokens = batch_tokens;
  config.capacity_pages = pages;
  if (work.work == Work::kCompaction) config.max_tree_nodes = work.new_tokens;
  try {
    const kvc_status status = kvc_cache_create(context_, &config, &cache_, &error_);
    if (status == KVC_ERROR_UNSUPPORTED || status == KVC_ERROR_DTYPE) throw NotSupported(error_.message);
    check(status);
    shuffle_pages(pages);
  } catch (...) {  // the destructor does not run
    kvc_cache_destroy(cache_);
    kvc_context_destroy(context_);
    throw;
  }
}

Fixture::~Fixture() {
  if (view_ != nullptr) view_->deleter(view_);
  kvc_cache_destroy(cache_);
  kvc_context_destroy(context_);
}

void Fixture::check(kvc_status status) const {
  if (status != KVC_OK) throw std::runtime_error(error_.message);
}

// Gives each page to a sequence of its own, and frees the sequences in random order. Pages that are freed last are
// given out first, so later sequences get pages in this random order.
void Fixture::shuffle_pages(int64_t pages) {
  std::vector<kvc_seq> all = add(pages);
  const int64_t rows = batch_tokens_ / work_.page_size;
  for (int64_t begin = 0; begin < pages; begin += rows) {
    append({all.begin() + begin, all.begin() + std::min(pages, begin + rows)}, work_.page_size);
  }
  std::shuffle(all.begin(), all.end(), std::mt19937(5));
  remove(all);
}

std::vector<kvc_seq> Fixture::add(int64_t n) {
  std::vector<kvc_seq> sequences(static_cast<size_t>(n));
  check(kvc_seq_add(cache_, n, sequences.data(), &error_));
  return sequences;
}

void Fixture::remove(const std::vector<kvc_seq>& sequences) {
  check(kvc_seq_remove(cache_, static_cast<int64_t>(sequences.size()), sequences.data(), &error_));
}

std::vector<kvc_seq> Fixture::fork(const std::vector<kvc_seq>& parents) {
  std::vector<kvc_seq> children(parents.size());
  const auto n = static_cast<int64_t>(parents.size());
  check(kvc_seq_fork(cache_, n, parents.data(), nullptr, children.data(), nullptr, &error_));
  return children;
}

void Fixture::append(const std::vector<kvc_seq>& sequences, int32_t tokens) {
  const int32_t step = static_cast<int32_t>(batch_tokens_ / static_cast<int32_t>(sequences.size()));
  for (int32_t done = 0; done < tokens; done += step) append_step(sequences, std::min(step, tokens - done), nullptr);
}

void Fixture::append_nodes(const std::vector<kvc_seq>& sequences, const std::vector<int32_t>& parents) {
  std::vector<int32_t> all;  // of the batch
  for (size_t i = 0; i < sequences.size(); ++i) all.insert(all.end(), parents.begin(), parents.end());
  append_step(sequences, static_cast<int32_t>(parents.size()), all.data());
}

void Fixture::append_step(const std::vector<kvc_seq>& sequences, int32_t tokens, const int32_t* parents) {
  const kvc_forward forward = begin(sequences, tokens, parents);
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.k = k_.rows(tokens * static_cast<int64_t>(sequences.size()));
  if (!latent()) args.v = v_.rows(tokens * static_cast<int64_t>(sequences.size()));
  check(kvc_forward_append(cache_, forward, 0, &args, &error_));
  end(forward);
}

void Fixture::commit(const std::vector<kvc_seq>& sequences, int32_t leaf) {
  const std::vector<int32_t> leaves(sequences.size(), leaf);
  const auto n = static_cast<int64_t>(sequences.size());
  check(kvc_seq_commit(cache_, n, sequences.data(), leaves.data(), nullptr, &error_));
}

void Fixture::truncate(const std::vector<kvc_seq>& sequences, int64_t length) {
  const std::vector<int64_t> lengths(sequences.size(), length);
  check(kvc_seq_truncate(cache_, static_cast<int64_t>(sequences.size()), sequences.data(), lengths.data(), &error_));
}

kvc_forward Fixture::begin(const std::vector<kvc_seq>& sequences, int32_t tokens, const int32_t* parents) {
  const std::vector<int32_t> lengths(sequences.size(), tokens);
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.tree_parents = parents;
  batch.sequences = sequences.data();
  batch.append_lengths = lengths.data();
  batch.num_sequences = static_cast<int32_t>(sequences.size());
  kvc_forward forward = 0;
  check(kvc_forward_begin(cache_, &batch, nullptr, &forward, &error_));
  return forward;
}

void Fixture::attend(kvc_forward forward, int64_t rows) {
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q_.rows(rows);
  args.k = k_.rows(rows);
  if (!latent()) args.v = v_.rows(rows);
  args.out = out_.rows(rows);
  check(kvc_forward_attend(cache_, forward, 0, &args, &error_));
}

void Fixture::end(kvc_forward forward) { check(kvc_forward_end(cache_, forward, &error_)); }

void Fixture::abort(kvc_forward forward) { check(kvc_forward_abort(cache_, forward, &error_)); }

std::vector<int32_t> Fixture::pages(kvc_seq sequence) const {
  int64_t count = 0;
  check(kvc_seq_pages(cache_, sequence, 0, nullptr, 0, &count, &error_));
  std::vector<int32_t> pages(static_cast<size_t>(count));
  check(kvc_seq_pages(cache_, sequence, 0, pages.data(), count, &count, &error_));
  return pages;
}

const char* Fixture::pool() const {
  auto* self = const_cast<Fixture*>(this);
  const int32_t rows = latent() ? KVC_POOL_K : KVC_POOL_KV;
  if (view_ == nullptr) check(kvc_cache_export_pool(cache_, 0, rows, 0, &self->view_, nullptr, &error_));
  return static_cast<const char*>(view_->dl_tensor.data) + view_->dl_tensor.byte_offset;
}

}  // namespace kvc::benchmark
