// From dlopen to the first block table, each time in a new process: median of the runs. Target: < 10 ms.
//   cold_start LIBRARY [runs]
// It loads the library by its path, and uses kvc_get_api alone, as a plug-in host does. The geometry is that of a 7B
// model in bf16.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvcache.h"

namespace {

constexpr int kLayers = 32;

// Returns the milliseconds of one cold start in this process, or a negative number if it fails.
double start(const char* path) {
  const auto begin = std::chrono::steady_clock::now();
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return -1;
  }
  using GetApi = const kvc_api* (*)(uint32_t);
  const kvc_api* api = reinterpret_cast<GetApi>(dlsym(library, "kvc_get_api"))(KVC_ABI_VERSION);
  if (api == nullptr) return -1;
  kvc_error error = KVC_ERROR_INIT;
  kvc_context* context = nullptr;
  kvc_cache* cache = nullptr;
  kvc_layer_config layers[kLayers];
  for (kvc_layer_config& layer : layers) {
    kvc_layer_config_init(&layer);
    layer.num_q_heads = 32;
    layer.num_kv_heads = 8;
    layer.head_dim = 128;
    layer.dtype = {kDLBfloat, 16, 1};
  }
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = layers;
  config.num_layers = kLayers;
  config.capacity_tokens = 65536;
  kvc_seq seq = 0;
  const int32_t length = 512;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward forward = 0;
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  const bool ok = api->context_create(nullptr, &context, &error) == KVC_OK &&
                  api->cache_create(context, &config, &cache, &error) == KVC_OK &&
                  api->seq_add(cache, 1, &seq, &error) == KVC_OK &&
                  api->forward_begin(cache, &batch, nullptr, &forward, &error) == KVC_OK &&
                  api->forward_get_info(cache, forward, &info, &error) == KVC_OK;
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!ok) std::fprintf(stderr, "%s\n", error.message);
  return ok ? ms : -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: cold_start LIBRARY [runs]\n");
    return 2;
  }
  const int runs = argc > 2 ? std::atoi(argv[2]) : 21;
  std::vector<double> ms;
  for (int i = 0; i < runs; ++i) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    if (const pid_t child = fork(); child == 0) {
      const double took = start(argv[1]);
      const bool sent = write(ends[1], &took, sizeof took) == sizeof took;
      _exit(sent ? 0 : 1);
    } else if (double took = -1; read(ends[0], &took, sizeof took) == sizeof took && took >= 0) {
      waitpid(child, nullptr, 0);
      ms.push_back(took);
    } else {
      return 1;
    }
    close(ends[0]);
    close(ends[1]);
  }
  std::sort(ms.begin(), ms.end());
  std::printf("dlopen to the first block table: median %.2f ms, worst %.2f ms of %d processes (target 10 ms)\n",
              ms[ms.size() / 2], ms.back(), runs);
  return 0;
}
