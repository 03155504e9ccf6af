#include "system/thread.h"

namespace kvc {

// Windows has no signals that another thread could receive.
int start_thread(pthread_t* thread, void* (*main)(void*), void* argument, ThreadSignals) noexcept {
  return pthread_create(thread, nullptr, main, argument);
}

}  // namespace kvc
