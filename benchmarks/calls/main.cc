// What a call costs in C: the baseline of benchmarks/calls/run.py.
//   calls Q_HEADS KV_HEADS HEAD_DIM LAYERS CAPACITY_TOKENS
// Prints two numbers, the nanoseconds of the fastest round. The first is for kvc_seq_lengths of one sequence. The
// second is for kvc_forward_attend of one decode row that sees itself alone, on one thread. A step makes that call once
// for each layer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvcache.h"

namespace {

void check(kvc_status status, const kvc_error& error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

template <class Call>
double nanoseconds(int calls, Call call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "calls Q_HEADS KV_HEADS HEAD_DIM LAYERS CAPACITY_TOKENS\n"), 1;
  const int q_heads = std::atoi(argv[1]), kv_heads = std::atoi(argv[2]), dim = std::atoi(argv[3]);
  const int num_layers = std::atoi(argv[4]);
  kvc_error error = KVC_ERROR_INIT;
  kvc_context_config context_config;
  kvc_context_config_init(&context_config);
  context_config.num_threads = 1;
  kvc_context* context = nullptr;
  check(kvc_context_create(&context_config, &context, &error), error);
  std::vector<kvc_layer_config> layers(static_cast<size_t>(num_layers));
  for (kvc_layer_config& layer : layers) {
    kvc_layer_config_init(&layer);
    layer.num_q_heads = q_heads;
    layer.num_kv_heads = kv_heads;
    layer.head_dim = dim;
  }
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers.data();
  config.num_layers = num_layers;
  config.capacity_tokens = std::atoi(argv[5]);
  kvc_cache* cache = nullptr;
  check(kvc_cache_create(context, &config, &cache, &error), error);
  kvc_seq seq = 0;
  check(kvc_seq_add(cache, 1, &seq, &error), error);

  double trivial = 1e9, attend = 1e9;
  int64_t length = 0;
  for (int round = 0; round < 50; ++round) {
    trivial = std::min(trivial, nanoseconds(10000, [&](int) { kvc_seq_lengths(cache, 1, &seq, &length, &error); }));
  }

  std::vector<float> q(q_heads * dim, 0.1f), k(kv_heads * dim, 0.2f), v(kv_heads * dim, 0.3f), out(q_heads * dim);
  int64_t q_shape[3] = {1, q_heads, dim}, kv_shape[3] = {1, kv_heads, dim};
  const auto tensor = [](std::vector<float>& data, int64_t* shape) {
    return DLTensor{data.data(), {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  };
  const DLTensor tq = tensor(q, q_shape), tk = tensor(k, kv_shape), tv = tensor(v, kv_shape),
                 tout = tensor(out, q_shape);
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = &tq;
  args.k = &tk;
  args.v = &tv;
  args.out = &tout;
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  for (int round = 0; round < 100; ++round) {  // the first round touches each pool
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), error);
    attend = std::min(attend, nanoseconds(num_layers, [&](int layer) {
                        check(kvc_forward_attend(cache, forward, layer, &args, &error), error);
                      }));
    check(kvc_forward_abort(cache, forward, &error), error);
  }
  std::printf("%.1f %.1f\n", trivial, attend);
  kvc_cache_destroy(cache);
  kvc_context_destroy(context);
}
