#include "real_device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>

#include "device_memory.h"

namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "tests of a plug-in: %s\n", what);
  std::exit(1);
}

bool is_path(const char* name) { return name != nullptr && std::strchr(name, '/') != nullptr; }

// The driver's functions for pinned memory and for waiting, found by name in its library.
struct Driver {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*synchronize)();
  const char* missing = nullptr;  // null: device 0 is ready; else what this machine lacks

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      missing = "no CUDA driver (libcuda.so.1)";
      return;
    }
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      if (*function == nullptr) missing = name;
    };
    find(&init, "cuInit");
    find(&retain, "cuDevicePrimaryCtxRetain");
    find(&set_current, "cuCtxSetCurrent");
    find(&host_alloc, "cuMemHostAlloc");
    find(&synchronize, "cuCtxSynchronize");
    void* context = nullptr;
    if (missing != nullptr) return;
    if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0) missing = "no context of device 0";
  }
};

Driver& driver() {
  static Driver opened;
  return opened;
}

// Blocks have sizes of powers of two. Each follows 64 bytes that hold its size class. Freed blocks are used again.
class Arena {
 public:
  Arena() {
    if (!is_path(std::getenv("KVC_KERNEL_BACKEND"))) return;
    if (driver().missing != nullptr) return;  // then real_backend refuses plug-ins for a GPU
    // One address space for host and device: such memory has one address for both.
    constexpr unsigned kPortableAndMapped = 3;
    void* memory = nullptr;
    if (driver().host_alloc(&memory, kBytes, kPortableAndMapped) != 0) give_up("the driver gives no pinned memory");
    base_ = static_cast<char*>(memory);
  }
  void* take(size_t bytes) {
    if (base_ == nullptr) return std::malloc(bytes > 0 ? bytes : 1);
    int size_class = 7;
    while ((size_t{1} << size_class) < bytes + kHeader) ++size_class;
    const std::lock_guard<std::mutex> lock(mutex_);
    char* block = free_[size_class];
    if (block != nullptr) {
      std::memcpy(&free_[size_class], block + kHeader, sizeof(char*));
    } else {
      if (used_ + (size_t{1} << size_class) > kBytes) return nullptr;
      block = base_ + used_;
      used_ += size_t{1} << size_class;
    }
    *block = static_cast<char>(size_class);
    return block + kHeader;
  }
  void give(void* memory) {
    char* const block = static_cast<char*>(memory) - kHeader;
    if (base_ == nullptr || block < base_ || block >= base_ + kBytes) {
      std::free(memory);
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const int size_class = *block;
    std::memcpy(block + kHeader, &free_[size_class], sizeof(char*));
    free_[size_class] = block;
  }

 private:
  static constexpr size_t kBytes = size_t{4} << 30, kHeader = 64;
  std::mutex mutex_;
  char* base_ = nullptr;
  size_t used_ = 0;
  char* free_[64] = {};
};

Arena& arena() {
  alignas(Arena) static char memory[sizeof(Arena)];
  static Arena* const made = ::new (memory) Arena;  // lives longer than every static object
  return *made;
}

// Whether the libraries' initialisers are done, and those of this program begin. A checker of CUDA programs must see
// the driver's first call, so a library's initialiser that allocates memory must not make it.
bool program_begun = false;
__attribute__((constructor(101))) void begin_program() { program_begun = true; }

const kvc_backend* tested = nullptr;
bool on_card = false;

// Checks the arguments of a function of the tested table, calls it, and waits for the GPU. So the call whose launch
// fails is the one that reports it.
template <auto kFunction, class... Arguments>
kvc_status then_wait(Arguments... arguments) {
  (kvc::kernels::test::check_arguments(arguments), ...);
  const kvc_status status = (tested->*kFunction)(arguments...);
  const int failed = on_card && status == KVC_OK ? driver().synchronize() : 0;
  if (failed != 0) {
    std::fprintf(stderr, "CUDA's error %d\n", failed);
    give_up("a kernel failed on the device");
  }
  return status;
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = program_begun ? arena().take(bytes) : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (!program_begun) {
    std::free(memory);
  } else if (memory != nullptr) {
    arena().give(memory);
  }
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace kvc::kernels::test {

const kvc_backend* checked_backend(const kvc_backend* emulated) {
  static const kvc_backend checked = [emulated] {
    tested = emulated;
    kvc_backend table = *tested;
    table.rope = then_wait<&kvc_backend::rope>;
    table.append = then_wait<&kvc_backend::append>;
    table.attend = then_wait<&kvc_backend::attend>;
    table.copy_slots = then_wait<&kvc_backend::copy_slots>;
    table.gather = then_wait<&kvc_backend::gather>;
    table.merge = then_wait<&kvc_backend::merge>;
    table.states = then_wait<&kvc_backend::states>;
    table.project = then_wait<&kvc_backend::project>;
    return table;
  }();
  return &checked;
}

const kvc_backend* real_backend(const char* path) {
  if (tested != nullptr) return checked_backend(tested);
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up(dlerror());
  const auto get = reinterpret_cast<kvc_backend_get_fn>(dlsym(library, "kvc_backend_get"));
  const kvc_backend* const plugin = get == nullptr ? nullptr : get(KVC_BACKEND_VERSION);
  if (plugin == nullptr) give_up("the plug-in has no table of this version");
  on_card = plugin->device_type == kDLCUDA;
  if (on_card && driver().missing != nullptr) give_up(driver().missing);
  return checked_backend(plugin);
}

}  // namespace kvc::kernels::test
