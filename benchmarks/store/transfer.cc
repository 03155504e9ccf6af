// Transfers of 64 MiB: within the process beside memcpy, and to another process over a transport.
//
//   transfer_benchmark                          within the process: ms of memcpy, ms of the transfer, and the ratio
//   transfer_benchmark receive LIBRARY OPTIONS  over the plug-in LIBRARY of a transport: forks the sender. MB/s
#include <dlfcn.h>
#include <kvcache_transport.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kLayers = 16, kHeads = 8, kDim = 128, kTokens = 1024;  // float16: 4 KiB for a token and layer
constexpr int64_t kBytes = int64_t{kLayers} * kTokens * 2 * kHeads * kDim * 2;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void check(kvc_status status, const kvc_error &error) {
  if (status == KVC_OK) return;
  std::fprintf(stderr, "transfer_benchmark: %s\n", error.message);
  std::exit(1);
}

struct Engine {
  kvc_error error = KVC_ERROR_INIT;
  kvc_context *context = nullptr;
  kvc_cache *cache = nullptr;

  Engine() {
    kvc_context_config config;
    kvc_context_config_init(&config);
    check(kvc_context_create(&config, &context, &error), error);
    std::vector<kvc_layer_config> layers(kLayers);
    for (kvc_layer_config &layer : layers) {
      kvc_layer_config_init(&layer);
      layer.num_q_heads = layer.num_kv_heads = kHeads;
      layer.head_dim = kDim;
      layer.dtype = {kDLFloat, 16, 1};
    }
    kvc_cache_config options;
    kvc_cache_config_init(&options);
    options.layers = layers.data();
    options.num_layers = kLayers;
    options.page_size = 16;
    options.capacity_tokens = 2 * kTokens;
    options.max_batch_tokens = kTokens;
    check(kvc_cache_create(context, &options, &cache, &error), error);
  }
  ~Engine() {
    kvc_cache_destroy(cache);
    kvc_context_destroy(context);
  }
  kvc_seq compute() {
    kvc_seq seq = 0;
    check(kvc_seq_add(cache, 1, &seq, &error), error);
    const int32_t length = kTokens;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &length;
    batch.num_sequences = 1;
    kvc_forward forward = 0;
    check(kvc_forward_begin(cache, &batch, nullptr, &forward, &error), error);
    std::vector<uint16_t> rows(size_t{kTokens} * kHeads * kDim, 0x3c00);
    int64_t shape[3] = {kTokens, kHeads, kDim};
    const DLTensor kv = {rows.data(), {kDLCPU, 0}, 3, {kDLFloat, 16, 1}, shape, nullptr, 0};
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = &kv;
    for (int layer = 0; layer < kLayers; layer++) {
      check(kvc_forward_append(cache, forward, layer, &args, &error), error);
    }
    check(kvc_forward_end(cache, forward, &error), error);
    return seq;
  }
  std::vector<char> expect(kvc_transfer *transfer) {
    kvc_receive_args args;
    kvc_receive_args_init(&args);
    args.num_tokens = kTokens;
    check(kvc_transfer_receive(cache, &args, transfer, &error), error);
    std::vector<char> description(8192);
    int64_t bytes = 0;
    check(kvc_transfer_describe(cache, *transfer, description.data(), 8192, &bytes, &error), error);
    description.resize(static_cast<size_t>(bytes));
    return description;
  }
  kvc_transfer send(kvc_seq seq, const std::vector<char> &description) {
    kvc_transfer transfer = 0;
    const auto bytes = static_cast<int64_t>(description.size());
    check(kvc_transfer_send(cache, seq, description.data(), bytes, &transfer, &error), error);
    return transfer;
  }
  bool poll(kvc_transfer transfer, kvc_seq *sequence = nullptr) {
    kvc_transfer_info info;
    kvc_transfer_info_init(&info);
    check(kvc_transfer_poll(cache, transfer, &info, &error), error);
    if (sequence != nullptr) *sequence = info.sequence;
    return info.done != 0;
  }
};

int within_the_process() {
  Engine prefill, decode;
  const kvc_seq seq = prefill.compute();
  std::vector<char> source(kBytes, 1), target(kBytes, 2);
  double copy = 1e9, transfer = 1e9;
  for (int round = 0; round < 9; round++) {
    double begin = now();
    std::memcpy(target.data(), source.data(), source.size());
    copy = std::min(copy, now() - begin);
    kvc_transfer in = 0;
    kvc_seq received = 0;
    const kvc_transfer out = prefill.send(seq, decode.expect(&in));
    begin = now();
    for (bool sent = false, done = false; !sent || !done;) {
      if (!sent) sent = prefill.poll(out);
      if (!done) done = decode.poll(in, &received);
    }
    transfer = std::min(transfer, now() - begin);
    check(kvc_seq_remove(decode.cache, 1, &received, &decode.error), decode.error);
  }
  std::printf("64 MiB: memcpy %.1f ms, transfer %.1f ms, ratio %.2f\n", copy * 1e3, transfer * 1e3, transfer / copy);
  return 0;
}

void use_transport(Engine *engine, const char *library, const char *options) {
  void *plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto open =
      plugin == nullptr ? nullptr : reinterpret_cast<kvc_transport_open_fn>(dlsym(plugin, "kvc_transport_open"));
  if (open == nullptr) {
    std::fprintf(stderr, "transfer_benchmark: %s\n", dlerror());
    std::exit(1);
  }
  kvc_transport transport;
  kvc_transport_init(&transport);
  check(open(KVC_TRANSPORT_VERSION, options, &transport, &engine->error), engine->error);
  check(kvc_cache_set_transport(engine->cache, &transport, &engine->error), engine->error);
}

int to_another_process(const char *library, const char *options) {
  constexpr int kRounds = 6;
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return 1;
  const pid_t child = fork();  // before the transport and threads begin
  if (child == 0) {
    Engine prefill;
    use_transport(&prefill, library, options);
    const kvc_seq seq = prefill.compute();
    for (int round = 0; round < kRounds; round++) {
      std::vector<char> description(8192);
      const ssize_t bytes = read(pipe_ends[0], description.data(), description.size());
      description.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
      const kvc_transfer out = prefill.send(seq, description);
      while (!prefill.poll(out)) {
      }
    }
    _exit(0);
  }
  Engine decode;
  use_transport(&decode, library, options);
  double best = 1e9;
  for (int round = 0; round < kRounds; round++) {
    kvc_transfer in = 0;
    kvc_seq received = 0;
    const std::vector<char> description = decode.expect(&in);
    const double begin = now();
    if (write(pipe_ends[1], description.data(), description.size()) < 0) return 1;
    while (!decode.poll(in, &received)) {
    }
    if (round > 0) best = std::min(best, now() - begin);
    check(kvc_seq_remove(decode.cache, 1, &received, &decode.error), decode.error);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("64 MiB over %s: %.1f ms, %.0f MB/s\n", options, best * 1e3, static_cast<double>(kBytes) / best / 1e6);
  return status;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 4 && std::strcmp(argv[1], "receive") == 0) return to_another_process(argv[2], argv[3]);
  if (argc == 1) return within_the_process();
  std::fprintf(stderr, "usage: transfer_benchmark [receive LIBRARY OPTIONS]\n");
  return 2;
}
