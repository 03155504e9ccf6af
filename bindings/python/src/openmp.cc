// The runtime is found by its symbols. The module is not linked to OpenMP, because it would then load a second runtime,
// whose threads would compete with the first one's for the same cores.
#include "openmp.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace kvcpy {

namespace {

struct Runtime {
  // libgomp's entry point of a parallel region, which the runtimes of LLVM and Intel have too.
  void (*parallel)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags) = nullptr;
  int (*max_threads)() = nullptr;

  bool take_from(void* library) {
    const auto region = dlsym(library, "GOMP_parallel");
    const auto threads = dlsym(library, "omp_get_max_threads");
    if (!region || !threads) return false;
    parallel = reinterpret_cast<decltype(parallel)>(region);
    max_threads = reinterpret_cast<decltype(max_threads)>(threads);
    return true;
  }
};

// A callback of dl_iterate_phdr: takes the functions from a loaded OpenMP library into `runtime`. It is needed because
// Python usually loads libraries without making their symbols global.
int try_loaded_library(dl_phdr_info* info, size_t, void* runtime) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash ? slash + 1 : info->dlpi_name;
  if (std::strncmp(name, "libgomp", 7) && std::strncmp(name, "libomp", 6) && std::strncmp(name, "libiomp", 7)) return 0;
  // The handle is kept, so that the library stays loaded.
  void* library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  return library && static_cast<Runtime*>(runtime)->take_from(library);
}

Runtime find() {
  Runtime runtime;
  // A preloaded runtime comes first, because other libraries are bound to it as well.
  if (!runtime.take_from(RTLD_DEFAULT)) dl_iterate_phdr(try_loaded_library, &runtime);
  return runtime;
}

std::atomic<const Runtime*> found{nullptr};

struct Loop {
  std::atomic<int64_t> next{0};
  const int64_t n;
  const kvc_parallel_item_fn item;
  void* const arg;

  static void run(void* self) {
    auto* loop = static_cast<Loop*>(self);
    for (int64_t i; (i = loop->next.fetch_add(1, std::memory_order_relaxed)) < loop->n;) loop->item(loop->arg, i);
  }
};

}  // namespace

bool find_openmp() {
  if (found.load()) return true;
  const Runtime runtime = find();
  if (!runtime.parallel) return false;  // a later import may load one
  static const Runtime kept = runtime;
  found = &kept;
  return true;
}

int32_t openmp_threads() { return std::max(1, found.load()->max_threads()); }

void openmp_parallel_for(void*, int64_t n, kvc_parallel_item_fn item, void* arg) {
  const Runtime* runtime = found.load(std::memory_order_acquire);
  Loop loop{.n = n, .item = item, .arg = arg};
  const auto threads = std::min<int64_t>(n, std::max(1, runtime->max_threads()));
  runtime->parallel(Loop::run, &loop, static_cast<unsigned>(threads), 0);
}

}  // namespace kvcpy
